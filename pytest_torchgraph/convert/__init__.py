"""Convert torch.fx graphs (live or printed) to `Graph` and back.

- `placeholders`: roles, names and order of inputs.
- `from_fx`: the conversion, using `node_meta`, `source_lines`, `normalize` and `effects`.
- `canonical_names`: names that are the same in every process.
- `compiled_autograd` and `printed/`: build an fx graph from another form, then convert it.
- `rng_states`: ops that a compiled backward recomputes with the forward's random state.
- `refused_nodes`: nodes that torch's caches reject.
- `to_fx`: `Graph` -> runnable module. `graph_modules`: copies of live modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doors import front_door

if TYPE_CHECKING:
    from .canonical_names import CanonicalNames as CanonicalNames
    from .from_fx import Naming as Naming
    from .from_fx import convert as convert
    from .printed import Printed as Printed
    from .printed import PrintedGraphError as PrintedGraphError
    from .printed import aot_names as aot_names
    from .printed import convert_printed as convert_printed
    from .printed import describe_like as describe_like
    from .printed import dynamo_names as dynamo_names
    from .printed import read_printed as read_printed
    from .source_lines import is_own_file as is_own_file
    from .source_lines import is_torch_file as is_torch_file
    from .source_lines import is_user_file as is_user_file
    from .source_lines import relative as relative
else:
    __getattr__ = front_door(
        __name__,
        {
            "canonical_names": "CanonicalNames",
            "from_fx": "Naming convert",
            "printed": (
                "Printed PrintedGraphError aot_names convert_printed describe_like "
                "dynamo_names read_printed"
            ),
            "source_lines": "is_own_file is_torch_file is_user_file relative",
        },
    )
