"""Costs of graphs, computed from ops and shapes only.

- `cost`: `Cost`, the two figures of some ops or of an edit.
- `flops`: floating-point operations, by torch's formulas; the only module that requires torch.
- `step`: storages of a step of several graphs, and the storages saved by the forward.
- `peak`: an estimate of peak memory.
- `recomputed`: ops that a backward recomputes.
- `by_node`: costs of single nodes. `table`: costs by module, in rows and as text.
"""
