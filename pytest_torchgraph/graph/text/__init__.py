"""The `.tgraph` text form: one line per node, or with repeated modules written once.

- `format` writes the text. `parse` reads whole lines, `nodes` the elements of a line.
- `inputs`: parameters that are declared where they are first used.
- `table`: the nodes as a table for readers; it is not parsed back.
- `fold` writes repeated modules once: `runs` has the lines of one instance and the blocks that
  instances share, `ranges` the lines for several instances. `expand` is the inverse.
- `ranks`: the graphs of several ranks in one text; ranks with equal graphs share a section.
"""
