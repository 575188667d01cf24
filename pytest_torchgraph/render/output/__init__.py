"""Output of DOT to a file, as SVG, PNG, PDF or DOT, rendered in a separate process."""
