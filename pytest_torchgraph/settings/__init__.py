"""What a user sets: options, ini values, limits, and what `within` means."""
