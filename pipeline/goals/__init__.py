"""What a question can ask for: a domain ratio, or mixture weights."""
