"""One forward and backward of a target, run so that nothing is left changed."""
