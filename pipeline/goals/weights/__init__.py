"""Weights of many domains: runs at many mixtures, methods that propose weights from them, and what proves them."""
