"""`graph_capture` without pytest: `capture()`, and the mechanisms behind `via`."""

from __future__ import annotations

from .aot import Aot
from .api import GraphCapture, capture
from .compiled_autograd import CompiledAutograd
from .dispatch import Dispatch
from .dynamo import Dynamo
from .exported import Export
from .given import diff, from_fx, load
from .inductor import Inductor
from .kernels import Kernel
from .mechanism import Mechanism
from .result import Capture
from .symbolic import Fx

__all__ = [
    "Aot",
    "Capture",
    "CompiledAutograd",
    "Dispatch",
    "Dynamo",
    "Export",
    "Fx",
    "GraphCapture",
    "Inductor",
    "Kernel",
    "Mechanism",
    "capture",
    "diff",
    "from_fx",
    "load",
]
