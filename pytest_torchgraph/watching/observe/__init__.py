"""The observers in torch, and what they see: events, entries into compiled code, runs."""
