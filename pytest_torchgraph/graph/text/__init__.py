"""The `.tgraph` text form: `format` writes it, `parse` reads lines, `values` what is in a line."""
