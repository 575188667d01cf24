"""The whole backward as one graph, captured by compiled autograd."""
