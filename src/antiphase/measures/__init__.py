"""Measures: functions that return numbers per example, layer and head, and what can honestly be said of them."""
