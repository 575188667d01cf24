"""What users call: `capture`, `watch`, `load`, `diff`, `from_fx`, and what they return."""
