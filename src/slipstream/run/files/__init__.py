"""What is known of a file after it was opened once, kept while the file stays the same."""
