"""Graphs as pure data: model, text form, equality, difference, assertions. Never imports torch.

- `model`: `Graph`, `Node` and their parts. `module_paths`: module paths in node names. `digits`:
  rounding of float constants. `sizes`: values for symbolic sizes.
- `program`: the graphs of a run or a file, as one value. `events`: eager ops and graph breaks.
- `step`: the runs of the graphs in one training step. `step.joined` puts the graphs that graph
  breaks divide into one forward and one backward; `inline` copies the nodes.
- `text/`: writer and parser of the `.tgraph` form.
- `equality/`: canonical form, numbered graph, isomorphism: the implementation of `==`.
- `diff/`: differences between two captures, as findings.
- `blocks`: differences between the blocks of one capture.
- `cost/`: FLOPs, saved bytes, peak memory, and recomputation in the backward.
- `higher_order`: tables of torch's higher-order ops: which op each runs, and how often its bodies.
- `census`: each op with its number of runs, by these tables.
- `op_checks`: the methods of `Graph` and `Capture` that query or assert ops. They call `find`
  (nodes), `checks` (counts), `pattern` (relations, on the uses in `dataflow`) and
  `collective_checks` (communication, on `collectives`). `select` filters the ops for all of them.
- `failures`: the nodes that a failed check hands to the report, for its picture.
- `divergence`: the first difference between a run and eager, as a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doors import front_door

if TYPE_CHECKING:
    from .cost import (
        by_module,
        cost_table,
        flops_by_node,
        format_cost_table,
        need_saved,
        peak_bytes,
        saved_by_node,
        with_savers,
    )
    from .diff import (
        MAX_CAUSES,
        RULES,
        Change,
        Finding,
        GraphDiff,
        GraphPair,
        Place,
        abridged,
        diff_graphs,
        find_changes,
        finding_lines,
        merge_edits,
        problem_finding,
    )
    from .divergence import Divergence, headline, nodes_to_show
    from .equality import canonical, equal_programs
    from .events import GraphBreak, ScheduledCall, in_schedule
    from .failures import UnexpectedOps, shown_by
    from .model import (
        Atom,
        Detail,
        Device,
        Effect,
        EffectKind,
        Graph,
        GraphKind,
        InputRef,
        Node,
        Ref,
        Result,
        Source,
        SubgraphRef,
        Symbol,
        TensorMeta,
    )
    from .program import Program
    from .text import (
        EAGER_KINDS,
        Header,
        format_document,
        format_sections,
        parse_document,
        parse_text,
    )
else:
    __getattr__ = front_door(
        __name__,
        {
            "cost": (
                "by_module cost_table flops_by_node format_cost_table "
                "need_saved peak_bytes saved_by_node with_savers"
            ),
            "diff": (
                "Change Finding GraphDiff GraphPair MAX_CAUSES Place RULES abridged diff_graphs "
                "find_changes finding_lines merge_edits problem_finding"
            ),
            "divergence": "Divergence headline nodes_to_show",
            "equality": "canonical equal_programs",
            "events": "GraphBreak ScheduledCall in_schedule",
            "failures": "UnexpectedOps shown_by",
            "model": (
                "Atom Detail Device Effect EffectKind Graph GraphKind InputRef Node "
                "Ref Result Source SubgraphRef Symbol TensorMeta"
            ),
            "program": "Program",
            "text": "EAGER_KINDS Header format_document format_sections parse_document parse_text",
        },
    )
