"""Tables of the learning-dynamics paper (Wang et al., 2025)."""
