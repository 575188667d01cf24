"""Returned values, run counts and the values of constants are compared."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch_releases import skip_before

from pytest_torchgraph import Capture, Export, Inductor, capture, diff, from_fx, load, watch
from pytest_torchgraph.graph import Graph, Ref

X, Y = torch.linspace(0, 1, 4), torch.linspace(1, 2, 4)
GLOBAL, OTHER_GLOBAL = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([1.0, 2.0, 3.0, 5.0])
Pair = namedtuple("Pair", "start end")
Target = Callable[[torch.Tensor, torch.Tensor], Any]


class Cache:
    """An object of a class that is not registered with pytree."""

    def __init__(self, **held: Any):
        self.__dict__.update(held)


OUTPUTS: dict[str, tuple[Target, Target, str]] = {
    "which input": (
        lambda x, y: (x.sin(), x),
        lambda x, y: (x.sin(), y),
        "output '1' was",
    ),
    "one more": (lambda x, y: (x.sin(),), lambda x, y: (x.sin(), x), "output '1' is new"),
    "names": (
        lambda x, y: {"start": x.sin(), "end": x.cos()},
        lambda x, y: {"end": x.sin(), "start": x.cos()},
        "output 'start' was %sin, and is now %cos",
    ),
    "named tuple": (
        lambda x, y: Pair(x.sin(), x.cos()),
        lambda x, y: Pair(end=x.sin(), start=x.cos()),
        "output 'end' was %cos, and is now %sin",
    ),
    "nested": (
        lambda x, y: {"a": [x.sin(), y]},
        lambda x, y: {"a": [x.sin(), x]},
        "output 'a.1' was",
    ),
}


@pytest.mark.parametrize(
    ("via", "what"),
    [
        ("dynamo", "names"),
        ("export", "names"),
        *(("aot", what) for what in OUTPUTS),
        ("dispatch", "nested"),
    ],
)
def test_changed_output_is_one_finding(via: str, what: str) -> None:
    before, after, words = OUTPUTS[what]
    a, b = (capture(target, X, Y, via=via) for target in (before, after))
    assert a != b
    graph_diff = diff(a, b)
    assert len(graph_diff.findings) == 1
    assert words in graph_diff.heading()


@pytest.mark.parametrize(
    ("via", "before", "after"),
    [
        ("aot", 3, 3.0),
        ("dispatch", 3, 4),
        ("dispatch", 0, False),
        ("dispatch", None, 0),
        ("dispatch", "mean", "sum"),
        ("dispatch", slice(1, 2), slice(1, 3)),
        ("dispatch", range(3), range(4)),
        ("dispatch", torch.sin, torch.cos),
    ],
)
def test_changed_returned_constant_is_a_difference(via: str, before: Any, after: Any) -> None:
    a, b, again = (
        capture(lambda x, c=c: (x.sin(), c), X, via=via) for c in (before, after, before)
    )
    assert a != b
    assert len(diff(a, b).findings) == 1
    assert a == again


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (lambda x, y: x, lambda x, y: (x,), True),
        (lambda x, y: (x, y), lambda x, y: [x, y], True),
        (lambda x, y: ((x,), y), lambda x, y: (x, (y,)), True),
        (lambda x, y: {"a": {"b": x}}, lambda x, y: {"a.b": x}, True),
        (lambda x, y: {"a": (x,), "b": y}, lambda x, y: {"a": x, "b": y}, False),
        (lambda x, y: ((3, 4), x), lambda x, y: (3, (4, x)), False),
    ],
)
def test_only_the_names_in_returned_containers_are_compared(
    one: Any, other: Any, equal: bool
) -> None:
    """As `docs/limits.md` says."""
    a, b = (capture(lambda x, f=f: f(x.sin(), x.cos()), X, via="dispatch") for f in (one, other))
    assert (a == b) is equal


@pytest.mark.parametrize("via", ["aot", "dispatch"])
def test_tensor_attributes_of_a_returned_object_are_outputs(via: str) -> None:
    def run(x: torch.Tensor, y: torch.Tensor, swap: bool) -> Any:
        kept = (x.cos(), x.sin()) if swap else (x.sin(), x.cos())
        return Cache(keys=kept[0], values=[kept[1]], lock=object())

    a, b = (capture(run, X, Y, swap, via=via) for swap in (False, True))
    assert [path for path, _ in a.forward.output or ()] == ["keys", "values.0"]
    assert diff(a, b)


@pytest.mark.parametrize("via", ["aot", "dispatch"])
def test_returned_number_read_from_data_does_not_count(via: str) -> None:
    def run(x: torch.Tensor) -> Any:
        return x.sin(), x.sum().item()

    a, b = (capture(run, x, via=via) for x in (X, Y))
    assert a == b
    assert ("1", "float") in [(path, getattr(v, "name", "")) for path, v in a.forward.output or ()]


def test_returned_values_of_the_graph_need_no_lines() -> None:
    captured = capture(lambda x, y: (x.sin(), [y.cos()]), X, Y)
    assert captured.forward.output == ()
    assert "  output " not in captured.to_text()


def test_mutated_buffer_is_not_an_output() -> None:
    norm = nn.BatchNorm1d(4)
    captured = capture(norm, torch.ones(2, 4))
    assert captured.forward.output == ()
    assert len(captured.forward.outputs) > 1


def test_output_of_an_exported_program_has_its_names() -> None:
    class Net(nn.Module):
        def __init__(self, swap: bool):
            super().__init__()
            self.swap = swap

        def forward(self, x: torch.Tensor) -> Any:
            a, b = x.sin(), x.cos()
            return {"start": b, "end": a} if self.swap else {"start": a, "end": b}

    a, b = (torch.export.export(Net(swap), (X,)) for swap in (False, True))
    assert from_fx(a).output == (("start", Ref("sin")), ("end", Ref("cos")))
    assert diff(a, b)


# -- runs ------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.fc(x))


class Regional(nn.Module):
    """Regional compilation, torch's recipe: each block is compiled, and all share one graph."""

    def __init__(self, depth: int):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(depth))
        for block in self.layers:
            block.compile(backend="aot_eager")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.layers:
            x = block(x)
        return x


