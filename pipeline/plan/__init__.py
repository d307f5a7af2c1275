"""The runs of a question, their cost, and the corpora that they need."""
