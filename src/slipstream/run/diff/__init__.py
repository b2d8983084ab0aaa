"""Fixes as a patch of the user's own source."""
