"""The assertions on a capture: what was compiled, what ran, and whether it is right."""
