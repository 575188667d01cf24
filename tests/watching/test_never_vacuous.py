"""No assertion passes if nothing was compiled, and each message gives the cause."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from torch_releases import RELEASE
from watching.uncompiled_cases import COMPILES, SINCE_2_14, WAYS, compiled, ones, plain

from pytest_torchgraph import Capture, CaptureError, diff, watch

pytestmark = pytest.mark.filterwarnings("ignore:::torch")

Check = Callable[[Capture], Any]
ANY = (0, None)
BROKE = ["RNN", "Dynamic shape operator", "torch.compiler.disable", "backend='bad' raised"]
"""The subject of each way's breaks."""

NEED_COMPILED: dict[str, Check] = {
    "op_counts": lambda c: c.assert_op_counts({"aten.mul": (0, 100)}),
    "exact_op_counts": lambda c: c.assert_op_counts({"aten.*": ANY}, exact=True),
    "no_ops": lambda c: c.assert_no_ops("aten.mm"),
    "graph_count": lambda c: c.assert_graph_count(forward=ANY, backward=ANY),
    "default_graph_count": lambda c: c.assert_graph_count(),
    "any_total": lambda c: c.assert_graph_count(total=ANY),
    "no_breaks": lambda c: c.assert_no_graph_breaks(),
    "no_breaks_but": lambda c: c.assert_no_graph_breaks(allow=BROKE),
    "no_breaks_here": lambda c: c.assert_no_graph_breaks(within=__file__),
    "breaks": lambda c: c.assert_graph_breaks(count=ANY),
    "few_breaks": lambda c: c.assert_graph_breaks(max=100),
    "single_backward": lambda c: c.assert_single_backward_graph(),
}
NEED_RUNS: dict[str, Check] = {
    "no_graph": lambda c: c.assert_graph_count(total=0),
    "no_recompiles": lambda c: c.assert_no_recompiles(),
    "recompiles": lambda c: c.assert_recompiles(count=ANY),
    "few_recompiles": lambda c: c.assert_recompiles(max=100),
}
CHECKS = {**NEED_COMPILED, **NEED_RUNS}
FORWARD_ONLY = (
    "a backward that ran was compiled before the watch|compiled autograd captured no backward"
)

NOTHING = "no graph was compiled:|no compiled code ran:|no single backward graph:\nno compiled c"


def watched(run: Callable[[], Any]) -> Capture:
    with watch() as seen:
        run()
    return seen


def message_of(check: Check, seen: Capture) -> str:
    """Return the message of a check, which must fail."""
    with pytest.raises(AssertionError) as failure:
        check(seen)
    return str(failure.value)


@pytest.mark.parametrize("name", WAYS)
def test_every_check_fails_with_the_cause(name: str, graph_snapshot: Any) -> None:
    way = WAYS[name]
    seen = watched(way.make())
    for check, call in CHECKS.items():
        if way.ran and check in NEED_RUNS:
            call(seen)
            continue
        message = message_of(call, seen)
        if check == "single_backward" and (way.ran or seen.executions):
            assert re.search(FORWARD_ONLY, message)
        elif check == "no_breaks" and way.broke:
            # Before torch 2.13, Dynamo first compiles a function that has no file with its wrapper.
            *wrapper, found = seen.breaks
            assert len(wrapper) <= (RELEASE < (2, 13))
            count = len(seen.breaks)
            place = f"{found.file}:{found.line} in {found.function}: "
            assert f"expected 0, found {count}\n" in message
            assert f"\n  {count}. {place}" in message
            assert found.kind.removeprefix("frame skipped: ") in message
        else:
            assert re.search(way.cause, message), message
            assert re.match(NOTHING, message)
        assert not re.search(r"0x[0-9a-f]{6}|/site-packages/", message)
    for ask in (lambda: seen.forward, lambda: seen.backward, lambda: seen.at("aot")):
        with pytest.raises((CaptureError, AssertionError)) as failure:
            ask()
        assert re.search(rf"{way.cause}|no graph was captured", str(failure.value))
    assert seen.graphs == ()
    assert sum(seen.op_counts.values()) == 0
    message = message_of(lambda c: c == graph_snapshot, seen)
    assert message.startswith("no graph was compiled:")
    assert re.search(way.cause, message)


def test_ways_that_this_torch_compiles_are_seen() -> None:
    assert bool(COMPILES) == SINCE_2_14
    for make in COMPILES:
        assert watched(make()).executions, make.__name__


def test_two_empty_watches_are_not_equal() -> None:
    empty, other = watched(lambda: None), watched(lambda: None)
    for ask in (lambda: empty == other, lambda: diff(empty, other)):
        with pytest.raises(AssertionError, match=r"no graph was compiled:\n.*inside the watch"):
            ask()
    run = compiled(tripled)
    full = watched(lambda: run(ones()))
    assert empty != full
    assert full != empty
    assert [pair.before for pair in diff(empty, full).graphs] == [None]


