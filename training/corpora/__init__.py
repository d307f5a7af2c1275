"""Corpora: from text to tokens on disk."""
