"""The kernels that inductor generated, read from the code that it writes.

Counted from that code because torch's own counter counts other things: a layer norm on CPU gives 8
for one kernel.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .. import torch_private

_NUMBER = re.compile(r"_\d+\Z")


@dataclass(frozen=True)
class Kernel:
    """One generated kernel.

    Attributes:
        name: as in the generated code, such as `cpp_fused_add_relu_0`.
        graph: name of the graph that it was generated for.
        device: type of the device that it runs on.
        ops: the aten ops that were fused into it, by packet.
        launches: how often one run of the graph calls it.
        source: its C++ or Triton source.
        language: what it is written in: `cpp`, `triton`, or another name that inductor uses.
    """

    name: str
    graph: str
    device: str
    ops: tuple[str, ...]
    launches: int
    source: str
    language: str = ""

    def __repr__(self) -> str:
        return f"<Kernel {self.name} on {self.device}: {', '.join(self.ops) or 'no ops'}>"


def kernels_of(code: str, graph: str) -> list[Kernel]:
    """The kernels that inductor's code for a graph defines, in its order.

    Args:
        code: the Python module that inductor wrote.
        graph: name of the graph.
    """
    tree = ast.parse(code)
    packets = _packets()
    kernels = []
    for name, call in _definitions(tree):
        texts = [
            argument.value
            for argument in call.args
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        ]
        source = max(texts, key=len, default="")
        launches = sum(_calls(node, name) for node in ast.walk(tree))
        kernels.append(
            Kernel(
                name,
                graph,
                _device(call),
                fused_ops(name, packets),
                launches,
                source,
                _language(call),
            )
        )
    return kernels


def _definitions(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Name and call of each `name = async_compile...(...)`."""
    for statement in tree.body:
        if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call)):
            continue
        function = statement.value.func
        target = statement.targets[0]
        if (
            isinstance(function, ast.Attribute)
            and isinstance(function.value, ast.Name)
            and function.value.id == "async_compile"
            and isinstance(target, ast.Name)
        ):
            yield target.id, statement.value


def _device(call: ast.Call) -> str:
    for keyword in call.keywords:
        if keyword.arg == "device_str" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    return "cpu" if _language(call) == "cpp" else "cuda"


def _language(call: ast.Call) -> str:
    """The language by the method that compiles it: `cpp` for `async_compile.cpp_pybinding(...)`."""
    assert isinstance(call.func, ast.Attribute)
    return call.func.attr.partition("_")[0]


def _calls(node: ast.AST, name: str) -> bool:
    """Whether a node is `name(...)` or `name.run(...)`."""
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    if isinstance(function, ast.Attribute) and function.attr == "run":
        function = function.value
    return isinstance(function, ast.Name) and function.id == name


def fused_ops(name: str, known: frozenset[str]) -> tuple[str, ...]:
    """The aten packets in the name of a kernel, such as `cpp_fused_add_native_layer_norm_0`.

    Args:
        name: the name.
        known: the names of all packets, which may have underscores themselves.
    """
    _, _, words = _NUMBER.sub("", name).partition("fused_")
    parts = words.split("_") if words else []
    ops: list[str] = []
    start = 0
    while start < len(parts):
        for stop in range(len(parts), start, -1):
            word = "_".join(parts[start:stop])
            if word in known:
                ops.append(f"aten.{word}")
                start = stop
                break
        else:
            start += 1
    return tuple(dict.fromkeys(ops))


def _packets() -> frozenset[str]:
    """The names of all aten packets."""
    return frozenset(
        name.partition("::")[2].partition(".")[0]
        for name in torch_private.registered_ops()
        if name.startswith("aten::")
    )