@pytest.mark.slow("several changes at once are in every run")
@pytest.mark.parametrize("variable", ["TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"])
def test_environment_variable_that_disables_compilation_is_named(variable: str) -> None:
    script = Path(__file__).with_name("switched_off.py")
    done = subprocess.run(
        [sys.executable, str(script), *CHECKS],
        env={**os.environ, variable: "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("check ")]
    assert len(lines) == len(CHECKS)
    for line in lines:
        assert f"torch.compile is disabled by the environment variable {variable}=1" in line


# -- beside a compiled function --------------------------------------------------------------------


def tripled(x: Tensor) -> Tensor:
    return x * 3


@pytest.mark.parametrize("check", ["op_counts", "no_ops", "graph_count"])
def test_eager_call_beside_compiled_code_is_named_at_every_level(check: str) -> None:
    def run() -> None:
        compiled(plain, backend="aot_eager")(ones())
        with FlopCounterMode(display=False):
            compiled(tripled, backend="aot_eager")(ones())

    seen = watched(run)
    message = message_of(CHECKS[check], seen)
    assert "these calls ran eagerly" in message
    assert message_of(CHECKS[check], seen.at("aot")) == message


@pytest.mark.parametrize(
    "name", ["there_is_no_tensor", "only_the_decorator_ran", "an_argument_was_missing"]
)
def test_uncompilable_code_beside_compiled_code_is_not_a_failure(name: str) -> None:
    run, other = WAYS[name].make(), compiled(tripled)
    seen = watched(lambda: [run(), other(ones()), other(ones())])
    seen.assert_no_graph_breaks()
    seen.assert_no_recompiles()
    seen.assert_graph_count(total=1)


def test_watch_counts_calls() -> None:
    function = compiled(plain)

    def run() -> None:
        for _ in range(3):
            function(ones())
        torch._dynamo.reset()
        with FlopCounterMode(display=False):
            function(ones())
        function(ones())

    message = message_of(CHECKS["no_breaks"], watched(run))
    assert re.search(r"plain \(.*\): 1 of 5 calls ran eagerly: FlopCounterMode is act", message)
    if not SINCE_2_14:
        why = "1 of 5 calls ran eagerly: Dynamo skipped it"
        assert re.search(rf"plain \(.*\): {why}", message)


def test_compiled_code_runs_also_where_nothing_more_is_compiled() -> None:
    function = compiled(plain)

    def run() -> None:
        function(ones())
        with torch._dynamo.config.patch(disable=True):
            function(ones())

    seen = watched(run)
    assert seen.executions == {"0/0": 2}
    seen.assert_no_graph_breaks()


@pytest.mark.skipif(SINCE_2_14, reason="torch 2.14 looks at code that ran under a dispatch mode")
def test_a_silent_call_inside_another_compiled_one_is_named() -> None:
    inner = compiled(plain)
    with FlopCounterMode(display=False):
        inner(ones())

    @torch.compiler.disable
    def between(x: Tensor) -> Tensor:
        return inner(x)

    outer = compiled(lambda x: between(x + 1) * 2)
    outer(ones())
    message = message_of(CHECKS["no_recompiles"], watched(lambda: [outer(ones()), outer(ones())]))
    assert re.search(r"plain \(.*\): 2 of 2 calls ran eagerly: Dynamo skipped it", message)


def test_a_frame_given_up_is_explained_also_when_it_is_called_again() -> None:
    run = WAYS["a_frame_is_skipped"].make()
    message = message_of(CHECKS["op_counts"], watched(lambda: [run(), run(), run()]))
    assert "3 of 3 calls ran eagerly: Dynamic shape operator" in message


def test_watch_that_was_never_entered_fails_with_the_reason() -> None:
    never = watch()
    for check in CHECKS.values():
        with pytest.raises(AssertionError, match="the watch was not entered: use `with graph_ca"):
            check(never.capture)


# -- evidence of compilation -----------------------------------------------------------------------


def test_a_watch_passes_where_something_was_compiled_and_ran_twice() -> None:
    function = compiled(tripled)
    seen = watched(lambda: [function(ones()), function(ones())])
    for name, check in CHECKS.items():
        if name not in ("default_graph_count", "single_backward", "no_graph"):
            check(seen)
        elif name != "default_graph_count":
            message_of(check, seen)


def test_cached_graph_is_evidence_only_if_it_ran() -> None:
    seen = watched(WAYS["it_came_from_the_cache"].make())
    assert seen.executions == {"0/0": 1}
    for check in NEED_RUNS.values():
        check(seen)
    for name, check in NEED_COMPILED.items():
        assert name == "single_backward" or "served from Dynamo's cache" in message_of(check, seen)


def test_backward_is_evidence_that_compiled_code_ran() -> None:
    function = compiled(plain)
    loss = function(torch.ones(3, requires_grad=True)).sum()
    seen = watched(loss.backward)
    assert seen.executions == {"0/0 backward": 1}
    seen.assert_graph_count(total=0)
