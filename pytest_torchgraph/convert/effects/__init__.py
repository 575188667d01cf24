"""Side effects of ops: from schemas, by name, and through aliases."""
