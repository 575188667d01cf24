"""The compilations of one test as plain data, and the summary over all tests."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch._dynamo import compiled_autograd
from torch_releases import skip_before

from pytest_torchgraph import watch
from pytest_torchgraph.audit import (
    Cause,
    LeakedSetting,
    SuiteWatch,
    TestFacts,
    facts_of,
    summary_lines,
)
from pytest_torchgraph.audit.read import NEVER_CALLED, NO_OPS, UNSEEN
from pytest_torchgraph.torch_private import observers
from pytest_torchgraph.watching import HUB, EventRecorder, record_of
from pytest_torchgraph.watching.observe.entries import CompiledCallables
from pytest_torchgraph.watching.observe.executions import Executions


def facts(run: Callable[[], object], *, with_graphs: bool = False) -> TestFacts:
    torch._dynamo.reset()
    recorder = EventRecorder(passive=True, with_graphs=with_graphs)
    with HUB.recording(recorder):
        run()
    return facts_of(record_of(recorder))


def breaking(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    print("hi")
    return y.cos()


def call(function: Callable[..., object], *sizes: int, **how: object) -> Callable[[], None]:
    def run() -> None:
        compiled = torch.compile(function, backend="eager", **how)  # type: ignore[call-overload]
        for size in sizes or (3,):
            compiled(torch.ones(size))

    return run


def test_graphs_and_ops_are_counted_without_a_printed_graph() -> None:
    def run() -> None:
        compiled = torch.compile(lambda x: (x.sin() + 1).sum(), backend="aot_eager")
        compiled(torch.ones(3, requires_grad=True)).backward()

    recorded = facts(run)
    assert (recorded.calls, recorded.graphs, recorded.ops, recorded.backwards) == (1, 1, 3, 1)
    assert recorded.compiles
    assert recorded.causes == ()
    assert recorded.seconds > 0
    assert [frame.partition(" ")[2] for frame in recorded.frames] == ["<lambda>"]
    assert recorded.backends == ("aot_eager",)
    assert not recorded.shared


class Backend:
    def __call__(self, module: torch.fx.GraphModule, inputs: object, **options: object) -> object:
        return module.forward


@pytest.mark.parametrize(
    ("backend", "name"),
    [
        (Backend(), f"<{__name__}.Backend object>"),
        (partial(Backend(), depth=2), f"functools.partial(<{__name__}.Backend object>, depth=2)"),
        (MagicMock(side_effect=Backend()), "<MagicMock>"),
    ],
    ids=["instance", "partial", "mock"],
)
def test_backend_name_has_no_address(backend: Callable[..., object], name: str) -> None:
    recorded = facts(lambda: torch.compile(lambda x: x.sin(), backend=backend)(torch.ones(3)))
    assert recorded.backends == (name,)


def test_code_generated_by_fx_is_identified_without_its_number() -> None:
    graph = torch.fx.Graph()
    graph.output(graph.call_method("sin", (graph.placeholder("x"),)))
    module = torch.fx.GraphModule({}, graph)
    recorded = facts(lambda: torch.compile(module, backend="eager")(torch.ones(3)))
    (frame,) = recorded.frames
    assert re.fullmatch(r"<eval_with_key>:\d+ forward", frame)


def test_printed_graphs_make_no_difference() -> None:
    light, full = (
        facts(call(breaking, 3, 4), with_graphs=with_graphs) for with_graphs in (False, True)
    )
    assert light.causes == full.causes
    assert (light.graphs, light.ops, light.frames) == (full.graphs, full.ops, full.frames)


def test_watch_in_an_audited_test_has_its_graphs() -> None:
    def run() -> None:
        nonlocal seen
        compiled = torch.compile(lambda x: x.sin(), backend="aot_eager")
        with watch() as seen:
            compiled(torch.ones(3))

    seen: Any = None
    assert facts(run).graphs == 1
    seen.assert_op_counts({"aten.sin": 1})


def test_break_cause_is_identified_by_its_line_text() -> None:
    (cause,) = facts(call(breaking)).causes
    assert (cause.kind, cause.function, cause.code) == ("break", "breaking", 'print("hi")')
    assert cause.file.endswith("test_audit_facts.py")
    assert cause.line == breaking.__code__.co_firstlineno + 2
    assert replace(cause, line=cause.line + 1).key == cause.key


def test_code_without_a_tensor_op_compiles_nothing() -> None:
    recorded = facts(call(lambda x: 3))
    assert not recorded.compiles
    assert [(cause.kind, cause.text) for cause in recorded.causes] == [("nothing", NO_OPS)]


def later(function: Callable[..., object], *sizes: int) -> TestFacts:
    """Return the facts of calls of a function that was compiled and called before."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="eager", dynamic=False)
    compiled(torch.ones(3))
    recorder = EventRecorder(passive=True, with_graphs=False)
    with HUB.recording(recorder):
        for size in sizes:
            compiled(torch.ones(size))
    return facts_of(record_of(recorder))


