"""What a fork for a project with torch finds imported too."""

from __future__ import annotations

import torch._dynamo
import torch._functorch.aot_autograd

from pytest_torchgraph import capture, watch

__all__ = ["capture", "torch", "watch"]
