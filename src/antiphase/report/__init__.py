"""Report: rows in, figures, tables and pages out; never runs a model."""
