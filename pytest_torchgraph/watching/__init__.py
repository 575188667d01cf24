"""The compiler's actions: torch's structured trace as typed events, runs and entries."""
