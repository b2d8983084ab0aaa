"""Watches a script while it runs. Everything here ends in a `Capture`."""
