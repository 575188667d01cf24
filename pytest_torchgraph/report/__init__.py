"""Reports of a run: sections for failed comparisons and checks, artifacts, the HTML page."""
