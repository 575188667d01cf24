"""The difference of two programs, as findings.

- `report`: of two lists of graphs, `diff_graphs`; of two programs, `diff_programs`.
- `align`: pairs of equal items of two sequences.
- `match`: a first correspondence of the nodes; `correspondence` holds it and improves it. `apart`:
  modules that only one graph has, and exchanged ops.
- `origins`: which graphs correspond, and the matching of all of them, which a difference keeps.
- `group`: the nodes that differ, a group for each edit. `moves`: consequences of moves, and
  constants that follow from other sizes. `consequences`: what follows in the backward.
- `findings`: `GraphDiff`, `Finding` and `Change` as values; `words`: their text.
- `places`: findings that are one edit as one, by `keys` or by the line of code. `other_classes`:
  modules of another class, for which most graphs went or came. `paths` of repeated modules.
- `costs`: what each finding costs, FLOPs by `flop_costs`.
- `joining`: findings of many comparisons that are one edit as one, by the identity that `identify`
  makes.
"""
