"""`graph_capture` without pytest: `capture()`, and the mechanisms behind `via`."""

from __future__ import annotations

from .aot import Aot
from .api import GraphCapture, capture, from_fx
from .dispatch import Dispatch
from .mechanism import Mechanism
from .result import Capture

__all__ = ["Aot", "Capture", "Dispatch", "GraphCapture", "Mechanism", "capture", "from_fx"]
