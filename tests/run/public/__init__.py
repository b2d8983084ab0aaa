"""Training scripts in the style of public ones, each complete and unaware of Slipstream."""
