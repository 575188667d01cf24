"""The `.tgraph` text form, with one line a node or with repeated modules written once.

- `format` writes it. `parse` reads whole lines, `nodes` one node, `values` what is in a line.
- `table`: the nodes as a table, to be read only.
- `fold` writes repeated modules once: `runs` are the lines of one instance, `fold_series` makes
  blocks and exceptions of them, `ranges` the lines that stand for several instances.
- `expand` undoes that: `block` has the lines of a block, `expanded` where each line comes from.
- `ranks`: the graphs of several ranks in one text, those of equal ranks once.
- `folded_names`: the names in the lines of both.
"""
