"""`assert_dynamic`: one graph serves every size, as torch's guards have it."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch_releases import skip_before

from pytest_torchgraph import Aot, CaptureError, capture, load, watch
from pytest_torchgraph.graph import TensorMeta


def small(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] < 10 else x * 3


def multiple(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] % 4 == 0 else x * 3


def below_width(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] < x.shape[1] else x * 3


def square(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] == x.shape[1] else x * 3


def plain(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def shared(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


def _line(function: Any) -> str:
    code = function.__code__
    return f"tests/checks/test_size_guards.py:{code.co_firstlineno + 1} in {code.co_name}: return"


@pytest.mark.parametrize(
    ("function", "shape", "guard"),
    [
        (small, (6, 3), "must satisfy x.shape[0] < 10, not 10, made at {line}"),
        (multiple, (8, 3), "must satisfy Eq(Mod(x.shape[0], 4), 0), not 2, made at {line}"),
        (below_width, (6, 20), "must satisfy x.shape[0] < x.shape[1], not 20, made at {line}"),
        (
            plain,
            (6, 6),
            "is tied to the equal size x.shape[1], as torch does: pass unequal ones",
        ),
    ],
    ids=["range", "multiple", "other size", "equal sizes"],
)
def test_assert_dynamic_fails_for_a_guard_on_the_size(
    function: Any, shape: tuple[int, ...], guard: str
) -> None:
    captured = capture(function, torch.randn(shape), via=Aot(dynamic=True))
    with pytest.raises(AssertionError) as error:
        captured.assert_dynamic("x", dim=0)
    head, line, remedy = str(error.value).split("\n")
    assert head == "sizes of x are not dynamic:"
    assert f": dim 0 {guard.format(line=_line(function))}" in line
    assert "sizes=(2, 64)" in remedy


def test_assert_dynamic_names_the_other_one_of_two_equal_sizes() -> None:
    captured = capture(plain, torch.randn(6, 6), via=Aot(dynamic=True))
    with pytest.raises(AssertionError, match=r"dim 1 is tied to the equal size x.shape\[0\],"):
        captured.assert_dynamic("x", dim=1)


def test_assert_dynamic_names_the_line_that_ties_two_sizes() -> None:
    x = torch.randn(6, 6)
    torch._dynamo.mark_dynamic(x, [0, 1])
    with torch.fx.experimental._config.patch(use_duck_shape=False):
        captured = capture(square, x, via=Aot(dynamic=True))
    with pytest.raises(AssertionError) as error:
        captured.assert_dynamic("x", dim=1)
    assert "dim 1 must satisfy Eq(x.shape[0], x.shape[1]), not 2" in str(error.value)
    assert f", made at {_line(square)}" in str(error.value)


def test_assert_dynamic_of_sizes_that_the_guards_accept_passes() -> None:
    captured = capture(small, torch.randn(6, 3), via=Aot(dynamic=True))
    captured.assert_dynamic("x", dim=0, sizes=(2, 9))
    with pytest.raises(AssertionError, match=r"must satisfy x.shape.0. < 10, not 10"):
        captured.assert_dynamic("x", dim=0, sizes=(2, 10))
    with pytest.raises(AssertionError, match=r"must satisfy x.shape.0. >= 2, not 1"):
        captured.assert_dynamic("x", dim=0, sizes=(1, 9))
    for sizes in ((9, 2), (-1, None)):
        with pytest.raises(ValueError, match="is not a range"):
            captured.assert_dynamic("x", dim=0, sizes=sizes)


def test_assert_dynamic_of_a_batch_that_inputs_share_passes() -> None:
    captured = capture(shared, torch.randn(6, 3), torch.randn(6, 3), via=Aot(dynamic=True))
    captured.assert_dynamic("x", dim=0)
    captured.assert_dynamic("y", dim=(0, 1))


def test_assert_dynamic_reads_the_guards_of_a_watch() -> None:
    with watch() as seen:
        torch.compile(small, backend="aot_eager", dynamic=True)(torch.randn(6, 3))
    seen.assert_dynamic("x", dim=1)
    with pytest.raises(AssertionError, match=r"must satisfy x.shape.0. < 10"):
        seen.assert_dynamic("x", dim=0)


def test_assert_dynamic_of_a_marked_range_fails_beyond_it() -> None:
    x = torch.randn(6, 3)
    torch._dynamo.mark_dynamic(x, 0, min=2, max=20)
    captured = capture(plain, x)
    captured.assert_dynamic("x", dim=0, sizes=(2, 20))
    with pytest.raises(AssertionError, match=r"must satisfy x.shape.0. <= 20, not 21"):
        captured.assert_dynamic("x", dim=0)


def test_assert_dynamic_without_guards_is_refused(tmp_path: Any) -> None:
    captured = capture(plain, torch.randn(6, 3), via=Aot(dynamic=True))
    (tmp_path / "plain.tgraph").write_text(captured.to_text())
    with pytest.raises(CaptureError, match="check a live capture, not a file"):
        load(tmp_path / "plain.tgraph").assert_dynamic("x", dim=0)


class Nested(torch.nn.Module):
    def forward(self, input, *args, batch, **kwargs):  # type: ignore[no-untyped-def]
        return input + args[0][0] + batch["x"] + kwargs["mask"]


@pytest.mark.parametrize("name", ["input", "input1"])
def test_guards_are_found_for_modules_of_torch(name: str) -> None:
    """torch wraps them, so that Dynamo knows their inputs as `args[0]`."""
    inputs = (torch.ones(4, 6), torch.ones(4, 5))
    model = torch.nn.Linear(6, 3) if name == "input" else torch.nn.Bilinear(6, 5, 3)
    captured = capture(model, *inputs[: 1 if name == "input" else 2], via=Aot(dynamic=True))
    captured.assert_dynamic(name, dim=0)
    with pytest.raises(AssertionError, match=rf"{name} is \["):
        captured.assert_dynamic(name, dim=1)


def test_guards_are_found_for_nested_inputs() -> None:
    one, two, three, four = (torch.randn(6, 3) for _ in range(4))
    captured = capture(Nested(), one, [two], batch={"x": three}, mask=four, via=Aot(dynamic=True))
    inputs = [node for node in captured.forward.inputs if isinstance(node.result, TensorMeta)]
    assert len(inputs) == 4
    for node in inputs:
        captured.assert_dynamic(node.name, dim=0)


CONDITIONS = (
    "x.shape[{d}] < {n}",
    "x.shape[{d}] >= {n}",
    "x.shape[{d}] != {n}",
    "x.shape[{d}] % {m} == 0",
    "x.shape[{d}] * {m} <= {n}",
    "(x.shape[{d}] + 3) // {m} > {k}",
    "x.shape[0] < x.shape[1]",
    "x.shape[0] != x.shape[1]",
    "x.numel() < {n} * {m}",
    "x.shape[{d}] <= y.shape[{d}]",
    "y.shape[{d}] < {n}",
    "x.shape[{d}] - {m} > {k} - {n}",
    "x.shape[{d}] > {k}",
)


def _agrees(seed: int) -> tuple[bool, bool, str]:
    """Return if torch serves all sizes with one graph, if `assert_dynamic` passes, and the code."""
    choice = random.Random(seed)
    conditions = [
        choice.choice(CONDITIONS).format(
            d=choice.randint(0, 1), n=choice.randint(3, 40), m=choice.randint(2, 5), k=2
        )
        for _ in range(choice.randint(0, 2))
    ]
    shared_batch = choice.random() < 0.5
    body = "".join(
        f"    x = x * {number + 2} if {condition} else x + {number + 2}\n"
        for number, condition in enumerate(conditions)
    )
    scope: dict[str, Any] = {}
    last = "x + y.sum()" if not shared_batch else "x + y"
    source = f"def f(x, y):\n{body}    return {last}\n"
    exec(source, scope)
    f = scope["f"]
    shape = choice.randint(4, 12), choice.randint(4, 12)
    other = shape if shared_batch else (choice.randint(4, 12), choice.randint(4, 12))
    dim = choice.randint(0, 1)
    highest = choice.choice([9, 16, 60])

    def arguments(size: int, follow: bool) -> tuple[torch.Tensor, torch.Tensor]:
        sizes, others = list(shape), list(other)
        sizes[dim] = size
        if follow:
            others = [size if value == shape[dim] else value for value in other]
        return torch.ones(sizes), torch.ones(others)

    torch._dynamo.reset()
    step = torch.compile(f, backend="eager", dynamic=True)
    with watch() as seen:
        step(torch.ones(shape), torch.ones(other))
    served = True
    with torch.compiler.set_stance("fail_on_recompile"):
        for size in range(2, highest + 1):
            ways = [arguments(size, True), *([] if shared_batch else [arguments(size, False)])]
            served = served and any(_is_served(step, way) for way in ways)
    try:
        seen.assert_dynamic("x", dim=dim, sizes=(2, highest))
    except AssertionError as error:
        return served, False, f"{source}{shape} {other} dim {dim} to {highest}\n{error}"
    return served, True, f"{source}{shape} {other} dim {dim} to {highest}"


def _is_served(step: Any, arguments: tuple[torch.Tensor, ...]) -> bool:
    try:
        step(*arguments)
    except RuntimeError as error:
        if "recompil" not in str(error).lower():
            raise
        return False
    return True


@pytest.mark.parametrize("seeds", [range(4)])
def test_random_guards_agree_with_torch(seeds: range) -> None:
    _compare(seeds)


@pytest.mark.slow("200 random functions")
@pytest.mark.parametrize("start", range(0, 200, 50))
def test_more_random_guards_agree_with_torch(start: int) -> None:
    _compare(range(start, start + 50))


def _compare(seeds: range) -> None:
    skip_before("2.13", "Dynamo compiles functions that have no file as one wrapper")
    results = [_agrees(seed) for seed in seeds]
    wrong = [text for served, passed, text in results if served != passed]
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong[:5])


def branches_after_a_break(x: torch.Tensor) -> torch.Tensor:
    size = x.shape[0]
    torch._dynamo.graph_break()
    return x.sin() if size > 10 else x.cos()


@torch.compiler.disable
def is_long(size: int) -> bool:
    return size > 10


def asks_eager_code(x: torch.Tensor) -> torch.Tensor:
    return x.sin() if is_long(x.shape[0]) else x.cos()


@pytest.mark.parametrize("function", [branches_after_a_break, asks_eager_code])
def test_assert_dynamic_fails_for_code_after_a_graph_break(function: Any) -> None:
    captured = capture(function, torch.randn(8, 4), via=Aot(dynamic=True))
    (graph_break,) = captured.breaks
    with pytest.raises(AssertionError) as error:
        captured.assert_dynamic("x", dim=0)
    assert str(error.value) == (
        "sizes of x are not dynamic:\n"
        f"  code after the graph break at {graph_break.file}:{graph_break.line} "
        f"({graph_break.kind}) may compile again for a size\n"
        "remove the graph break"
    )
