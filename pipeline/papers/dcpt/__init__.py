"""Tables of the D-CPT Law paper (Que et al., 2024)."""
