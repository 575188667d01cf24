"""What a graph costs, from its ops and shapes alone."""
