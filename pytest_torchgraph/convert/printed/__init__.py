"""Convert graphs printed by torch's structured trace to the same `Graph` as live graphs.

- `syntax`: text -> Python syntax tree, with comments and sources.
- `statements`: syntax tree -> torch.fx nodes; `expressions` and `callables` read the expressions.
- `reading`: the whole module and its inputs. `from_fx.convert` converts it like a live graph.
"""

from __future__ import annotations

from .callables import class_named, named, qualified
from .reading import (
    Bodies,
    Printed,
    aot_names,
    describe_by_joint,
    describe_like,
    dynamo_names,
    is_size,
    read_printed,
)
from .syntax import PrintedGraphError
