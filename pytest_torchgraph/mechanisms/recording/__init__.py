"""Recording ops under a TorchDispatchMode, and making graphs of the records."""
