"""A study on disk: its folder, its artifacts, its points, its fits."""
