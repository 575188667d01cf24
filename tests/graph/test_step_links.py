"""What enters each graph of a divided step: inputs, constants, and results of each run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pytest_torchgraph import GraphFormatError, capture, diff
from pytest_torchgraph.graph import Symbol, diff_graphs, equal_programs, parse_text
from pytest_torchgraph.graph.step import inlined
from pytest_torchgraph.snapshot.compare import compare, read_stored
from pytest_torchgraph.snapshot.subject import program_of

X, Y = torch.linspace(0.1, 1, 16).view(4, 4), torch.linspace(0.2, 2, 16).view(4, 4)
FIRST, SECOND = torch.full((4, 4), 2.0), torch.full((4, 4), 3.0)
WEIGHTS = nn.Parameter(torch.ones(4, 4)), nn.Parameter(torch.ones(4, 4))


def cut() -> None:
    torch._dynamo.graph_break()


def inputs(x: Tensor, y: Tensor) -> Tensor:
    a = x.sin()
    cut()
    return (a - y).exp()


def other_inputs(x: Tensor, y: Tensor) -> Tensor:
    a = y.sin()
    cut()
    return (a - x).exp()


def reached(values: tuple[Tensor, Tensor], which: int) -> Callable[[Tensor, Tensor], Tensor]:
    def function(x: Tensor, y: Tensor) -> Tensor:
        s = x + values[0] * values[1] * 2
        cut()
        return s.exp() - values[which]

    return function


@torch.compiler.disable
def scaled(x: Tensor, by: float) -> Tensor:
    return x * torch.tensor(by)


def scales(by: float) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, y: scaled(x, 1.5) - scaled(x.sin(), by).exp()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        cut()
        return self.fc(x).sin()


class Net(nn.Module):
    """Three blocks, called in an order."""

    def __init__(self, *order: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(3))
        self.order = order

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for number in self.order:
            x = self.layers[number](x)
        return x


class Named(nn.Module):
    """Two layers, of which each runs in a graph of its own."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.first, self.second = first, second

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        u = getattr(self, self.first)(x.sin())
        cut()
        v = getattr(self, self.second)(x.cos())
        cut()
        return u - v.exp()


class NamedLikeAnInput(nn.Module):
    """A module with a buffer of the name of an input."""

    def __init__(self, *, takes_buffer: bool) -> None:
        super().__init__()
        self.register_buffer("x", FIRST)
        self.takes_buffer = takes_buffer

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = x.sin()
        cut()
        return h - (self.x if self.takes_buffer else x)


def adds(x: Tensor, y: Tensor, *, detached: bool) -> Tensor:
    a = (x.detach() if detached else x) + y
    cut()
    return y + 0.25 + a


EXCHANGES: dict[str, tuple[bool, Any, Any]] = {
    "inputs that enter different graphs": (True, inputs, other_inputs),
    "tensors of a closure": (True, reached((FIRST, SECOND), 0), reached((FIRST, SECOND), 1)),
    "parameters of a closure": (False, reached(WEIGHTS, 0), reached(WEIGHTS, 1)),
    "values of constants": (True, scales(2.5), scales(3.5)),
    "order of blocks that share a graph": (False, Net(0, 1, 2), Net(0, 2, 1)),
    "a block in place of its sibling": (True, Net(0, 1, 2), Net(0, 1, 1)),
    "parameters of common names": (False, Named("b", "a"), Named("a", "c")),
    "a buffer of the name of an input": (
        True,
        NamedLikeAnInput(takes_buffer=False),
        NamedLikeAnInput(takes_buffer=True),
    ),
}


CHOSEN = ["tensors of a closure", "a block in place of its sibling", "values of constants"]


@pytest.mark.slow("further exchanges", unless=CHOSEN)
@pytest.mark.parametrize("exchange", EXCHANGES)
def test_each_exchange_is_a_difference_live_and_stored(exchange: str) -> None:
    grad, *targets = EXCHANGES[exchange]
    old, new = (capture(target, X.clone().requires_grad_(grad), Y) for target in targets)
    again = parse_text(old.to_text()).graphs
    assert equal_programs(again, old.program)
    assert old != new
    assert diff(old, new)
    assert not equal_programs(again, new.program)
    # A test's file is compared with the links, too.
    stored = read_stored(old.to_text())
    assert compare(stored, program_of(old, "test").canonical(), "dataflow") is None
    mismatch = compare(stored, program_of(new, "test").canonical(), "dataflow")
    assert mismatch is not None
    assert mismatch.diff