def watched(depth: int) -> Capture:
    torch._dynamo.reset()
    net = Regional(depth)
    with watch() as seen:
        net(torch.ones(2, 4, requires_grad=True)).sum().backward()
    return seen


def test_depth_of_regional_compilation_is_seen_by_a_watch() -> None:
    a, b = watched(2), watched(6)
    assert a != b
    assert [f.summary for f in diff(a, b).findings] == ["forward, backward ran 6 times, before: 2"]
    assert "forward @ aot × 6 {" in b.to_text()
    assert [graph.runs for graph in b.graphs] == [6, 6]


# -- constants -------------------------------------------------------------------------------------

CONSTANTS: dict[str, tuple[Target, Target]] = {
    "mask": (lambda x, y: x + torch.tensor(-1e9), lambda x, y: x + torch.tensor(1.0)),
    "index": (lambda x, y: x[torch.tensor([0, 1])], lambda x, y: x[torch.tensor([2, 3])]),
}


@pytest.mark.parametrize(
    ("what", "via"),
    [
        *(("mask", via) for via in ("aot", "dispatch", "export", Inductor(codegen=False), "fx")),
        ("index", "dispatch"),
    ],
)
def test_changed_value_of_a_small_constant_is_a_difference(via: Any, what: str) -> None:
    a, b = (capture(target, X, Y, via=via) for target in CONSTANTS[what])
    assert a != b
    assert len(diff(a, b).findings) == 1


def closure(tensor: torch.Tensor) -> Target:
    return lambda x, y: x + tensor


