"""Studies: questions asked of trained runs; each result is a cell on disk."""
