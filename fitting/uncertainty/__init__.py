"""How far a fit can be trusted: resampling, profiles, cross-validation."""
