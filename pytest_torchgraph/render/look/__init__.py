"""What a drawing shows of a node: labels, categories, marks of changes."""
