"""Reports of a run: sections of failed comparisons and checks, their artifacts, the page."""
