"""Where things are in a drawing: clusters, ranks, boxes, edges."""
