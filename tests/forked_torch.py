"""Additional modules that a fork for a project with torch has imported."""

from __future__ import annotations

import torch._dynamo
import torch._functorch.aot_autograd

from pytest_torchgraph import capture, watch

__all__ = ["capture", "torch", "watch"]
