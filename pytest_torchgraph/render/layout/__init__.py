"""Layout of nodes as boxes, clusters and edges, kept few enough to read, ordered by rank."""
