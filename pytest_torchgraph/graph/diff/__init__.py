"""The difference of two graphs, as findings."""
