"""What graphs cost, from their ops and shapes alone.

- `cost`: `Cost`, the two figures of some ops or of an edit.
- `flops`: floating-point operations, by torch's formulas; the one module that needs torch.
- `saved`: the storages that a forward keeps for its backward.
- `peak`: an estimate of the most bytes that are alive at one time.
- `by_module`: both by the module in which the ops are.
"""
