"""The text and the colours of a box: labels, categories of ops, marks of changes."""
