"""The public functions `capture`, `watch`, `load`, `diff`, `from_fx`, and `Capture`."""
