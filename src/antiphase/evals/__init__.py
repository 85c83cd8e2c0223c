"""Evaluators: features in, rows of (name, value, n, interval) out."""