def test_cached_run_counts_as_compiled() -> None:
    facts = later(lambda x: x.sin(), 3)
    assert (facts.calls, facts.graphs, facts.compiles, facts.causes) == (1, 0, True, ())
    assert facts.shared


@pytest.mark.parametrize(("sizes", "shared"), [((4,), True), ((4, 5), False)])
def test_recompile_of_the_tests_own_code_is_not_shared(
    sizes: tuple[int, ...], shared: bool
) -> None:
    facts = later(lambda x: x.sin(), *sizes)
    assert [(cause.kind, cause.shared) for cause in facts.causes] == [("recompile", shared)]
    assert facts.shared


def test_run_without_a_graph_depends_on_earlier_tests() -> None:
    facts = later(lambda x: 3, 3)
    assert [(cause.kind, cause.shared) for cause in facts.causes] == [("nothing", True)]
    assert facts.shared


@pytest.mark.usefixtures("unaudited")
def test_recompile_limit_names_the_code_and_marks_the_test_shared() -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def seen(size: int) -> TestFacts:
        recorder = EventRecorder(passive=True, with_graphs=False)
        with HUB.recording(recorder):
            torch.compile(double, backend="eager", dynamic=False)(torch.ones(size))
        return facts_of(record_of(recorder))

    torch._dynamo.reset()
    tests = [seen(size) for size in range(2, 5 + torch._dynamo.config.recompile_limit)]
    (limit,), (skipped,) = (facts.causes for facts in tests[-3:-1])
    assert (limit.kind, limit.function) == ("limit", "double")
    assert limit.line == double.__code__.co_firstlineno
    assert (skipped.kind, skipped.function, skipped.text) == ("nothing", "double", UNSEEN)
    assert all(facts.shared for facts in tests[1:])
    assert (tests[-1].calls, tests[-1].eager_calls) == (1, 1)


def test_a_lambda_that_breaks_under_fullgraph_is_one_cause() -> None:
    def run() -> None:
        with pytest.raises(torch._dynamo.exc.Unsupported):
            torch.compile(lambda x: print(x), backend="eager", fullgraph=True)(torch.ones(3))

    assert [cause.kind for cause in facts(run).causes] == ["break"]


def test_setting_that_disables_compilation_is_named() -> None:
    with torch._dynamo.config.patch(disable=True):
        recorded = facts(call(breaking))
    assert not recorded.compiles
    (cause,) = recorded.causes
    assert cause.kind == "nothing"
    assert "disable" in cause.text


def test_test_without_compiled_calls_has_no_facts() -> None:
    assert not facts(lambda: torch.ones(3).sin()).uses_compile


@pytest.mark.usefixtures("unaudited")
def test_internal_audit_error_is_reported_and_fails_no_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(metadata: object, payload: str) -> None:
        raise ValueError("unreadable")

    torch._dynamo.reset()
    monkeypatch.setattr("pytest_torchgraph.watching.observe.hub.read_event", fail)
    suite = SuiteWatch()
    suite.begin()
    torch.compile(lambda x: x.sin(), backend="eager")(torch.ones(3))
    assert suite.end("test") is None
    assert str(suite.broken) == "unreadable"
    suite.close()
    assert not HUB._open


