"""The optimiser: variable projection, Newton refinement, bounds, multi-start."""
