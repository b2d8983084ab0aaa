"""The loader: what stands in the training loop."""
