"""The `.tgraph` text form: one line per node, or with repeated modules written once.

- `format` writes the text. `parse` reads whole lines, `nodes` the elements of a line.
- `inputs`: parameters that are declared where they are first used.
- `table`: the nodes as a table for readers. It is not parsed back.
- `fold` writes repeated modules once. `runs` finds the lines of each instance, and `series` decides
  which instances share a block. `block_writer` writes a block and its exceptions, and `ranges` the
  lines that list instances.
- `expand` is the inverse of `fold`. `block_reader` fills in the lines of a block.
- `names`: the forms of names in the lines of a block.
- `ranks`: the graphs of several ranks in one text. Ranks with equal graphs share a section.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .format import ALIAS_OPS as ALIAS_OPS
    from .format import EAGER_KINDS as EAGER_KINDS
    from .format import EAGER_VERSION as EAGER_VERSION
    from .format import FACTS_VERSION as FACTS_VERSION
    from .format import GIVEN as GIVEN
    from .format import TIMES as TIMES
    from .format import VERSION as VERSION
    from .format import VIA_LEVELS as VIA_LEVELS
    from .format import Header as Header
    from .format import format_arg as format_arg
    from .format import format_document as format_document
    from .format import format_key as format_key
    from .format import format_mesh as format_mesh
    from .format import format_name as format_name
    from .format import format_node as format_node
    from .format import format_op as format_op
    from .format import format_result as format_result
    from .format import format_sections as format_sections
    from .format import format_shape as format_shape
    from .format import ops_in_words as ops_in_words
    from .format import quote as quote
    from .format import runs_in_words as runs_in_words
    from .format import shown_runs as shown_runs
    from .format import with_runs as with_runs
    from .parse import parse_document as parse_document
    from .ranks import parse_file as parse_file
    from .ranks import parse_text as parse_text
    from .ranks import read_text as read_text
    from .table import aligned as aligned
    from .table import format_table as format_table
    from .table import right_aligned as right_aligned
else:
    __getattr__ = front_door(
        __name__,
        {
            "format": (
                "ALIAS_OPS EAGER_KINDS EAGER_VERSION FACTS_VERSION GIVEN Header TIMES VERSION "
                "VIA_LEVELS format_arg format_document format_key format_mesh format_name "
                "format_node format_op format_result format_sections format_shape quote "
                "ops_in_words runs_in_words shown_runs with_runs"
            ),
            "parse": "parse_document",
            "ranks": "parse_file parse_text read_text",
            "table": "aligned format_table right_aligned",
        },
    )
