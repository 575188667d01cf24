"""What is shown of a run: failed comparisons and checks, artifacts, the page."""