class Held(nn.Module):
    def __init__(self, tensor: torch.Tensor):
        super().__init__()
        self.plain = tensor
        self.register_buffer("buffer", tensor.clone())
        self.weight = nn.Parameter(tensor.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.plain + self.buffer + self.weight


@pytest.mark.parametrize("via", ["aot", "dispatch", "export", "fx", "dynamo"])
def test_values_of_data_do_not_count(via: str) -> None:
    """Globals, closures, plain attributes, buffers and parameters existed before the call."""
    pairs: list[tuple[Any, Any]] = [(Held(GLOBAL), Held(OTHER_GLOBAL))]
    if via != "export":  # export takes only modules, not closures
        pairs.append((closure(GLOBAL), closure(OTHER_GLOBAL)))
    for before, after in pairs:
        arguments = (X,) if isinstance(before, nn.Module) else (X, Y)
        assert capture(before, *arguments, via=via) == capture(after, *arguments, via=via)


@pytest.mark.parametrize(
    ("before", "after", "equal"),
    [
        ([0.123451], [0.123452], True),
        ([0.12345], [0.12346], False),
        ([2**40], [2**40 + 1], False),
        ([1.0] * 64, [2.0] * 64, False),
        ([1.0] * 65, [2.0] * 65, True),
        ([float("nan")], [float("nan")], True),
        ([float("inf")], [float("nan")], False),
    ],
)
def test_constants_count_to_five_digits_in_small_tensors_only(
    before: Any, after: Any, equal: bool
) -> None:
    a, b = (
        capture(lambda x, v=value: x.sum() + torch.tensor(v), X, via="dispatch")
        for value in (before, after)
    )
    assert (a == b) is equal
    assert bool(diff(a, b)) is not equal


def test_unknown_value_of_a_constant_equals_any_value() -> None:
    before, after = CONSTANTS["mask"]
    real = capture(before, X, Y)
    torch._dynamo.reset()
    with watch() as printed:
        torch.compile(after, backend="aot_eager")(X, Y)
    assert printed.graphs[0] == real.forward
    assert not diff(printed.graphs[0], real.forward)


def test_constant_made_from_read_data_does_not_count() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return x + torch.tensor(x.sum().item())

    assert capture(run, X, via="dispatch") == capture(run, Y, via="dispatch")


# -- graphs that the user passes in ----------------------------------------------------------------


def chain(*ops: Any) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    last = graph.placeholder("x")
    for op in ops:
        last = graph.call_function(op, (last,))
    graph.output(last)
    return torch.fx.GraphModule(nn.Module(), graph)


@pytest.mark.parametrize("op", [torch.ops.aten.detach.default, torch.ops.aten.alias.default])
def test_alias_counts_in_a_graph_from_the_user(op: Any) -> None:
    relu, neg = torch.ops.aten.relu.default, torch.ops.aten.neg.default
    assert diff(chain(relu, op, neg), chain(relu, neg))
    assert from_fx(chain(relu, op, neg)) == Graph.from_text(from_fx(chain(relu, op, neg)).to_text())


def test_pass_that_removes_the_detach_of_a_captured_graph_is_seen() -> None:
    """Autograd added it, and the pass edits the given graph (torchtitan)."""
    skip_before("2.10", "AOTAutograd removes the detach")
    captured = capture(lambda x: torch.softmax(x, -1), X.clone().requires_grad_())
    module = captured.fx(captured.forward)
    before = from_fx(module)
    for node in list(module.graph.nodes):
        if node.target is torch.ops.aten.detach.default:
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
    assert diff(before, module)
    assert before == captured.forward
    assert from_fx(module) == captured.forward


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("w", torch.ones(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.w


@pytest.fixture(scope="module")
def exported() -> torch.export.ExportedProgram:
    return torch.export.export(Weighted(), (torch.ones(4, 4),))


def test_dtype_of_a_constant_is_that_of_the_attribute(exported: Any) -> None:
    """nncf compresses a weight without updating its meta."""
    before, after = exported.module(), exported.module()
    after.w = torch.ones(4, 4, dtype=torch.int8)
    assert "w" in diff(before, after).heading()
    after.w = torch.ones(2, 4)
    assert diff(before, after)


def test_dtype_of_a_buffer_is_that_of_the_program(exported: Any) -> None:
    before = from_fx(exported)
    kept = exported.state_dict["w"]
    exported.state_dict["w"] = kept.to(torch.int8)
    try:
        assert diff(before, exported)
    finally:
        exported.state_dict["w"] = kept


def test_small_constants_count_in_a_graph_from_the_user() -> None:
    def traced(value: float) -> torch.fx.GraphModule:
        return torch.fx.symbolic_trace(lambda x: x + torch.tensor(value))

    assert diff(traced(1.0), traced(2.0))
    assert not diff(traced(1.0), traced(1.0))


# -- order -----------------------------------------------------------------------------------------


class Swapped(nn.Module):
    def __init__(self, swap: bool):
        super().__init__()
        self.swap = swap
        self.q, self.k, self.v = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.swap:
            v = self.v(x)
            k = self.k(x)
            q = self.q(x)
        else:
            q = self.q(x)
            k = self.k(x)
            v = self.v(x)
        return (q @ k.transpose(-1, -2)).softmax(-1) @ v


VIAS_IN_TRAINING = ("aot", "dispatch", "inductor", "compiled_autograd", "dynamo")


@pytest.mark.slow("further mechanisms", only=["inductor", "compiled_autograd", "via5"])
@pytest.mark.parametrize("via", [*VIAS_IN_TRAINING, Export(strict=True), Export(strict=False)])
def test_swapped_independent_statements_are_equal(via: Any) -> None:
    """The input requires grad. Its gradient is a sum in the order of the statements."""
    x = torch.ones(2, 3, 4, requires_grad=True)
    options = {"backward": False} if isinstance(via, Export) else {}
    a, b = (capture(Swapped(swap), x, via=via, **options) for swap in (False, True))
    assert a == b
    assert not diff(a, b), str(diff(a, b))
    assert [*a.graphs] == [*b.graphs]


def test_returned_input_that_came_is_a_difference_in_a_file(tmp_path: Path) -> None:
    """Such files were version 1, which has no return values, and equalled both."""
    pair, triple = (
        capture(target, X, Y)
        for target in (lambda x, y: (x.sin(), y.cos()), lambda x, y: (x.sin(), y.cos(), x))
    )
    (tmp_path / "pair.tgraph").write_text(pair.to_text())
    stored = load(tmp_path / "pair.tgraph")
    assert stored == pair
    assert stored != triple
    assert "output '2' is new: %x" in diff(stored, triple).heading()


@pytest.mark.slow("compiles for a second")
def test_older_file_of_a_model_that_returns_names_matches(tmp_path: Path) -> None:
    """Facts that the file lacks are not compared, also in the backward, which uses them."""

    class Net(Swapped):
        def forward(self, x: torch.Tensor) -> Any:
            return {"logits": super().forward(x), "depth": 1}

    captured = capture(Net(False), torch.ones(2, 3, 4))
    text = captured.to_text(fold=False)
    assert text.startswith("torchgraph 4\n")
    lines = [line for line in text.split("\n") if not line.startswith("  output ")]
    (tmp_path / "old.tgraph").write_text("\n".join(["torchgraph 1", *lines[1:]]))
    old = load(tmp_path / "old.tgraph")
    assert old == captured
    assert old.backward == captured.backward
    assert not diff(old, captured)
    other = capture(Net(True), torch.ones(2, 3, 4))
    assert old == other
    assert old.backward == other.backward
