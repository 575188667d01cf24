"""Graphs as pure data: model, text form, equality, difference, assertions. Never imports torch.

- `model`: `Graph`, `Node` and their parts. `module_paths`: module paths in node names. `digits`:
  rounding of float constants.
- `program`: the graphs of a run or a file, as one value. `events`: eager ops and graph breaks.
- `text/`: writer and parser of the `.tgraph` form.
- `equality/`: canonical form, numbered graph, isomorphism: the implementation of `==`.
- `diff/`: differences between two captures, as findings.
- `blocks`: differences between the blocks of one capture.
- `cost/`: FLOPs, saved bytes, peak memory, and recomputation in the backward.
- `census`: each op with its number of runs.
- `select`, `op_checks`, `pattern`, `checks`: queries and assertions about ops.
- `collectives`, `collective_checks`: queries and assertions about communication.
- `divergence`: the first difference between a run and eager, as a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doors import front_door

if TYPE_CHECKING:
    from .cost import by_module as by_module
    from .cost import changed_costs as changed_costs
    from .cost import cost_table as cost_table
    from .cost import flops_by_node as flops_by_node
    from .cost import format_cost_table as format_cost_table
    from .cost import need_saved as need_saved
    from .cost import peak_bytes as peak_bytes
    from .cost import saved_by_node as saved_by_node
    from .cost import with_savers as with_savers
    from .diff import MAX_CAUSES as MAX_CAUSES
    from .diff import Change as Change
    from .diff import Finding as Finding
    from .diff import GraphDiff as GraphDiff
    from .diff import GraphPair as GraphPair
    from .diff import Place as Place
    from .diff import abridged as abridged
    from .diff import diff_graphs as diff_graphs
    from .diff import find_changes as find_changes
    from .diff import finding_lines as finding_lines
    from .diff import merge_edits as merge_edits
    from .diff import problem_finding as problem_finding
    from .divergence import Divergence as Divergence
    from .divergence import headline as headline
    from .divergence import nodes_to_show as nodes_to_show
    from .equality import canonical as canonical
    from .equality import equal_programs as equal_programs
    from .events import GraphBreak as GraphBreak
    from .events import ScheduledCall as ScheduledCall
    from .events import in_schedule as in_schedule
    from .failures import UnexpectedOps as UnexpectedOps
    from .failures import shown_by as shown_by
    from .model import Atom as Atom
    from .model import Detail as Detail
    from .model import Device as Device
    from .model import Effect as Effect
    from .model import EffectKind as EffectKind
    from .model import Graph as Graph
    from .model import GraphKind as GraphKind
    from .model import InputRef as InputRef
    from .model import Node as Node
    from .model import Ref as Ref
    from .model import Result as Result
    from .model import Source as Source
    from .model import SubgraphRef as SubgraphRef
    from .model import Symbol as Symbol
    from .model import TensorMeta as TensorMeta
    from .program import Program as Program
    from .text import EAGER_KINDS as EAGER_KINDS
    from .text import Header as Header
    from .text import format_document as format_document
    from .text import format_sections as format_sections
    from .text import parse_document as parse_document
    from .text import parse_text as parse_text
else:
    __getattr__ = front_door(
        __name__,
        {
            "cost": (
                "by_module changed_costs cost_table flops_by_node format_cost_table "
                "need_saved peak_bytes saved_by_node with_savers"
            ),
            "diff": (
                "Change Finding GraphDiff GraphPair MAX_CAUSES Place abridged diff_graphs "
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
