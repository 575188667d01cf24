"""A watch in which code ran that was compiled before it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from pytest_torchgraph import CaptureError, capture, diff, steady, watch

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def squared(x: torch.Tensor) -> torch.Tensor:
    return x @ x


def cosine(x: torch.Tensor) -> torch.Tensor:
    return x.cos()


LINE = squared.__code__.co_firstlineno
TEXT = f"compiled before the watch: squared (tests/watching/test_partly_warm.py:{LINE})"
CHECKS: dict[str, Callable[[Any], object]] = {
    "ops": lambda seen: seen.assert_no_ops("aten.sin"),
    "op counts": lambda seen: seen.assert_op_counts({"aten.cos": 1}),
    "pattern": lambda seen: seen.assert_no_pattern("aten.sin -> aten.cos"),
    "budget": lambda seen: seen.assert_budget(flops=0, unknown="ignore"),
    "breaks": lambda seen: seen.assert_no_graph_breaks(),
    "some breaks": lambda seen: seen.assert_graph_breaks(max=2),
    "count": lambda seen: seen.assert_graph_count(forward=1, backward=0),
    "syncs": lambda seen: seen.assert_no_syncs(),
    "transfers": lambda seen: seen.assert_no_transfers(),
    "distinct": lambda seen: seen.assert_distinct_graphs(1),
    "equality": lambda seen: seen == capture(cosine, torch.ones(3)),
    "difference": lambda seen: diff(capture(cosine, torch.ones(3)), seen),
}


def _seen(*, fresh: bool = True) -> Any:
    step = torch.compile(squared, backend="aot_eager")
    other = torch.compile(cosine, backend="aot_eager")
    step(torch.ones(4, 4))
    with watch() as seen:
        step(torch.ones(4, 4))
        if fresh:
            other(torch.ones(3))
    return seen


def test_partly_warm_watch_fails_each_check() -> None:
    seen = _seen()
    for check in CHECKS.values():
        with pytest.raises(AssertionError) as error:
            check(seen)
        assert f"  {TEXT}\n" in str(error.value)


def test_partly_warm_watch_names_what_to_do() -> None:
    seen = _seen()
    with pytest.raises(AssertionError) as error:
        seen.assert_no_ops("aten.sin")
    assert str(error.value) == (
        "the record is incomplete, because it lacks graphs and breaks of code that ran:\n"
        f"  {TEXT}\n"
        f"to allow this code, pass allow=['{TEXT}']\n"
        "open the watch before the first call, call torch._dynamo.reset() first, or select other "
        "code with only(function=...)"
    )
    seen.assert_no_ops("aten.sin", allow=[TEXT])
    seen.assert_no_graph_breaks(allow="compiled before the watch: squared")
    seen.only(function="cosine").assert_no_ops("aten.sin")
    with pytest.raises(CaptureError, match=r"the cost is unknown: .*\n.*squared"):
        _ = seen.flops


def test_wholly_warm_watch_names_the_code() -> None:
    seen = _seen(fresh=False)
    with pytest.raises(AssertionError) as error:
        seen.assert_no_ops("aten.sin")
    assert TEXT in str(error.value)
    seen.assert_graph_count(total=0)
    seen.assert_no_recompiles()


def test_recompile_checks_of_a_partly_warm_watch_stay() -> None:
    seen = _seen()
    seen.assert_no_recompiles()
    seen.assert_recompiles(count=0)
    batch = (torch.ones(4, 4),)
    steady(torch.compile(squared, backend="aot_eager"), batch, batch).assert_no_recompiles()


def test_a_watch_knows_code_that_an_earlier_part_of_it_compiled() -> None:
    step = torch.compile(squared, backend="aot_eager")
    around = watch()
    with around as seen:
        step(torch.ones(4, 4))
    with around, watch() as inner:
        step(torch.ones(4, 4))
        torch.compile(cosine, backend="aot_eager")(torch.ones(3))
    seen.assert_no_ops("aten.sin")
    with pytest.raises(AssertionError, match="compiled before the watch: squared"):
        inner.assert_no_ops("aten.sin")


def test_backward_of_a_forward_compiled_before_the_watch_is_named() -> None:
    x = torch.ones(4, 4, requires_grad=True)
    loss = torch.compile(squared, backend="aot_eager")(x).sum()
    with watch() as seen:
        torch.compile(cosine, backend="aot_eager")(torch.ones(3))
        loss.backward()
    with pytest.raises(AssertionError, match="compiled before the watch: squared"):
        seen.assert_no_ops("aten.mm")


def test_code_compiled_before_and_again_after_a_reset_is_named() -> None:
    step = torch.compile(squared, backend="aot_eager")
    step(torch.ones(4, 4))
    with watch() as seen:
        step(torch.ones(4, 4))
        torch._dynamo.reset()
        step(torch.ones(4, 4))
    (graph,) = seen.graphs
    assert graph.runs == 1
    with pytest.raises(AssertionError, match="compiled before the watch: squared"):
        seen.assert_no_ops("aten.sin")


def test_warm_code_in_another_thread_is_named() -> None:
    step = torch.compile(squared, backend="aot_eager")
    step(torch.ones(4, 4))
    with watch() as seen:
        torch.compile(cosine, backend="aot_eager")(torch.ones(3))
        thread = threading.Thread(target=step, args=(torch.ones(4, 4),))
        thread.start()
        thread.join()
    with pytest.raises(AssertionError, match="compiled before the watch: squared"):
        seen.assert_no_ops("aten.sin")


@pytest.mark.slow("a run of pytest of its own")
def test_explicit_marker_fails_on_warm_code_and_ini_defaults_do_not(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import pytest, torch

        step = torch.compile(lambda x: x @ x, backend="aot_eager")

        @pytest.fixture
        def warm():
            step(torch.ones(4, 4))

        @pytest.mark.torchgraph
        def test_marked(warm):
            step(torch.ones(4, 4))
            torch.compile(lambda x: x.cos(), backend="aot_eager")(torch.ones(3))

        @pytest.mark.torchgraph(allow="compiled before the watch: <lambda>")
        def test_allowed(warm):
            step(torch.ones(4, 4))
            torch.compile(lambda x: x.cos(), backend="aot_eager")(torch.ones(3))

        @pytest.mark.torchgraph(min_graphs=0, max_graph_breaks=None)
        def test_recompiles_only(warm):
            step(torch.ones(4, 4))

        def test_ini(warm):
            step(torch.ones(4, 4))
            torch.compile(lambda x: x.cos(), backend="aot_eager")(torch.ones(3))
        """
    )
    pytester.makeini("[pytest]\ntorchgraph_max_graph_breaks = 0\n")
    result = pytester.runpytest_inprocess("-p", "no:randomly")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*compiled before the watch: <lambda> (*.py:3)"])


