"""Values of a device that are read when they are needed."""