def writes(first: float, second: float, *, divided: bool = True) -> Callable[..., Tensor]:
    """Return a function that adds to a tensor before or after a factor of two, then reads it."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        a = x.sin()
        if divided:
            cut()
        a.add_(first) if first else a.mul_(2.0)
        if divided:
            cut()
        a.add_(second) if second else a.mul_(2.0)
        if divided:
            cut()
        return a.exp() - y

    return function


def read_last(x: Tensor, y: Tensor) -> Tensor:
    a = x.sin()
    cut()
    a.add_(1.0)
    cut()
    return a.exp()


def read_first(x: Tensor, y: Tensor) -> Tensor:
    a = x.sin()
    cut()
    b = a.exp()
    cut()
    a.add_(1.0)
    return b


def views(*, adds_first: bool) -> Callable[..., Tensor]:
    """Return a function that writes twice to one storage, once through a view of an earlier run."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        a = x.sin()
        part = a.chunk(2)[0]
        cut()
        if adds_first:
            part.add_(1.0)
            a.mul_(2.0)
        else:
            a.mul_(2.0)
            part.add_(1.0)
        return a.exp() - y

    return function


WRITES = {
    "writes": (writes(1.0, 0.0), writes(0.0, 1.0)),
    "read": (read_last, read_first),
    "views": (views(adds_first=True), views(adds_first=False)),
}


@pytest.mark.slow("further steps with breaks", unless=["views-dynamo"])
@pytest.mark.parametrize(
    ("name", "via"), [*((name, "dynamo") for name in WRITES), ("writes", "inductor")]
)
def test_the_order_of_writes_in_several_graphs_is_compared(name: str, via: str) -> None:
    old, new = (capture(target, X, Y, via=via) for target in WRITES[name])
    assert old != new
    assert diff(old, new)
    again = parse_text(old.to_text()).graphs
    assert equal_programs(again, old.program)
    assert not equal_programs(again, new.program)


@pytest.mark.slow("compiles for a second")
def test_writes_in_one_graph_and_in_several_have_one_order() -> None:
    sides = (capture(writes(1.0, 0.0, divided=d), X, Y, via="dynamo") for d in (False, True))
    assert {finding.of_cut for finding in diff(*sides).findings} == {"added"}


@pytest.mark.slow("compiles several models")
def test_an_input_without_a_gradient_is_a_difference() -> None:
    x, y = X.clone().requires_grad_(), Y.clone().requires_grad_()
    old, new = (capture(adds, x, y, detached=detached) for detached in (False, True))
    assert old != new
    assert "grad x" in old.to_text()
    assert not equal_programs(parse_text(old.to_text()).graphs, new.program)


@pytest.mark.slow("compiles a step with breaks", only=["aot"])
@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_the_order_of_statements_gives_tangents_no_order(via: str) -> None:
    def target(x: Tensor, y: Tensor, order: str) -> tuple[Tensor, ...]:
        if order == "later":
            b = y.cos()
        a = x.sin()
        if order != "later":
            b = y.cos()
        if via == "aot":
            cut()
        return (x.t(), b, a) if order == "exchanged" else (x.t(), a, b)

    x, y = X.clone().requires_grad_(), Y.clone().requires_grad_()
    orders = ("first", "later", "exchanged")
    captures = [capture(target, x, y, order=order, via=via) for order in orders]
    assert captures[0] == captures[1]
    assert captures[0] != captures[2]


