"""Convert graphs printed by torch's structured trace to the same `Graph` as live graphs.

- `syntax`: text -> Python syntax tree, with comments and sources.
- `statements`: syntax tree -> torch.fx nodes; `calls`, `callables`, `values` read expressions.
- `reading`: the whole module and its inputs, then the same conversion as for live graphs.
"""

from __future__ import annotations

from .reading import Printed as Printed
from .reading import aot_names as aot_names
from .reading import convert_printed as convert_printed
from .reading import describe_by_joint as describe_by_joint
from .reading import describe_like as describe_like
from .reading import dynamo_names as dynamo_names
from .reading import is_size as is_size
from .reading import read_printed as read_printed
from .syntax import PrintedGraphError as PrintedGraphError
from .values import PrintedNames as PrintedNames
