"""What runs eagerly beside compiled graphs, as graphs of its own: eager islands."""
