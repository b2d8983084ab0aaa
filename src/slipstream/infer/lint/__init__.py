"""What in a model's architecture costs time on this device, measured. It is never changed."""