STEP = """torchgraph 4
via aot, torch 2.13.0

forward: forward {
  %x = input : f32[2]
  %g = input : f32[2]
  %c = constant(1.0) : f32[]
  %mul = aten.mul.Tensor(%x, %c) : f32[2]
  %r = aten.sub.Tensor(%mul, %g) : f32[2]
  return %r
  save %x
}

inference: inference {
  %h = input : f32[2]
  %x = input : f32[2]
  %c = constant(2.0) : f32[]
  %y = cut.sub.default(%h, %x) : f32[2]
  %i = aten.mul.Tensor(%y, %c) : f32[2]
  return %i
}

backward: backward {
  %x = saved : f32[2]
  %q = saved : f32[2]
  %tangent.0 = tangent : f32[2]
  %g = aten.mul.Tensor(%x, %q) : f32[2]
  %sum = aten.add.Tensor(%g, 5) : f32[2]
  return [%sum, None]
}

links
  run forward
  run backward: %q = forward %r
  run inference: %h = input %g
"""


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("constant(2.0)", "constant(3.0)"),
        ("%h = input %g", "%h = backward %g"),
        ("%h = input %g", "%h = input %g, %x = parameter %x"),
        ("input : f32[2]\n  %c = constant(2.", "input : f64[9]\n  %c = constant(2."),
        ("input : f32[2]\n  %c = constant(2.", "buffer : f32[2]\n  %c = constant(2."),
        ("%q = forward %r", "%q = saved %r"),
        ("%q = forward %r", "%q = input %r"),
        ("%h, %x)", "%x, %h)"),
    ],
)  # fmt: skip
def test_values_of_equal_names_are_not_the_same_value(line: str, other: str) -> None:
    assert line in STEP
    before, after = (parse_text(text).graphs for text in (STEP, STEP.replace(line, other)))
    assert equal_programs(before, before)
    assert not equal_programs(before, after)
    assert diff_graphs(before, after)


@pytest.mark.parametrize("path", ["\N{SUPERSCRIPT TWO}", "9" * 5000])
def test_any_label_of_a_result_is_read(path: str) -> None:
    added = f'  result "output {path}" = forward %r\n'
    before, after = (parse_text(text).graphs for text in (STEP, STEP + added))
    assert diff_graphs(before, after)


def test_a_symbolic_size_of_a_backward_is_that_of_its_forward() -> None:
    def sized(x: Tensor, y: Tensor) -> Tensor:
        a = x.sin() * x.shape[0]
        cut()
        return (a - y).view(-1) * y.shape[0]

    x, y = X.clone().requires_grad_(), Y.clone().requires_grad_()
    for value in (x, y):
        torch._dynamo.mark_dynamic(value, 0)
    step = inlined(capture(sized, x, y).program)
    assert step is not None
    forward, backward = step.graphs
    sizes = {node.name for node in backward.inputs if isinstance(node.result, Symbol)}
    assert len(sizes) == 2
    assert sizes <= {node.name for node in forward.inputs}


