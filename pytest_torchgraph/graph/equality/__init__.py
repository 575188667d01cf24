"""Equality of graphs: two graphs are equal if they have the same dataflow.

- `canonical_form`: `Graph` -> `Graph`; ops that compute the same are written the same.
- `numbered_graph`: `Graph` -> `NumberedGraph`; nodes are numbers, and all order is operands.
- `equal`: two `NumberedGraph`s -> the pairing of their nodes, or `None` if they differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .canonical_form import ALIAS_OP as ALIAS_OP
    from .canonical_form import canonical as canonical
    from .canonical_form import canonical_graph as canonical_graph
    from .canonical_form import canonical_op as canonical_op
    from .equal import EquivalenceClasses as EquivalenceClasses
    from .equal import isomorphic as isomorphic
    from .equal import pairing as pairing
    from .equal import renamed_values as renamed_values
    from .equal import strict as strict
    from .numbered_graph import NumberedGraph as NumberedGraph
    from .numbered_graph import as_captured as as_captured
    from .numbered_graph import drop_unshared_facts as drop_unshared_facts
    from .numbered_graph import equal_programs as equal_programs
    from .numbered_graph import reachable as reachable
    from .numbered_graph import runs_differ as runs_differ
else:
    __getattr__ = front_door(
        __name__,
        {
            "canonical_form": "ALIAS_OP canonical canonical_graph canonical_op",
            "equal": "EquivalenceClasses isomorphic pairing renamed_values strict",
            "numbered_graph": (
                "NumberedGraph as_captured drop_unshared_facts equal_programs reachable runs_differ"
            ),
        },
    )
