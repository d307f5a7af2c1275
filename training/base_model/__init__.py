"""A base model that somebody else trained: read, converted, examined."""
