"""Models of sequences that are drawn from a seed."""
