"""What the compiler did: torch's structured trace as typed events, runs and entries."""
