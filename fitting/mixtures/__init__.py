"""Weights of many domains: DDO, AutoScale, optimal mixtures."""
