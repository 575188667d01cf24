"""The difference of two programs, as findings.

- `programs`: of two programs, ranks by classes of equal ranks: `diff_programs`.
- `report`: of two lists of graphs: `diff_graphs`. `corresponding`: which graphs of them correspond.
- `align`: pairs of equal items of two sequences.
- `match`: a first correspondence of the nodes, which `local_search` improves; `correspondence`:
  what holds it. `apart`: modules that only one graph has, whose nodes correspond to none, and ops
  that were exchanged where a module came right after them.
- `origins`: the matching of all graphs, which a difference keeps.
- `group`: the nodes that differ, a group for each edit. `moves`: what follows where an op or a
  module was taken to another place. `sizes`: constants that follow from other sizes.
  `consequences`: what follows in the backward.
- `findings`: `GraphDiff`, `Finding` and `Change` as values; `words`: their text.
- `places`: findings that are one edit as one, by `keys`, by the line of code, or in `calls` of
  shared code, and modules that came or went. `other_classes`: modules of another class, for which
  most graphs went or came. `paths` of repeated modules.
- `costs`: what each finding costs, FLOPs by `flop_costs`.
- `joining`: findings of many comparisons that are one edit as one, by the identity that `identify`
  gives them, and findings as plain data.
"""
