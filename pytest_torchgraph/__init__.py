"""pytest-torchgraph: the graphs of a PyTorch model as a thing that a test can hold.

Every name is resolved when it is first used, so importing the package imports neither torch nor
pytest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .capturing.aot import Aot
    from .capturing.api import capture, diff, from_fx, load
    from .capturing.dispatch import Dispatch
    from .capturing.result import Capture
    from .errors import CaptureError, GraphFormatError, TorchGraphError
    from .graph.diff import Change, Finding, GraphDiff
    from .graph.model import Graph, Node, Source, TensorMeta
    from .graph.ops import OpCounts

__version__ = "0.1.0"

_WHERE = {
    "Aot": "capturing.aot",
    "Capture": "capturing.result",
    "CaptureError": "errors",
    "Change": "graph.diff",
    "Dispatch": "capturing.dispatch",
    "Finding": "graph.diff",
    "Graph": "graph.model",
    "GraphDiff": "graph.diff",
    "GraphFormatError": "errors",
    "Node": "graph.model",
    "OpCounts": "graph.ops",
    "Source": "graph.model",
    "TensorMeta": "graph.model",
    "TorchGraphError": "errors",
    "capture": "capturing.api",
    "diff": "capturing.api",
    "from_fx": "capturing.api",
    "load": "capturing.api",
}

__all__ = [
    "Aot",
    "Capture",
    "CaptureError",
    "Change",
    "Dispatch",
    "Finding",
    "Graph",
    "GraphDiff",
    "GraphFormatError",
    "Node",
    "OpCounts",
    "Source",
    "TensorMeta",
    "TorchGraphError",
    "capture",
    "diff",
    "from_fx",
    "load",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
