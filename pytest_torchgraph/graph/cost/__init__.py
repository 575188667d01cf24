"""What graphs cost, from their ops and shapes alone.

- `flops`: floating-point operations, by torch's formulas; the one module that needs torch.
- `saved`: the storages that a forward keeps for its backward.
- `peak`: an estimate of the most bytes that are alive at one time.
- `step`: the storages of a step of several graphs, which take what others made.
- `by_module`: both by the module in which the ops are.
"""
