"""The rules that compare layers with others, each in a file of its own."""
