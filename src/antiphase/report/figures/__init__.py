"""Figures, drawn from answers and rows."""
