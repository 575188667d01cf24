"""pytest-torchgraph: the graphs of a PyTorch model as a thing that a test can hold.

Every name is resolved when it is first used, so importing the package imports neither torch nor
pytest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .capturing.aot import Aot
    from .capturing.api import GraphCapture, capture
    from .capturing.compiled_autograd import CompiledAutograd
    from .capturing.dispatch import Dispatch
    from .capturing.dynamo import Dynamo
    from .capturing.exported import Export
    from .capturing.given import diff, from_fx, load
    from .capturing.inductor import Inductor
    from .capturing.kernels import Kernel
    from .capturing.result import Capture
    from .capturing.symbolic import Fx
    from .errors import CaptureError, GraphFormatError, TorchGraphError
    from .graph.diff import Change, Finding, GraphDiff
    from .graph.model import Graph, Node, Source, TensorMeta
    from .graph.ops import OpCounts
    from .syncs.model import Sync, Transfer
    from .watching.breaks import GraphBreak
    from .watching.cudagraphs import CudagraphSkip
    from .watching.recompiles import Recompile
    from .watching.watch import watch

__version__ = "0.1.0"

_WHERE = {
    "Aot": "capturing.aot",
    "Capture": "capturing.result",
    "CaptureError": "errors",
    "Change": "graph.diff",
    "CompiledAutograd": "capturing.compiled_autograd",
    "CudagraphSkip": "watching.cudagraphs",
    "Dispatch": "capturing.dispatch",
    "Dynamo": "capturing.dynamo",
    "Export": "capturing.exported",
    "Finding": "graph.diff",
    "Fx": "capturing.symbolic",
    "Graph": "graph.model",
    "GraphBreak": "watching.breaks",
    "GraphCapture": "capturing.api",
    "GraphDiff": "graph.diff",
    "GraphFormatError": "errors",
    "Inductor": "capturing.inductor",
    "Kernel": "capturing.kernels",
    "Node": "graph.model",
    "OpCounts": "graph.ops",
    "Recompile": "watching.recompiles",
    "Source": "graph.model",
    "Sync": "syncs.model",
    "TensorMeta": "graph.model",
    "TorchGraphError": "errors",
    "Transfer": "syncs.model",
    "capture": "capturing.api",
    "diff": "capturing.given",
    "from_fx": "capturing.given",
    "load": "capturing.given",
    "watch": "watching.watch",
}

__all__ = [
    "Aot",
    "Capture",
    "CaptureError",
    "Change",
    "CompiledAutograd",
    "CudagraphSkip",
    "Dispatch",
    "Dynamo",
    "Export",
    "Finding",
    "Fx",
    "Graph",
    "GraphBreak",
    "GraphCapture",
    "GraphDiff",
    "GraphFormatError",
    "Inductor",
    "Kernel",
    "Node",
    "OpCounts",
    "Recompile",
    "Source",
    "Sync",
    "TensorMeta",
    "TorchGraphError",
    "Transfer",
    "capture",
    "diff",
    "from_fx",
    "load",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
