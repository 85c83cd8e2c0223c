"""Evaluations of a trained model's features: zero-shot, linear probe, few-shot, retrieval, MMVP. Each gives rows of
(name, value, n, interval)."""
