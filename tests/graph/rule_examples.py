"""An example of each rule of the difference: what it joins, or what follows, in two lines of code.

`docs/reference/rules.md` shows them, and `test_graph_diff_rules.py` runs them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed
from graph.build import difference, graph
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint  # noqa: F401 (an example calls it)

from pytest_torchgraph import Capture, Graph, GraphDiff, capture, diff
from pytest_torchgraph.graph import diff_graphs, parse_text

QUANTIZED = torch.ops.quantized_decomposed
INT8 = (0, -128, 127, torch.int8)


def quantize(x: Tensor, scale: float, *limits: Any) -> Tensor:
    result: Tensor = QUANTIZED.quantize_per_tensor.default(x, scale, *(limits or INT8))
    return result


def dequantize(x: Tensor, scale: float, *limits: Any) -> Tensor:
    result: Tensor = QUANTIZED.dequantize_per_tensor.default(x, scale, *(limits or INT8))
    return result


def rounded(x: Tensor, scale: float, zero: int, low: int = -128) -> Tensor:
    limits = (zero, low, 127, torch.int8)
    return dequantize(quantize(x, scale, *limits), scale, *limits)


class Written(nn.Module):
    """A module whose forward is one line of an example."""

    def __init__(self, line: str, modules: str) -> None:
        super().__init__()
        for name, module in eval(f"dict({modules})", globals()).items():
            self.add_module(name, module)
        # The line is in a file, so that its ops have it as their source.
        with NamedTemporaryFile("w", suffix=".py", delete=False) as file:
            file.write(f"def forward(self, x, y=None):\n    return {line}\n")
        names = {**globals(), **dict(self.named_children())}
        exec(compile(Path(file.name).read_text(), file.name, "exec"), names)
        self.forward = names["forward"].__get__(self)


@dataclass(frozen=True)
class Example:
    """What a rule is about.

    Attributes:
        before, after: an expression of `x`, `y` and the modules.
        modules: the modules, as arguments of `dict`.
        changed: those of the second side; "" for the same ones.
        trains: True for a capture with a backward.
        via: the mechanism.
        stored: True to compare what files of both have, which is without lines of code.
    """

    before: str
    after: str
    modules: str = ""
    changed: str = ""
    trains: bool = False
    via: str = "dispatch"
    stored: bool = False

    def difference(self) -> GraphDiff:
        """Capture both sides, and return their difference."""
        if self.via == "runs":
            return diff_graphs(*map(_ran, (self.before, self.after)))
        if self.via == "text":
            return difference(graph(self.before, inputs=""), graph(self.after, inputs=""))
        sides = self.sides()
        if self.stored:
            return diff_graphs(*(parse_text(side.to_text()).graphs for side in sides))
        return diff(*sides)

    def sides(self) -> tuple[Capture, Capture]:
        """Capture both sides."""
        old = self._side(self.before, self.modules)
        return old, self._side(self.after, self.changed or self.modules)

    def _side(self, line: str, modules: str) -> Capture:
        values = [
            torch.linspace(0.1, 1, 36).view(6, 6).clone().requires_grad_(self.trains) for _ in "xy"
        ]
        return capture(Written(line, modules), *values, via=self.via)


def _ran(lines: str) -> list[Graph]:
    """Return a graph for each line, `forward_0 2 times`."""
    graphs = []
    for line in lines.splitlines():
        name, times, _ = line.split()
        of_name = graph("return [%x]")
        graphs.append(replace(of_name, name=name, runs=int(times), counted=True))
    return graphs


def body(x: Tensor) -> tuple[Tensor, Tensor]:
    h = x.sin()
    return h.cos(), x


def longer(x: Tensor) -> tuple[Tensor, Tensor]:
    h = x.sin()
    return h.exp().cos(), h


def broken(x: Tensor) -> Tensor:
    if x.sum() > 100:
        return -x
    return x


def flat(x: Tensor) -> Tensor:
    return x.t().reshape(-1)


def layers(count: int) -> nn.Module:
    blocks = (nn.Sequential(nn.Linear(6, 6), nn.ReLU()) for _ in range(count))
    return nn.Sequential(*blocks)


class RMSNorm(nn.Module):
    """A norm of several ops, two of which read the input."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class Folded(nn.Module):
    """A convolution of a quantized model, whose batch norm is folded into its bias or not."""

    def __init__(self, *, is_folded: bool, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 3, bias=is_folded)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        weight = dequantize(quantize(self.conv.weight, 0.125), 0.125)
        return F.conv2d(x[None, None], weight, self.conv.bias, self.stride, 1)


