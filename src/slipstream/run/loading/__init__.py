"""The script's own DataLoaders, with the same batches sooner."""
