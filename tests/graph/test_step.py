"""A step as one graph: its links and its cuts, live and stored."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement

import pytest
import torch
from torch import Tensor, nn

import pytest_torchgraph
from pytest_torchgraph import Capture, capture, diff
from pytest_torchgraph.graph import diff_graphs, equal_programs, parse_text

BATCH = torch.ones(2, 8)


class Block(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 8)
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        h = self.up(x)
        if self.how == "break":
            torch._dynamo.graph_break()  # the break
        if self.how == "item" and h.abs().max().item() > 100:
            raise ValueError
        h = h.tanh() if self.how == "tanh" else h.relu()
        return x + self.down(h)


class Net(nn.Module):
    def __init__(self, *hows: str) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(map(Block, hows))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def captured(*hows: str, **options: object) -> Capture:
    return capture(Net(*hows), BATCH, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def plain() -> Capture:
    return captured("", "", "")


@pytest.fixture(scope="module")
def broken() -> Capture:
    return captured("", "break", "")


def stored(capture: Capture) -> tuple[pytest_torchgraph.Graph, ...]:
    return parse_text(capture.to_text()).graphs


def test_a_break_is_one_finding_with_its_line_and_reason(plain: Capture, broken: Capture) -> None:
    (finding,) = diff(plain, broken).findings
    assert (finding.kind, finding.changes, finding.before, finding.after) == (
        "added",
        (),
        None,
        None,
    )
    assert finding.graph_break is not None
    assert finding.graph_break.code.strip().endswith("# the break")
    assert [place.module for place in finding.places] == ["blocks.1"]
    assert finding.source is not None
    assert finding.source.line == finding.graph_break.line
    text = str(finding)
    assert text.startswith(f"+ graph break added at {finding.source} in forward: torch._dynamo")
    assert "Remove the `torch._dynamo.graph_break()` call" in text
    (finding,) = diff(broken, plain).findings
    assert finding.kind == "removed"
    assert str(finding).startswith("- graph break removed at ")


def test_a_break_of_a_stored_graph_has_function_and_kind(plain: Capture, broken: Capture) -> None:
    (finding,) = diff_graphs(stored(broken), plain.program).findings
    assert finding.graph_break is not None
    cause = finding.graph_break
    assert (cause.line, cause.file, cause.reason, cause.code) == (0, "", "", "")
    assert finding.source is None
    assert finding.module == "blocks.1"
    first = str(finding).splitlines()[0]
    assert first == "- graph break removed in forward (Call to `torch._dynamo.graph_break()`)"


@pytest.mark.slow("compiles several models")
def test_the_same_break_in_all_layers_is_one_finding(plain: Capture) -> None:
    (finding,) = diff(plain, captured("break", "break", "break")).findings
    assert [place.module for place in finding.places] == [f"blocks.{n}" for n in range(3)]


@pytest.mark.slow("compiles several models")
def test_ops_of_the_line_and_other_backwards_follow_from_the_break(plain: Capture) -> None:
    (finding,) = diff(plain, captured("", "item", "")).findings
    ops = {change.node.op for change in finding.consequences}
    assert "aten._local_scalar_dense.default" in ops
    assert finding.cost.flops is not None


@pytest.mark.slow("compiles for a second")
def test_an_edit_beside_a_break_is_a_finding_of_its_own(plain: Capture) -> None:
    cut, edit = diff(plain, captured("tanh", "break", "")).findings
    assert cut.graph_break is not None
    assert edit.graph_break is None
    assert (edit.module, edit.kind) == ("blocks.0", "changed")


class Normed(nn.Module):
    """A norm whose buffers its forward updates, and returns in one graph."""

    def __init__(self, *, broken: bool) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)
        self.broken = broken

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        if self.broken:
            torch._dynamo.graph_break()
        return h.relu()


class Recurrent(nn.Module):
    """A cell in a frame that Dynamo skips if it breaks: in eager code it writes in place."""

    def __init__(self, *, broken: bool) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(8, 8), Block("")
        self.broken = broken

    def forward(self, x: Tensor) -> Tensor:
        h = c = torch.zeros(2, 8)
        for _ in range(2):
            h, c = self.cell(x, (h, c))
            if self.broken:
                torch._dynamo.graph_break()
        return self.head(h)  # type: ignore[no-any-return]


class Sized(nn.Module):
    """Frames of one code that take tensors of several sizes, compiled as one dynamic graph."""

    def __init__(self, *, broken: bool) -> None:
        super().__init__()
        self.parts = nn.ModuleList(Part(broken=broken) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.parts[1](self.parts[0](x)[:1].repeat(3, 1))  # type: ignore[no-any-return]


class Part(nn.Module):
    def __init__(self, *, broken: bool) -> None:
        super().__init__()
        self.broken = broken

    def forward(self, x: Tensor) -> Tensor:
        y = x.sin()
        if self.broken:
            torch._dynamo.graph_break()
        return y.relu()


@pytest.mark.slow("other models, or without a backward", unless=["Normed-True"])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("model", [Normed, Recurrent, Sized])
def test_what_a_break_does_to_buffers_cells_and_sizes_follows_from_it(
    model: Callable[..., nn.Module], *, grad: bool
) -> None:
    x = BATCH.clone().requires_grad_(grad)
    sides = [capture(model(broken=broken), x) for broken in (False, True)]
    for old, new in (sides, [*map(stored, sides)]):
        changes = diff_graphs(getattr(old, "program", old), getattr(new, "program", new))
        assert [finding.graph_break is not None for finding in changes.findings] == [True]


class Pair(nn.Module):
    """A pair of results, in either order, with a break between them if wanted."""

    def __init__(self, *, broken: bool, swapped: bool) -> None:
        super().__init__()
        self.broken, self.swapped = broken, swapped

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first = x.sin()
        if self.broken:
            torch._dynamo.graph_break()
        second = first.cos()
        return (second, first) if self.swapped else (first, second)


@pytest.mark.parametrize("swapped", [False, True])
def test_another_return_beside_a_break_is_a_finding_of_its_own(*, swapped: bool) -> None:
    whole = capture(Pair(broken=False, swapped=False), BATCH)
    broken = capture(Pair(broken=True, swapped=swapped), BATCH)
    for before, after in ((whole, broken), (broken, whole)):
        findings = diff(before, after).findings
        assert len(findings) == 1 + swapped, findings
        assert findings[0].graph_break is not None
    plain = capture(Pair(broken=True, swapped=False), BATCH)
    assert equal_programs(stored(broken), broken.program)
    assert equal_programs(stored(broken), plain.program) is not swapped
    assert bool(diff_graphs(stored(whole), stored(broken)).findings[1:]) is swapped


def test_gradients_of_unnamed_tensors_are_all_linked() -> None:
    first, second = (torch.ones(8, requires_grad=True) for _ in range(2))

    def step(x: Tensor) -> Tensor:
        y = x * first
        torch._dynamo.graph_break()
        return y + second

    calls = [call for graph in capture(step, BATCH).program for call in graph.calls or ()]
    grads = {label for call in calls for label in call.results if label.startswith("grad ")}
    assert len(grads) == 2


@pytest.mark.slow("compiles several models")
def test_an_edit_of_a_broken_step_is_named_by_its_graph(broken: Capture) -> None:
    (edit,) = diff(broken, captured("tanh", "break", "")).findings
    assert (edit.module, edit.graph) == ("blocks.0", "forward_0")


@pytest.mark.slow("further mechanisms", unless=["dynamo"])
@pytest.mark.parametrize("via", ["dynamo", "inductor", "compiled_autograd"])
def test_a_break_is_one_finding_via_other_mechanisms(via: str) -> None:
    (finding,) = diff(captured("", "", via=via), captured("", "break", via=via)).findings
    assert finding.graph_break is not None
    assert [place.module for place in finding.places] == ["blocks.1"]


# -- links ---------------------------------------------------------------------------------------


class Links(nn.Module):
    """Two values that cross a break, and a function of both."""

    def __init__(
        self, end: Callable[..., Tensor], begin: Callable[..., tuple[Tensor, ...]]
    ) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.begin, self.end = begin, end

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        values = self.begin(self.fc(x), y)
        torch._dynamo.graph_break()
        return self.end(*values, x, y)


def waves(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return x.sin(), y.cos()


ENDS = (
    "a - b",
    "b - a",
    "a * x",
    "a * y",
    "a * b",
    "a * a",
    "a.sum() + b.mean()",
    "b.sum() + a.mean()",
    "(a + b, a)[1] * 2",
    "(a + b, b)[1] * 2",
)
BEGINS: Sequence[Callable[..., tuple[Tensor, ...]]] = (
    lambda x, y: (y.cos(), x.sin())[::-1],
    lambda x, y: (torch.sin(x), torch.cos(y)),
)
"""The same two values, computed in another order and by functions."""


@pytest.mark.slow("captures twenty steps")
@pytest.mark.parametrize("via", ["aot", "dynamo"])
def test_steps_are_equal_exactly_if_the_same_values_meet(via: str) -> None:
    def step(end: str, begin: Callable[..., tuple[Tensor, ...]]) -> Capture:
        made = Links(eval(f"lambda a, b, x, y: {end}"), begin)
        return capture(made, BATCH, BATCH + 1, via=via)

    steps = [(end, step(end, waves)) for end in ENDS]
    # Methods and functions are other ops of Dynamo.
    begins = BEGINS[:1] if via == "dynamo" else BEGINS
    steps += [(ENDS[0], step(ENDS[0], begin)) for begin in begins]
    for (end, one), (other_end, other) in combinations_with_replacement(steps, 2):
        assert (one == other) == (end == other_end), (end, other_end)
        assert bool(diff(one, other)) == (end != other_end), (end, other_end)
        assert equal_programs(stored(one), other.program) == (end == other_end)


def test_a_step_without_a_forward_is_compared_graph_by_graph(broken: Capture) -> None:
    text = broken.to_text()
    end = text.index("\nlinks\n")
    title, _, graphs = text[:end].partition("\n\n")
    backwards = "\n\n".join(
        graph for graph in graphs.split("\n\n") if re.match(r"backward_\d", graph)
    )
    runs = "".join(
        f"  run {name}\n" for name in re.findall(r"^backward_\d", backwards, re.MULTILINE)
    )
    only = parse_text(f"{title}\n\n{backwards}\n\nlinks\n{runs}").graphs
    assert only[0].calls
    assert diff_graphs(only, broken.program).findings


SHARED = """torchgraph 4
via aot

