"""Pairmill in Python: `pairmill.open`, `pairmill.run`, and what they return. The commands call the same functions."""
