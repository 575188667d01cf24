"""When two graphs are the same: canonical form, numbered graphs, isomorphism."""
