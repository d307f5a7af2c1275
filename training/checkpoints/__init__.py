"""Weights as Hugging Face directories, and states to resume from; each complete or absent."""
