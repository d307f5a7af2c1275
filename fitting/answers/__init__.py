"""What a fit answers: trade-off, limited data, compute, balance, turning points."""
