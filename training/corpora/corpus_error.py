"""What is raised when a corpus or a tokenizer cannot be used as it is."""


class CorpusError(ValueError):
    """A corpus, token store or tokenizer that cannot be used; its message is one line for the person who
    named it."""