@torch.compiler.disable
def disabled(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


class CallsCompiled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.function: Callable[..., Any] = torch.compile(lambda x: x.sin(), backend="eager")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.add(self.function(x), 1)


def run_nested_calls() -> torch.Tensor:
    """Call a compiled function from a compiled function, once both are warm."""
    inner = torch.compile(lambda x: x.sin(), backend="eager")
    call_inner = torch.compiler.disable(lambda x: inner(x))
    outer = torch.compile(lambda x: call_inner(x + 1) + 1, backend="eager")
    for _ in range(3):
        result = outer(torch.ones(3))
    return result


def run_captured_backward() -> torch.Tensor:
    x = torch.ones(3, requires_grad=True)
    with compiled_autograd._enable(torch.compile(backend="eager")):
        x.sin().sum().backward()
    assert x.grad is not None
    return x.grad


@pytest.mark.parametrize(
    ("broken", "run"),
    [
        (
            (CompiledCallables, "_explain_miss"),
            lambda: torch.compile(disabled, backend="eager")(torch.ones(3)),
        ),
        (
            (CompiledCallables, "traced"),
            lambda: torch.export.export(CallsCompiled(), (torch.ones(3),), strict=False),
        ),
        ((Executions, "capture"), run_captured_backward),
        ((observers, "_module_of"), lambda: call(breaking)()),
        ((CompiledCallables, "_judge_at_end"), run_nested_calls),
    ],
    ids=["skipped frame", "traced call", "captured backward", "break stack", "nested call"],
)
@pytest.mark.usefixtures("unaudited")
def test_internal_error_of_an_observer_does_not_end_the_users_call(
    monkeypatch: pytest.MonkeyPatch, broken: tuple[Any, str], run: Callable[[], object]
) -> None:
    if broken[1] == "traced":
        skip_before("2.11", "a compiled call in torch.export fails its own guards")
    calls: list[object] = []

    def fail(*args: object) -> None:
        calls.append(args)
        raise ValueError("unreadable")

    torch._dynamo.reset()
    monkeypatch.setattr(*broken, fail)
    recorder = EventRecorder(passive=True)
    with HUB.recording(recorder):
        run()
    assert calls
    assert str(recorder.broken) == "unreadable"


def test_facts_survive_json() -> None:
    recorded = facts(call(breaking, 3, 4))
    assert TestFacts.from_json(json.loads(json.dumps(recorded.to_json()))) == recorded


# -- the summary -------------------------------------------------------------------------------


def break_at(line: int, count: int = 1) -> Cause:
    return Cause("break", "net.py", "forward", "data-dependent", f"print({line})", line, count)


def of(*causes: Cause, compiles: bool = True, graphs: int = 1) -> TestFacts:
    graphs = graphs if compiles else 0
    return TestFacts(1, graphs, 0, 2 * graphs, 0.5, compiles, causes, ("net.py:forward:1",))


def test_summary_lists_a_cause_of_many_tests_once() -> None:
    facts_by_test = {f"test_net.py::test_{n}": of(break_at(7, count=2)) for n in range(40)}
    lines = list(summary_lines(facts_by_test, 50))
    assert lines == [
        "40 of 50 tests use torch.compile: 40 graphs, 80 ops, 80 graph breaks in 40 tests",
        " 40 tests  graph break at net.py:7 in forward: print(7)  test_net.py::test_0 and 39 more",
        "compiling took 20.0 s",
        "1 function is compiled by several tests (40 compilations)",
    ]


def test_summary_names_the_reason_of_a_recompile() -> None:
    cause = Cause("recompile", "net.py", "forward", "", "", 3, guard="self.calls: was 0, is 1")
    lines = list(summary_lines({"test_net": of(cause)}, 1))
    assert "   1 test  recompiled: net.py:3 in forward: self.calls: was 0, is 1  test_net" in lines


def test_tests_that_compile_nothing_come_first() -> None:
    nothing = Cause("nothing", "", "", NO_OPS, "", 0)
    facts_by_test = {f"test_{n}": of(break_at(7)) for n in range(9)}
    facts_by_test["test_empty"] = of(nothing, compiles=False)
    first, second, third, *_ = summary_lines(facts_by_test, 10)
    assert first.startswith("10 of 10 tests use torch.compile: 1 compiles nothing, 9 graphs, ")
    assert second == f"   1 test  nothing compiled: {NO_OPS}  test_empty"
    assert third.startswith("  9 tests  graph break at net.py:7 in forward")


def test_summary_joins_uncompiled_functions_by_reason() -> None:
    text = "the result of torch.compile was never called"
    facts_by_test = {
        f"test_{n}": of(
            Cause("nothing", f"tests/test_file_{n}.py", "test", text, "", n), compiles=False
        )
        for n in range(5)
    }
    line = list(summary_lines(facts_by_test, 5))[1]
    assert line.startswith(
        f"  5 tests  nothing compiled: tests/test_file_0.py:0 in test and 4 more functions: {text}"
    )


def test_the_summary_of_500_tests_fits_on_a_screen() -> None:
    nothing = Cause("nothing", "test_net.py", "test_net", NEVER_CALLED, "", 3)
    facts_by_test = {f"test_{n:03}": of(*map(break_at, range(n % 30))) for n in range(450)}
    facts_by_test |= {f"test_{n}": of(nothing, compiles=False) for n in range(450, 500)}
    settings = [LeakedSetting(f"torch._dynamo.config.s{n}", "0", "1", "test_1") for n in range(9)]
    lines = list(summary_lines(facts_by_test, 500, settings=settings))
    assert len(lines) <= 24
    first = "\n".join(lines[:5])
    assert "50 compile nothing" in first
    assert NEVER_CALLED in first
    assert "test_net.py:3 in test_net" in first
    assert "graph break at net.py:0 in forward: print(0)" in first
    assert f"{'':11}and 20 more causes (-v lists them)" in lines
    everything = list(summary_lines(facts_by_test, 500, verbose=True, settings=settings))
    assert sum("graph break at" in line for line in everything) == 29
    assert sum("torch._dynamo.config.s" in line for line in everything) == 9


def test_summary_separates_breaks_on_one_line_by_kind() -> None:
    other = replace(break_at(7), text="a call that is skipped")
    lines = list(summary_lines({"a": of(break_at(7)), "b": of(other)}, 2))
    assert [line for line in lines if "net.py:7" in line] == [
        "   1 test  graph break at net.py:7 in forward: a call that is skipped: print(7)  b",
        "   1 test  graph break at net.py:7 in forward: data-dependent: print(7)  a",
    ]


def test_summary_names_the_slowest_functions() -> None:
    first = replace(
        of(), frames=("net.py:3 forward", "net.py:9 loss"), frame_seconds=(1.0, 0.25), seconds=1.3
    )
    lines = list(summary_lines({"a": first, "b": first}, 2))
    assert "compiling took 2.6 s, 2.0 s of it for net.py:3 in forward (2 tests)" in lines


def test_summary_counts_eager_calls() -> None:
    lines = list(summary_lines({"a": replace(of(), calls=40, eager_calls=3)}, 2))
    assert "3 of 40 calls to compiled callables ran no compiled code" in lines


def test_summary_mentions_isolation() -> None:
    assert "isolated: Dynamo was reset before each test" in list(
        summary_lines({"a": of()}, 2, isolated=True)
    )


def test_summary_without_a_watch_gives_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    (line,) = summary_lines({}, 3)
    assert line.endswith("it is disabled by TORCHDYNAMO_DISABLE=1")


def test_summary_of_a_suite_without_torch_compile_says_so() -> None:
    assert list(summary_lines({}, 3)) == ["none of 3 tests uses torch.compile"]
