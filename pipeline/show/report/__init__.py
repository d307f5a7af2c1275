"""Building blocks of report.html: evidence, figures, templates."""