EXAMPLES = {
    "same operand slot": Example("x.relu() * 2", "x.sin().cos() * 2"),
    "operand added or removed": Example("x - y", "y.abs() - x.abs()"),
    "exchanged values": Example("x.sin().exp() * y.cos().abs()", "y.cos().exp() * x.sin().abs()"),
    "reads the result": Example("x.sin() * y", "x.sin().abs().sqrt() * y"),
    "same quantizer": Example(
        "dequantize(quantize(x, 0.1), 0.1)",
        "dequantize(quantize(x, 0.1, 0, 0, 127, torch.int8), 0.1, 0, 0, 127, torch.int8)",
    ),
    "copy for a reshape": Example("flat(x[:2] @ y)", "flat((y.t() @ x[:2].t()).t())", via="aot"),
    "size of an operand": Example("x.repeat(2, 1).sin().cos()", "x.repeat(3, 1).sin().cos()"),
    "summed size": Example(
        "down(up(x))",
        "down(up(x))",
        "up=nn.Linear(6, 6), down=nn.Linear(6, 6)",
        "up=nn.Linear(6, 8), down=nn.Linear(8, 6)",
    ),
    "same call": Example(
        "(x.view(2, 3, 6) @ y.view(2, 6, 3)).sin()",
        "torch.einsum('bij,bjk->bik', x.view(2, 3, 6), y.view(2, 6, 3)).sin()",
        via="aot",
    ),
    "side effect": Example("x * F.silu(y.sin(), inplace=True)", "x * y.sin().tanh_()", trains=True),
    "same moved module": Example("rms(x).sin() + y", "rms(x.sin() + y)", "rms=RMSNorm()"),
    "input order": Example(
        "%x = input\n%y = input\n%z = input\nreturn [%x, %y, %z]",
        "%z = input\n%y = input\n%x = input\nreturn [%x, %y, %z]",
        via="text",
    ),
    "same added or removed module": Example(
        "layers(x)", "layers(x)", "layers=layers(2)", "layers=layers(3)"
    ),
    "same module of torch": Example(
        "norm(x)",
        "norm(x)",
        "norm=nn.BatchNorm1d(6)",
        "norm=nn.LayerNorm(6)",
        trains=True,
    ),
    "result of a body": Example(
        "sum(checkpoint(body, x, use_reentrant=False))",
        "sum(checkpoint(longer, x, use_reentrant=False))",
        via="dynamo",
    ),
    "same run counts": Example(
        "forward_0 2 times\nforward_1 2 times", "forward_0 3 times\nforward_1 3 times", via="runs"
    ),
    "moved op between": Example("norm(x).sin() + y", "norm(x.sin() + y)", "norm=nn.LayerNorm(6)"),
    "renamed module": Example(
        '%x = input\n%cos = torch.cos(%x)\n%relu = torch.nn.ReLU["cos_quant"](%cos)\nreturn %relu',
        "%x = input\n%cos = torch.cos(%x)\n%neg = torch.neg(%cos)\n"
        '%relu = torch.nn.ReLU["neg_quant"](%neg)\nreturn %relu',
        via="text",
    ),
    "calibrated constant": Example(
        "dequantize(quantize(x, 0.1), 0.1)", "dequantize(quantize(-x, 0.2), 0.2)"
    ),
    "unfolded batch norm": Example(
        "conv(x)",
        "bn(conv(x).clone())",
        "conv=Folded(is_folded=True)",
        "conv=Folded(is_folded=False), bn=nn.BatchNorm2d(1)",
        trains=True,
    ),
    "gradient of a value": Example("x.relu() * y", "x.tanh() * y", trains=True),
    "gradient of the line": Example("up(x)", "up(x) * 2", "up=nn.Linear(6, 6)", trains=True),
    "gradient of the op": Example(
        "F.leaky_relu(x, 0.1) + F.elu(x)", "F.leaky_relu(x, 0.2) + F.elu(x, 0.5)", trains=True
    ),
    "gradient in the module": Example(
        *("act(x)", "act(x)", "act=nn.GELU()", "act=nn.Hardswish()"), trains=True, stored=True
    ),
    "gradient of an operand": Example("x.sin() * y", "x.sin() / y", trains=True, stored=True),
    "connected gradient": Example(
        *("norm(x).sin() + y", "norm(x.sin() + y)", "norm=nn.LayerNorm(6)"),
        trains=True,
        stored=True,
    ),
    "nearest module": Example(
        *("up(x)", "up(x) * 2", "up=nn.Linear(6, 6)"), trains=True, stored=True
    ),
    "gradient of a common operand": Example("x.sin() + x.cosh()", "x.erf() + x.log()", trains=True),
    "graph break": Example("x.sin() * y", "broken(x.sin()) * y", trains=True, via="aot"),
}
