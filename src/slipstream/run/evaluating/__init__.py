"""Evaluation that provably never learns."""
