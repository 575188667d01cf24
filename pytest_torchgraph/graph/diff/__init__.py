"""The difference of two programs, as findings.

`diff_graphs` in `compare` is the place to start reading. It calls, in this order:

1. `comparable_steps`: makes one step of each side, if a graph break divides one of them.
2. `find_changes`: pairs the graphs (`origins`), and for each pair, matches the nodes (`match`),
   finds the nodes that differ (`differing`) and groups them by edit (`group`). The result is one
   finding for each place. Changes of the backward are attached to edits of the forward
   (`consequences`).
3. `attach_quantized`: attaches calibrated constants to edits.
4. `merge_equal_edits` (`places`): merges the places of one edit, by `keys`.
5. `identify_findings`: computes tokens by which other comparisons recognise the edit.
6. `merge_same_lines`, `merge_torch_modules` (`places`), `name_checkpoints` (`costs`): merge edits
   that the tokens, the module or the recomputed values show to be one.
7. `attach_costs`, and `with_cuts` for graph breaks that only one step has.

The modules:

- `compare`: compares two lists of graphs (`diff_graphs`) or two programs (`diff_programs`).
  `comparable_steps`: makes them steps, if something divides them. `of_files`: compares two files,
  and names what they do not compare.
- `align`: aligns equal items of two sequences. `union_find`: joins items into sets.
- `match`: matches the nodes of two graphs; `correspondence` holds and improves the matching.
  `apart`: sets modules of only one graph apart and finds exchanged ops.
- `origins`: pairs corresponding graphs, and keeps all matchings of a difference. `instances`:
  aligns the modules of lists that lost or gained a module.
- `group`: groups the differing nodes by edit. `differing` finds these nodes, and `constants` says
  which of their constants follow from a changed size.
- `moves`: finds consequences of moves. `consequences`: finds consequences in the backward.
- `findings`: `GraphDiff`, `Finding` and `Change` as values; `words`: their text; `forms`: a digest
  of all that a finding changed. `rules`: the reasons why changes are one edit or follow from one.
  `Finding.reasons` names them, and `Origins.because` and `NodeChanges.join` record them.
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
