"""From DOT to a file: renderers, their processes, the style of an SVG."""
