"""What graphs cost, from their ops and shapes alone.

- `cost`: `Cost`, the two figures of some ops or of an edit.
- `flops`: floating-point operations, by torch's formulas; the one module that needs torch.
- `step`: the storages of a step of several graphs, and those that the forward saves.
- `peak`: an estimate of the most bytes that are alive at one time.
- `recomputed`: what a backward computes again.
- `by_node`: costs of single nodes. `table`: costs by module, in rows and as text.
"""
