"""Convert torch.fx graphs (live or printed) to `Graph` and back.

`from_fx.convert` is the entry: its `GraphConverter` converts the inputs, then node by node, with
the other modules. Every other form becomes an fx graph first.

- `placeholders`: roles, names and order of inputs.
- `from_fx`: the conversion, using `node_meta`, `source_lines`, `normalize` and `effects`.
- `canonical_names`: names that are the same in every process. `process_groups`: those of groups.
- `compiled_autograd`, `exported_program` (a saved file) and `printed/`: build an fx graph from
  another form, then convert it.
- `rng_states`: ops that a compiled backward recomputes with the forward's random state.
- `refused_nodes`: nodes that torch's caches reject.
- `to_fx`: captured graph -> runnable module. `from_graph`: any `Graph`, such as one read from text,
  -> runnable module. `graph_modules`: copies of live modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doors import front_door

if TYPE_CHECKING:
    from .canonical_names import CanonicalNames
    from .from_fx import Naming, convert
    from .printed import (
        Printed,
        PrintedGraphError,
        aot_names,
        describe_like,
        dynamo_names,
        read_printed,
    )
    from .source_lines import is_own_file, is_torch_file, is_user_file, relative
else:
    __getattr__ = front_door(
        __name__,
        {
            "canonical_names": "CanonicalNames",
            "from_fx": "Naming convert",
            "printed": (
                "Printed PrintedGraphError aot_names describe_like dynamo_names read_printed"
            ),
            "source_lines": "is_own_file is_torch_file is_user_file relative",
        },
    )
