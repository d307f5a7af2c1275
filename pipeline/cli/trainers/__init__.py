"""A recommendation as the configuration of other people's trainers, a function a format."""
