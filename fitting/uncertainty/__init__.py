"""Uncertainty of a fit: covariance, bootstrap, profile likelihood."""
