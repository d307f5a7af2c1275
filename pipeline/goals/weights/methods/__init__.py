"""Methods that propose mixture weights, one file each."""
