"""The difference of two graphs, as findings.

- `corresponding`: which graphs of two captures correspond.
- `align`: pairs of equal items of two sequences.
- `match`: a first correspondence of the nodes, which `local_search` improves; `correspondence`:
  what holds it. `apart`: modules that only one graph has, whose nodes correspond to none.
  `exchanged`: ops that were exchanged where a module came right after them.
- `group`: the nodes that differ, a group for each edit. `moves`: what follows where an op or a
  module was taken to another place. `sizes`: constants that follow from other sizes.
- `findings`: `GraphDiff`, `Finding` and `Change`, as values and in words.
- `report`: the groups as `Finding`s, of graphs and of whole captures: `diff_graphs`.
  `consequences`: what follows in the backward.
- `places`: findings that are one edit as one, by `keys`, or in `calls` of shared code; `modules`
  that came or went. `origins`: where a change comes from; `paths` of repeated modules.
- `causes`: findings of many comparisons that are one edit as one, by the `identity` that
  `identify` gives them. `by_code`: the same within one comparison, where the code is known;
  `other_classes`: modules of another class, for which most graphs went or came.
"""
