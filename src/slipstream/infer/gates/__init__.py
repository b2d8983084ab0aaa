"""What a variant has to pass before its speed counts. A gate returns None, or why it failed."""
