"""Op names: qualified names, registered ops, and patterns. Tables of ops, by name.

- `matching`: match qualified names with patterns, count ops, and the levels of the compiler.
- `qualified`: op object -> qualified name, e.g. `aten.mm.default`.
- `registry`: registered ops. `views`: ops that return views or launch nothing.
- `impossible`: raise an error for a pattern that cannot match at a level.
- `collectives`, `dtypes`, `flop_formulas`: ops that communicate, names of dtypes, torch's formulas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doors import front_door

if TYPE_CHECKING:
    from .collectives import collective_kinds
    from .dtypes import ABBREVIATIONS, item_size
    from .flop_formulas import formula_of
    from .matching import LEVELS, Level, base_name, matches
    from .views import is_view, shared_argument
else:
    __getattr__ = front_door(
        __name__,
        {
            "collectives": "collective_kinds",
            "dtypes": "ABBREVIATIONS item_size",
            "flop_formulas": "formula_of",
            "matching": "LEVELS Level base_name matches",
            "views": "is_view shared_argument",
        },
    )
