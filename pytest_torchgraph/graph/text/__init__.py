"""The `.tgraph` text form: one line per node, or with repeated modules written once.

`format_document` writes a text: it gives each node a line, passes the lines through `fold`, and
appends the lines of `links`. `parse_text` reads one: it calls `ranks` for a text of several ranks,
`expand` for a folded text, and `parse` for the lines.

- `format` writes the text, and tables for readers. `parse` reads whole lines, `nodes` the elements
  of a line.
- `links` writes and reads the lines after the graphs: which run takes its inputs from which.
- `inputs`: parameters that are declared where they are first used.
- `fold` writes repeated modules once. `runs` finds the lines of each instance, and `series` decides
  which instances share a block. `block_writer` writes a block, and its instances with their
  exceptions.
- `lists` writes the lines of an update that are equal for each parameter once.
- `expand` is the inverse of `fold`.
- `names`: the forms of names in the lines of a block, and a block that is filled in.
- `ranks`: the graphs of several ranks in one text. Ranks with equal graphs share a section.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .format import (
        ALIAS_OPS,
        EAGER_KINDS,
        EAGER_VERSION,
        VERSION,
        VIA_LEVELS,
        Header,
        aligned,
        format_arg,
        format_document,
        format_key,
        format_mesh,
        format_name,
        format_node,
        format_op,
        format_result,
        format_sections,
        format_shape,
        format_table,
        ops_in_words,
        quote,
        right_aligned,
        runs_in_words,
        shown_runs,
        with_runs,
    )
    from .links import links_lines
    from .parse import parse_document
    from .ranks import parse_file, parse_text, read_text
else:
    __getattr__ = front_door(
        __name__,
        {
            "format": (
                "ALIAS_OPS EAGER_KINDS EAGER_VERSION Header VERSION VIA_LEVELS aligned format_arg "
                "format_document format_key format_mesh format_name format_node format_op "
                "format_result format_sections format_shape format_table ops_in_words quote "
                "right_aligned runs_in_words shown_runs with_runs"
            ),
            "links": "links_lines",
            "parse": "parse_document",
            "ranks": "parse_file parse_text read_text",
        },
    )
