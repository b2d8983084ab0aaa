"""The GPU engine: pictures decoded, cropped and resized on a CUDA device from packed tiles."""
