"""The recording of ops under a TorchDispatchMode, and the graphs built from the records."""
