"""Small handwritten printed texts, one form each."""

from __future__ import annotations

import textwrap

from pytest_torchgraph import Graph
from pytest_torchgraph.convert import CanonicalNames, convert, read_printed
from pytest_torchgraph.graph import GraphKind
from pytest_torchgraph.ops import Level

X = 'x: "f32[2, 3][3, 1]cpu"'

BODY = """
class {name}(torch.nn.Module):
    def forward(self, y: "f32[2, 3]"):
        sin: "f32[2, 3]" = torch.ops.aten.sin.default(y);  y = None
        return (sin,)
"""

JOINT = """\
class inner_f(torch.nn.Module):
    def forward(
        self,
        primals,
        tangents,
    ):
        primals_1: "f32[4][1]cpu"  # PlainAOTInput(idx=0)
        tangents_1: "f32[4][1]cpu"  # TangentAOTInput(output=PlainAOTOutput(idx=0))
        primals_1, primals_2, tangents_1, = fx_pytree.tree_flatten_spec(\
[primals, tangents], self._in_spec)
        # File: /nowhere/net.py:3 in forward, code: x
        mul: "f32[4][1]cpu" = torch.ops.aten.mul.Tensor(primals_1, tangents_1);  primals_1 = None
        return pytree.tree_unflatten([
            mul,  # PlainAOTOutput(idx=0)
            None,  # None
        ], self._out_spec)
"""


def module(body: str, inputs: str = X, inner: str = "", name: str = "GraphModule") -> str:
    """Return the text of a module with this forward."""
    lines = textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8)
    text = f"class {name}(torch.nn.Module):\n    def forward(self, {inputs}):\n{lines}\n"
    return text + (
        "\n" + textwrap.indent(textwrap.dedent(inner).strip("\n"), " " * 4) + "\n" if inner else ""
    )


def parse_printed(
    text: str, *, level: Level, kind: GraphKind, canon: CanonicalNames | None = None
) -> Graph:
    """Convert a printed text without the graph's context: no names of its inputs are known."""
    return convert(read_printed(text), level=level, kind=kind, canon=canon).graph


def parsed(body: str, inputs: str = X, inner: str = "", level: Level = "dynamo") -> Graph:
    return parse_printed(module(body, inputs, inner), level=level, kind="forward")


def lines(graph: Graph) -> list[str]:
    """Return the lines of the graph's text after its inputs."""
    return [line.strip() for line in graph.to_text().splitlines() if "= input" not in line][3:-1]