forward_0: forward {
  %x = input : f32[2]
  %relu = aten.relu.default(%x) : f32[2]
  return %relu
}

forward_1: forward × 2 {
  %x = input : f32[2]
  %0.w = parameter : f32[2]
  %0/mul = aten.mul.Tensor(%x, %0.w) : f32[2]
  return %0/mul
}

links
  run forward_0
  break in forward: "print"
  run forward_1: %x = forward_0 %relu
  break in forward: "print"
  run forward_1[2] with 0 as 1: %x = forward_1 %0/mul
"""


def test_code_that_is_no_longer_shared_is_one_finding() -> None:
    title, first, second, links = re.split(r"\n\n(?=forward|links)", SHARED)
    second = second.replace(" × 2", "")
    third = second.replace("forward_1", "forward_2").replace("%0.w", "%1.w").replace("%0/", "%1/")
    links = links.replace("forward_1[2] with 0 as 1", "forward_2")
    apart = parse_text("\n\n".join([title, first, second, third, links])).graphs
    shared = parse_text(SHARED).graphs
    assert not equal_programs(shared, apart)
    (finding,) = diff_graphs(shared, apart).findings
    assert (finding.kind, finding.graph_break) == ("changed", None)
    assert finding.summary == "compiled once for {0, 1}, now 2 times"
    (finding,) = diff_graphs(apart, shared).findings
    assert finding.summary == "compiled once for {0, 1}, before: 2 times"


# -- the stored text -----------------------------------------------------------------------------


def test_a_divided_step_stores_its_links_which_are_read_back(
    broken: Capture, plain: Capture
) -> None:
    text = broken.to_text()
    lines = text.splitlines()
    assert "links" in lines
    assert '  break in forward: "Call to `torch._dynamo.graph_break()`"' in lines
    assert "links" not in plain.to_text()
    program = parse_text(text)
    assert program.to_text("dataflow") == text
    assert program.to_text("dataflow", fold=False) == broken.to_text(fold=False)
    assert equal_programs(program.graphs, broken.program)


def test_a_text_without_links_is_compared_without_them(broken: Capture) -> None:
    older = parse_text(broken.to_text().partition("\nlinks\n")[0]).graphs
    assert equal_programs(older, broken.program)
    assert not diff_graphs(older, broken.program)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("  run forward_9", "the text has no graph 'forward_9'"),
        ("  run forward_0", "no graph 'forward_0', or its runs are not in order"),
        ("  run forward_0[3]", "no graph 'forward_0', or its runs are not in order"),
        ("  ran forward_0", "expected 'run', 'break' or 'result', found 'ran forward_0'"),
        ("  run forward_0[2]: %nothing = forward_0 %x", "has no input %nothing"),
        ("  run forward_0[2]: %x = forward_0 %nothing", "graph 'forward_0' has a value %nothing"),
        (
            "  run forward_0[2]: %x = forward_7 %x",
            "no earlier run 1 of a graph 'forward_7' has a value %x",
        ),
        ("  break in forward: print", "expected a string"),
        ('  result "output 0" = forward_0[7] %x', "no earlier run 7 of a graph 'forward_0'"),
        ("  run forward_0[2]: %x = forward_0[2] %x", "no earlier run 2 of a graph 'forward_0'"),
        ("  run forward_0[2]: %x = forward_0 %output", "has a value %output"),
        ("  run forward_0[2]", "'forward_0' has 2 runs here, and 1 in its title"),
    ],
)
def test_malformed_links_are_refused(broken: Capture, line: str, error: str) -> None:
    text = broken.to_text() + line + "\n"
    with pytest.raises(pytest_torchgraph.GraphFormatError, match=re.escape(error)):
        parse_text(text)


@pytest.mark.slow("compiles several models")
def test_a_watch_says_that_links_are_unknown() -> None:
    model = torch.compile(Net("break").requires_grad_(False))
    with pytest_torchgraph.watch() as watched:
        model(BATCH)
    text = watched.to_text()
    assert "\nlinks unknown\n" in text
    assert equal_programs(parse_text(text).graphs, watched.program)
