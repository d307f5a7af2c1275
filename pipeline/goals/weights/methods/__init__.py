"""Methods that propose mixture weights."""
