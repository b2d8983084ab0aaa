"""Packing: sources of samples in, shards out."""
