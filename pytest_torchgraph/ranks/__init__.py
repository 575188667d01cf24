"""Capture many ranks in one process, each under torch's fake process group."""
