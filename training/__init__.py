"""One run: corpora, tokens, batches, model, losses and checkpoints."""
