"""Which runs next: the candidates that are expected to sharpen an answer most for their cost."""