def _truth(seed: int) -> tuple[bool, bool]:
    """Return if all compiled code that ran in a watch was compiled in it, and if a check passes."""
    choice = random.Random(seed)
    torch._dynamo.reset()
    made: list[int] = []
    ran: list[int] = []

    def backend(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        number = len(made)
        made.append(number)

        def run(*args: Any) -> Any:
            ran.append(number)
            return gm.forward(*args)

        return run

    def make(number: int) -> Any:
        scope: dict[str, Any] = {"torch": torch}
        cut = "torch._dynamo.graph_break()" if choice.random() < 0.3 else "pass"
        exec(f"def f{number}(x):\n    x = x * {number + 2}\n    {cut}\n    return x.sin()", scope)
        return scope[f"f{number}"]

    functions = [make(number) for number in range(4)]
    steps = [torch.compile(function, backend=backend) for function in functions]
    shapes = [torch.ones(3), torch.ones(2, 3), torch.ones(1, 2, 3)]
    for _ in range(choice.randint(0, 3)):
        choice.choice(steps)(choice.choice(shapes))
    before = len(made)
    ran.clear()
    with watch() as seen:
        for _ in range(choice.randint(1, 4)):
            way = choice.choice(steps if choice.random() < 0.8 else functions)
            way(choice.choice(shapes))
            if choice.random() < 0.1:
                torch._dynamo.reset()
    complete = bool(ran) and all(number >= before for number in ran)
    try:
        seen.assert_graph_count(forward=(1, None))
    except AssertionError:
        return complete, False
    return complete, True


@pytest.mark.slow("random mixtures; single ones are in every run")
def test_random_mixtures_agree_with_a_counting_backend() -> None:
    assert [seed for seed in range(60) if len({*_truth(seed)}) > 1] == []
