"""Slurm: submit arrays of runs, read their state, cancel them."""
