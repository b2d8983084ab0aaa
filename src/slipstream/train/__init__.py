"""Training: one readable step, and the switches that make it faster and leave it the same."""
