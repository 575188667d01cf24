"""Equality of graphs: two graphs are equal if they have the same dataflow.

`isomorphic` in `equal` is what `Graph.__eq__` calls. It drops the facts that only one graph has
(`shared_facts`), brings both graphs into canonical form (`canonical_form`), numbers their nodes
(`numbered_graph`, with `mode_regions`), and pairs the numbers (`EquivalenceClasses.pairing`). The
diff makes the same steps one by one. `equal_programs` in `steps` compares whole captures.

- `canonical_form`: `Graph` -> `Graph`; ops that compute the same are written the same.
- `numbered_graph`: `Graph` -> `NumberedGraph`; nodes are numbers, and all order is operands.
- `shared_facts`: two graphs -> the same without the facts that only one of them has.
- `steps`: two captures; their graphs, the links between them, and their cuts.
- `equal`: two `NumberedGraph`s -> the pairing of their nodes, or `None` if they differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .canonical_form import ALIAS_OP, aliases_of, canonical, canonical_graph, canonical_op
    from .equal import EquivalenceClasses, isomorphic, pairing, renamed_values, strict
    from .numbered_graph import NumberedGraph, reachable
    from .shared_facts import as_captured, drop_unshared_facts, inputs_of_gradients
    from .steps import equal_programs, runs_differ, with_cuts
else:
    __getattr__ = front_door(
        __name__,
        {
            "canonical_form": "ALIAS_OP aliases_of canonical canonical_graph canonical_op",
            "equal": "EquivalenceClasses isomorphic pairing renamed_values strict",
            "numbered_graph": "NumberedGraph reachable",
            "shared_facts": "as_captured drop_unshared_facts inputs_of_gradients",
            "steps": "equal_programs runs_differ with_cuts",
        },
    )
