"""The `.tgraph` text form, with one line a node or with repeated modules written once.

- `format` writes it. `parse` reads whole lines, `nodes` what is in a line.
- `table`: the nodes as a table, to be read only.
- `fold` writes repeated modules once: `runs` are the lines of one instance and the blocks that
  several share, `ranges` the lines that stand for several instances. `expand` undoes that.
- `ranks`: the graphs of several ranks in one text, those of equal ranks once.
"""
