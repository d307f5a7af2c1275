"""Runs chosen round by round, each for what it is expected to teach about the answer."""