@pytest.mark.slow("compiles a step with breaks")
def test_an_unknown_input_of_two_graphs_is_one_input_live_and_stored() -> None:
    class Hooked(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
            u = x * y
            cut()
            v = y * 1.0
            v.register_hook(lambda grad: grad * 2)
            cut()
            w = x * 1.0
            w.register_hook(lambda grad: grad * 3)
            return u, v, w

    x, y = X.clone().requires_grad_(), Y.clone().requires_grad_()
    hooked = capture(Hooked(), x, y, via="compiled_autograd")
    assert hooked.to_text().count("%size = input") == 2
    assert equal_programs(parse_text(hooked.to_text()).graphs, hooked.program)


def test_a_sum_of_a_list_is_no_sum_of_gradients() -> None:
    before, after = (
        parse_text(STEP.replace("(%g, 5)", f"([%g, %x], {number})")).graphs for number in (5, 6)
    )
    assert len(diff_graphs(before, after).findings) == 1


def test_renamed_inputs_of_several_graphs_are_equal() -> None:
    def renamed(left: Tensor, right: Tensor) -> Tensor:
        b = left.sin()
        cut()
        return (b - right).exp()

    assert capture(inputs, X, Y) == capture(renamed, X, Y)


@pytest.mark.slow("compiles for a second")
def test_text_has_the_order_of_inputs_only_if_graphs_take_them_in_another() -> None:
    assert "  inputs " not in capture(inputs, X, Y).to_text()
    text = capture(other_inputs, X, Y).to_text()
    assert "\nlinks\n  inputs %x, %y\n" in text
    assert parse_text(text).to_text("dataflow") == text
    for line, error in (
        ("  inputs %x, %x", "%x is given twice"),
        ("  inputs", "expected 'run', 'break' or 'result'"),
        ("  inputs %x, %y\n  inputs %x, %y", "expected 'run', 'break' or 'result'"),
    ):
        with pytest.raises(GraphFormatError, match=error):
            parse_text(text.replace("  inputs %x, %y", line))


@pytest.mark.slow("compiles several models")
def test_blocks_that_share_a_graph_cost_what_they_cost_in_eager() -> None:
    """What passes from run to run was taken for an input of the step."""
    x = X.clone().requires_grad_()
    compiled, eager = capture(Net(0, 1, 2), x, Y), capture(Net(0, 1, 2), x, Y, via="dispatch")
    runs = [graph.calls or () for graph in compiled.program if graph.kind == "forward"]
    assert sum(map(len, runs)) == 3  # in three graphs on torch 2.9
    assert compiled.saved_bytes == eager.saved_bytes
    assert compiled.peak_bytes == eager.peak_bytes
    compiled.assert_pattern("aten.sin -> aten.addmm")


@pytest.mark.slow("compiles for a second")
def test_ops_of_a_shared_graph_are_in_each_of_its_modules() -> None:
    compiled = capture(Net(0, 1, 2), X.clone().requires_grad_(), Y)
    for module in ("layers.0.fc", "layers.2.fc"):
        compiled.assert_op_counts({"aten.addmm": 1}, module=module)
        with pytest.raises(AssertionError):
            compiled.assert_no_ops("aten.addmm", module=module)
    with pytest.raises(ValueError, match="did you mean"):
        compiled.assert_no_ops("aten.addmm", module="layers.3.fc")


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(u, v)
        return u * v

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        u, v = ctx.saved_tensors
        return grad * v, grad * u


class Exchanged(Product):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        u, v = ctx.saved_tensors
        return grad * u, grad * v


@pytest.mark.parametrize("via", ["aot", "dynamo"])
def test_gradients_of_an_eager_function_are_compared(via: str) -> None:
    def made(function: type[Product]) -> Callable[[Tensor, Tensor], Tensor]:
        apply = torch.compiler.disable(function.apply)
        return lambda x, y: apply((x + 2 * y).sin(), y.cos())

    values = X.clone().requires_grad_(), Y.clone().requires_grad_()
    first, second = (capture(made(f), *values, via=via) for f in (Product, Exchanged))
    assert first == capture(made(Product), *values, via=via)
    assert first != second


class Projections(nn.Module):
    """Two projections of one value, whose backward takes two equal views of it."""

    def __init__(self, *, broken: bool) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(4, 4), nn.Linear(4, 4)
        self.broken = broken

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.sin()
        x = self.q(x) * self.k(x)
        if self.broken:
            torch._dynamo.graph_break()
        return x.cos()


def test_equal_views_of_one_value_stay_apart_beside_a_break() -> None:
    plain, broken = (
        capture(Projections(broken=broken), torch.ones(2, 3, 4), via="aot", backward=True)
        for broken in (False, True)
    )
    (finding,) = diff(plain, broken).findings
    assert finding.graph_break is not None
    lines = str(finding).splitlines()
    assert not [line for line in lines if "follows" in line or "saves" in line]
    text, start = broken.to_text(), "run backward_1: "
    assert text.count(start) == 1
    # Files of earlier versions name the first of the equal views.
    earlier = parse_text(text.replace(start, f"{start}%k/view = forward_0 %q/view, "))
    assert equal_programs(earlier.graphs, broken.graphs)
    other = parse_text(text.replace(start, f"{start}%k/view = forward_0 %q/t, "))
    assert not equal_programs(other.graphs, broken.graphs)


class Sine(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1


class Collected(nn.Module):
    """Blocks in a graph that runs several times. Eager code reads what each run returned."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Sine() for _ in range(3))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for block in self.blocks:
            x = block(x)
            found.append(x)
            torch._dynamo.graph_break()
        return found[0] * found[1] * found[2]


def test_a_value_of_a_later_run_of_a_graph_is_read() -> None:
    captured = capture(Collected(), torch.ones(2, 4, requires_grad=True), via="aot")
    text = captured.to_text()
    assert ':add.2" = forward[3] %add' in text
    assert equal_programs(parse_text(text).graphs, captured.program)


def test_an_update_alone_differs_from_a_step() -> None:
    """A file may have any graphs. Hypothesis found these."""
    graph = "{} @ dispatch {{\n  return []\n}}\n"
    step = [graph.format(f"forward_{k}: forward") for k in range(2)]
    sides = ["torchgraph 4\n\n" + "\n".join(parts) for parts in (step, [graph.format("update")])]
    assert diff_graphs(*(parse_text(side).graphs for side in sides))
