"""One forward and backward of a target, with all changed state restored."""
