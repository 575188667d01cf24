"""Live graphs and their printed texts from one compilation, side by side.

Every text in the trace is printed by `GraphModule.print_readable`. The live graph is converted
there, at the time of printing, and is later identified by its text.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
import torch
import torch.fx.graph_module
from convert.printed.subjects import Subject

from pytest_torchgraph import Graph, torch_private
from pytest_torchgraph.convert import Printed, convert, describe_like, read_printed
from pytest_torchgraph.graph import GraphKind
from pytest_torchgraph.ops import Level

LEVELS: dict[str, tuple[Level, GraphKind]] = {
    "dynamo_output_graph": ("dynamo", "forward"),
    "aot_joint_graph": ("aot", "joint"),
    "aot_forward_graph": ("aot", "forward"),
    "aot_backward_graph": ("aot", "backward"),
    "aot_inference_graph": ("aot", "inference"),
    "compiled_autograd_graph": ("compiled_autograd", "backward"),
    "compiled_autograd_graph_pre_reordering": ("compiled_autograd", "backward"),
    "before_post_grad_graph": ("post_grad", "forward"),
    "inductor_post_grad_graph": ("post_grad", "forward"),
}


@dataclass
class Pair:
    """One graph in both forms."""

    artifact: str
    text: str
    live: Graph
    kind: GraphKind
    level: Level


@dataclass
class Seen:
    """The graphs and texts that one compilation printed."""

    pairs: list[Pair] = field(default_factory=list)
    unknown: list[tuple[str, str]] = field(default_factory=list)

    def of(self, artifact: str) -> list[Pair]:
        return [pair for pair in self.pairs if pair.artifact == artifact]


def compiled(subject: Subject, backend: Any, *, autograd: bool = False) -> Seen:
    """Compile and run a subject, with its backward if it has one.

    Args:
        backend: backend of torch.compile; `post_grad` is inductor without its code generation.
        autograd: True if compiled autograd runs the backward.
    """
    with watching() as seen, without_caches():
        run(subject, backend, autograd=autograd)
    assert seen.pairs, "nothing was printed"
    assert not seen.unknown, f"not printed by print_readable: {[name for name, _ in seen.unknown]}"
    return seen


class _Stop(Exception):
    pass


def post_grad(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    """Run inductor up to its printed post-grad graphs, then run these graphs unchanged.

    Generating and compiling C++ takes nine tenths of the time and prints no graph.
    """
    from torch._inductor import compile_fx

    def inner(gm: torch.fx.GraphModule, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        before = torch.fx.GraphModule(gm, copied(gm.graph))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compile_fx, "GraphLowering", stop)
            with pytest.raises(Exception, match="post-grad graph printed"):
                compile_fx.compile_fx_inner(gm, inputs, *args, **kwargs)
        return torch_private.boxed(before.forward)

    def stop(*args: Any, **kwargs: Any) -> Any:
        raise _Stop("post-grad graph printed")

    return compile_fx.compile_fx(gm, inputs, inner_compile=inner)


def copied(graph: torch.fx.Graph) -> torch.fx.Graph:
    copy = torch.fx.Graph()
    nodes: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in graph.nodes:
        nodes[node] = copy.node_copy(node, nodes.__getitem__)
    return copy


def run(subject: Subject, backend: Any, *, autograd: bool = False) -> None:
    engine: Callable[[], Any] = contextlib.nullcontext
    if autograd:
        enable = torch._dynamo.compiled_autograd._enable
        engine = lambda: enable(torch.compile(backend=backend))  # noqa: E731
    torch.manual_seed(0)
    with torch._dynamo.config.patch(**subject.config), engine():
        call = torch.compile(subject.target, backend=backend, **subject.options)
        output = call(*subject.args, **subject.kwargs)
        roots = [
            leaf.sum()
            for leaf in torch.utils._pytree.tree_leaves(output)
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]
        if roots:
            torch.autograd.backward(roots)


@contextlib.contextmanager
def without_caches() -> Iterator[None]:
    """Disable caches, because a warm cache prints graphs from strings, without a live graph."""
    with (
        torch._inductor.config.patch(fx_graph_cache=False, fx_graph_remote_cache=False),
        torch._functorch.config.patch(enable_autograd_cache=False),
    ):
        yield


@contextlib.contextmanager
def watching() -> Iterator[Seen]:
    """Collect the texts of the trace, each with the live graph that it was printed from."""
    seen = Seen()
    live: dict[str, Graph] = {}
    original = torch.fx.graph_module._print_readable

    def printing(module: Any, *args: Any, **kwargs: Any) -> str:
        text = original(module, *args, **kwargs)
        live.setdefault(text, convert(module, level="aot").graph)
        return text

    def emit(metadata: dict[str, Any], payload: str) -> None:
        artifact = metadata.get("artifact")
        names = [artifact["name"]] if isinstance(artifact, dict) else list(metadata)
        for name in names:
            if name in LEVELS:
                level, kind = LEVELS[name]
                if payload in live:
                    graph = replace(live[payload], level=level, kind=kind)
                    seen.pairs.append(Pair(name, payload, graph, kind, level))
                else:
                    seen.unknown.append((name, payload))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.fx.graph_module, "_print_readable", printing)
        torch_private.reset_dynamo()
        try:
            with torch_private.ignore_torch_warnings(), torch_private.structured_trace(emit):
                yield seen
        finally:
            torch_private.reset_dynamo()


def read_all(seen: Seen) -> list[tuple[Pair, Graph]]:
    """Return each pair with the graph read from its text."""
    pairs_read: list[tuple[Pair, Graph]] = []
    stages: list[Printed] = []
    for pair in seen.pairs:
        printed = read_printed(pair.text)
        if pair.level == "aot":
            stages.append(printed)
        elif pair.level == "post_grad":
            for stage in stages:
                if names(stage) == names(printed):
                    describe_like(printed, stage)
        graph = convert(printed, level=pair.level, kind=pair.kind).graph
        pairs_read.append((pair, graph))
    return pairs_read


def names(printed: Printed) -> list[str]:
    return [cast(str, node.name) for node in printed.placeholders]
