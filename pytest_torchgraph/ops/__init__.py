"""Names of ops: qualified names, patterns, levels, and which ops are registered."""
