"""torch.fx graphs, live or as text, to `Graph` and back."""
