"""Inference: the fastest variant of a model that provably gives the same answers."""
