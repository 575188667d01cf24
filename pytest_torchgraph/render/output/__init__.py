"""DOT becomes a file: SVG, PNG, PDF or DOT, drawn by a program in a process of its own."""
