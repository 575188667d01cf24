"""The difference of two programs, as findings.

- `report`: compares two lists of graphs (`diff_graphs`) or two programs (`diff_programs`).
- `align`: aligns equal items of two sequences.
- `match`: matches the nodes of two graphs; `correspondence` holds and improves the matching.
  `apart`: sets modules of only one graph apart and finds exchanged ops.
- `origins`: pairs corresponding graphs; a difference keeps it with all matchings.
- `group`: groups the differing nodes by edit. `moves`: finds consequences of moves, and constants
  that follow from changed sizes. `consequences`: finds consequences in the backward.
- `findings`: `GraphDiff`, `Finding` and `Change` as values; `words`: their text.
- `scales`: finds calibrated constants that follow from an edit.
- `places`: merges the findings of one edit, by `keys` or by the line of code. `other_classes`:
  merges the findings of modules that changed their class, so that most graphs were added or
  removed. `paths`: paths of repeated modules.
- `costs`: computes the cost of each finding, with FLOPs from `flop_costs`.
- `joining`: merges the findings of one edit over many comparisons, by the tokens that `identify`
  computes.
"""
