"""Loops over parameters that can be done at once."""
