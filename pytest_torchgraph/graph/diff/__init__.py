"""The difference of two programs, as findings.

- `compare`: compares two lists of graphs (`diff_graphs`) or two programs (`diff_programs`).
  `comparable_steps`: makes them steps, if something divides them. `of_files`: compares two files,
  and names what they do not compare.
- `align`: aligns equal items of two sequences. `union_find`: joins items into sets.
- `match`: matches the nodes of two graphs; `correspondence` holds and improves the matching.
  `apart`: sets modules of only one graph apart and finds exchanged ops.
- `origins`: pairs corresponding graphs, and keeps all matchings of a difference.
- `group`: groups the differing nodes by edit. `differing` finds these nodes, and `constants` says
  which of their constants follow from a changed size.
- `moves`: finds consequences of moves. `consequences`: finds consequences in the backward.
- `findings`: `GraphDiff`, `Finding` and `Change` as values; `words`: their text.
- `quantized`: finds calibrated constants that follow from an edit, and batch norms that a quantizer
  no longer folds, or folds again.
- `places`: merges the findings of one edit, by `keys`, or by the line of code. `paths`: paths of
  repeated modules.
- `cuts`: finds graph breaks that only one step has, and what follows from them.
- `costs`: computes the cost of each finding, with FLOPs from `flop_costs`.
- `joining`: merges the findings of one edit over many comparisons, by the tokens that `identify`
  computes, and formats the merged findings (`finding_heading`, `finding_lines`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .align import align_items, longest_increasing, unmatched
    from .compare import diff_graphs, diff_programs, find_changes, same_ranks
    from .cuts import BREAK, break_finding, break_keys, pairs_with_breaks
    from .findings import (
        SIDES,
        SIGNS,
        Change,
        ChangeKind,
        FilesDiff,
        Finding,
        GraphDiff,
        GraphPair,
        Identity,
        Place,
    )
    from .joining import (
        MAX_CAUSES,
        finding_heading,
        finding_lines,
        form_lines,
        group_same_edits,
        list_some,
        merge_edits,
        merge_findings,
        merge_ranks,
        problem_finding,
        shorten,
        source_text,
        whole,
    )
    from .of_files import LAYOUTS_DIFFER, NO_LONGER, diff_files, digits_line, layout_lines, losses
    from .origins import Matched, Pair
    from .paths import abridged, holds, instances_of, natural_key
    from .rules import RULES
    from .union_find import UnionFind
    from .words import cost_text, heading
else:
    __getattr__ = front_door(
        __name__,
        {
            "align": "align_items longest_increasing unmatched",
            "cuts": "BREAK break_finding break_keys pairs_with_breaks",
            "rules": "RULES",
            "findings": (
                "Change ChangeKind FilesDiff Finding GraphDiff GraphPair Identity Place SIDES SIGNS"
            ),
            "joining": (
                "MAX_CAUSES finding_heading finding_lines form_lines group_same_edits list_some "
                "merge_edits merge_findings merge_ranks problem_finding shorten source_text whole"
            ),
            "origins": "Matched Pair",
            "paths": "abridged holds instances_of natural_key",
            "compare": "diff_graphs diff_programs find_changes same_ranks",
            "of_files": "LAYOUTS_DIFFER NO_LONGER diff_files digits_line layout_lines losses",
            "union_find": "UnionFind",
            "words": "cost_text heading",
        },
    )
