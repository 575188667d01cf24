"""Each eager call of a compiled callable is listed, and fails the assertions that it affects."""

from __future__ import annotations

import dataclasses
import functools
import gc
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis.internal.conjecture import junkdrawer
from torch import Tensor, nn
from torch._C._dynamo.eval_frame import reset_code
from torch._dynamo.external_utils import wrap_inline
from torch_releases import skip_before
from watching import eager_cases
from watching.break_cases import BreaksInProperty
from watching.eager_cases import WAYS, beside, wavy

from pytest_torchgraph import Capture, CaptureError, EagerCall, capture, steady, watch
from pytest_torchgraph.audit import facts_of
from pytest_torchgraph.marker import find_problems
from pytest_torchgraph.settings.limits import Limits

pytestmark = pytest.mark.filterwarnings("ignore:::torch", "ignore::torch.jit.TracerWarning")

OWN_CODE = pytest.mark.skipif(
    torch.__version__.startswith(("2.9.", "2.10.", "2.11.", "2.12.")),
    reason="this torch compiles all functions that have no file as one wrapper",
)
LISTED = [name for name, way in WAYS.items() if way.kind]
REFUSED = [name for name, way in WAYS.items() if not way.kind]


def ones() -> Tensor:
    return torch.ones(4)


LOCK = threading.Lock()


def takes_lock(x: Tensor) -> Tensor:
    with LOCK:
        return x.sin().cos()


def calls_helper(x: Tensor) -> Tensor:
    return takes_lock(x)


def sometimes(x: Tensor, whole: bool) -> Tensor:
    if whole:
        return x.sin()
    with open(os.devnull):
        return x.cos()


def watched(step: Callable[[Tensor], Any]) -> Capture:
    with watch() as seen:
        step(ones())
    return seen


@functools.cache
def seen_by_watch(name: str) -> Capture:
    torch._dynamo.reset()
    return watched(beside(name))


# -- the list --------------------------------------------------------------------------------------


def skip_differences(name: str, *, counted: bool = True) -> None:
    """Skip a case that an older torch runs differently. `counted`: the test counts the calls."""
    if name == "torch_is_exporting":
        skip_before("2.11", "AOTAutograd refuses fake tensors that Dynamo got as inputs")
    if counted and name in ("recompile_limit", "accumulated_limit"):
        skip_before("2.13", "Dynamo compiles functions that have no file as one wrapper")


@pytest.mark.parametrize("name", LISTED)
def test_an_eager_call_in_a_watch_is_listed(name: str) -> None:
    skip_differences(name)
    way, seen = WAYS[name], seen_by_watch(name)
    assert sum(seen.op_counts.values()) > 0  # another function was compiled
    (call,) = seen.eager_calls
    assert call.kind == way.kind
    assert re.search(way.reason, call.reason)
    assert call.count == 1
    assert not call.function.startswith("tame")


@pytest.mark.parametrize("name", ["forced_eager", "recompile_limit", "a_frame_is_skipped"])
def test_an_eager_call_in_the_steady_state_is_listed(name: str) -> None:
    skip_differences(name)
    seen = steady(beside(name), (ones(),), (ones(),), (ones(),))
    assert {call.kind for call in seen.eager_calls} == {WAYS[name].kind}
    assert sum(call.count for call in seen.eager_calls) == 2
    with pytest.raises(AssertionError, match="these calls ran eagerly"):
        seen.assert_no_recompiles()


@pytest.mark.parametrize("name", REFUSED)
def test_refused_call_is_not_listed_as_eager(name: str) -> None:
    step = beside(name)
    with watch() as seen, pytest.raises(RuntimeError, match=WAYS[name].reason):
        step(ones())
    assert seen.eager_calls == ()
    with pytest.raises(RuntimeError, match=WAYS[name].reason):
        steady(beside(name), (ones(),), (ones(),))


@pytest.mark.parametrize("name", LISTED)
def test_the_marker_names_an_eager_call(name: str) -> None:
    skip_differences(name, counted=False)
    limits = Limits(max_graph_breaks=None, max_recompiles=None)
    messages = [str(error) for _, error in find_problems(seen_by_watch(name), limits)]
    assert re.search(WAYS[name].reason, "\n".join(messages))
    allowed = dataclasses.replace(limits, allow=(f"{WAYS[name].kind}: ",))
    assert [*find_problems(seen_by_watch(name), allowed)] == []


@pytest.mark.parametrize("name", LISTED)
def test_the_audit_has_a_cause_for_an_eager_call(name: str) -> None:
    skip_differences(name)
    way, facts = WAYS[name], facts_of(seen_by_watch(name).watched)  # type: ignore[arg-type]
    assert facts.eager_calls == 1
    causes = [cause for cause in facts.causes if cause.kind != "recompile"]
    if way.broke or way.kind == "limit":
        assert {cause.kind for cause in causes} <= {"break", "limit", "eager"}
        assert causes
    else:
        assert any(re.search(way.reason, cause.text) for cause in causes)


# -- the assertions --------------------------------------------------------------------------------

CHECKS: dict[str, Callable[..., Any]] = {
    "no_recompiles": lambda c, **k: c.assert_no_recompiles(**k),
    "recompiles": lambda c, **k: c.assert_recompiles(max=9, **k),
    "no_breaks": lambda c, **k: c.assert_no_graph_breaks(**k),
    "breaks": lambda c, **k: c.assert_graph_breaks(count=(0, None), **k),
    "graph_count": lambda c, **k: c.assert_graph_count(forward=1, **k),
    "no_new_graph": lambda c, **k: c.assert_graph_count(total=(0, 9), **k),
    "op_counts": lambda c, **k: c.assert_op_counts({"aten.sin": 1}, **k),
    "no_ops": lambda c, **k: c.assert_no_ops("aten.mm", **k),
    "find": lambda c, **k: c.find("aten.sin", **k),
    "count": lambda c, **k: c.count("aten.sin", **k),
    "find_pattern": lambda c, **k: c.find_pattern("aten.sin -> aten.mul", **k),
    "pattern": lambda c, **k: c.assert_pattern("aten.sin -> aten.mul", **k),
    "no_pattern": lambda c, **k: c.assert_no_pattern("aten.mm -> aten.mm", **k),
    "order": lambda c, **k: c.assert_order("aten.sin", "aten.mul", **k),
}


@pytest.fixture(scope="module")
def beside_a_stance() -> Capture:
    function, eager = torch.compile(lambda x: x.sin() * 2, backend="aot_eager"), wavy()

    def step(x: Tensor) -> None:
        function(x)
        function(x)
        with torch.compiler.set_stance("force_eager"):
            eager(x)
            eager(x)

    return watched(step)


@pytest.mark.parametrize("check", CHECKS)
def test_an_assertion_fails_and_names_the_calls_unless_they_are_allowed(
    check: str, beside_a_stance: Capture
) -> None:
    with pytest.raises(AssertionError) as failure:
        CHECKS[check](beside_a_stance)
    assert re.fullmatch(
        "the graphs are incomplete, because these calls ran eagerly:\n"
        r"  wavy_\d+: 2 of 2 calls ran eagerly: torch.compiler.set_stance\('force_eager'\) is "
        r'active\nto allow them, pass allow=\["stance: "\]',
        str(failure.value),
    )
    with pytest.raises(AssertionError, match="these calls ran eagerly"):
        CHECKS[check](beside_a_stance, allow="limit: ")
    CHECKS[check](beside_a_stance, allow="stance: ")
    CHECKS[check](beside_a_stance, allow=["limit: ", "force_eager"])


def test_a_check_without_allow_does_not_offer_it(beside_a_stance: Capture) -> None:
    with pytest.raises(AssertionError) as failure:
        beside_a_stance.assert_distinct_graphs(1)
    assert "wavy" in str(failure.value)
    assert "allow" not in str(failure.value)


def test_a_snapshot_of_only_a_part_fails(beside_a_stance: Capture, graph_snapshot: Any) -> None:
    with pytest.raises(AssertionError, match="the graphs are incomplete, because these calls ran"):
        assert beside_a_stance == graph_snapshot


def test_an_eager_call_says_where_its_function_begins() -> None:
    (call,) = seen_by_watch("a_frame_is_skipped").eager_calls
    assert isinstance(call, EagerCall)
    assert (call.function, call.line) == ("rows", eager_cases.rows.__code__.co_firstlineno)
    assert call.file.endswith("watching/eager_cases.py")
    assert str(call).startswith(f"rows ({call.file}:{call.line}): its call ran eagerly: Dynamic")


class Wrapped(nn.Module):
    @torch.compiler.disable
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


def decorated(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    @functools.wraps(function)
    def wrapper(x: Tensor) -> Tensor:
        return function(x)

    return wrapper


class Called:
    def __call__(self, x: Tensor) -> Tensor:
        return x * 5


def plain(x: Tensor) -> Tensor:
    return x * 6


@pytest.mark.parametrize(
    ("target", "name", "code"),
    [
        (Wrapped(), "Wrapped", "return x * 2"),
        (Called(), "Called", "return x * 5"),
        (torch.no_grad()(torch.compiler.disable(plain)), "plain", "return x * 6"),
        (torch.compiler.disable(functools.partial(decorated(plain))), "plain", "return x * 6"),
    ],
    ids="forward object no_grad all".split(),
)
def test_an_eager_call_says_where_the_wrapped_function_begins(
    target: Any, name: str, code: str
) -> None:
    with watch() as seen, torch.compiler.set_stance("force_eager"):
        torch.compile(target, backend="eager")(torch.ones(3))
    (call,) = seen.eager_calls
    lines = Path(__file__).read_text().splitlines()
    assert (call.function, Path(call.file).name) == (name, "test_eager_calls.py")
    assert code in "".join(lines[call.line - 1 : call.line + 2])


def test_a_capture_of_one_step_has_no_list_of_calls() -> None:
    with pytest.raises(
        CaptureError,
        match=r"eager_calls is not available on .*: use graph_capture\.watch\(\)",
    ):
        _ = capture(lambda x: x.sin(), ones(), via="aot").eager_calls


def test_a_part_of_a_watch_has_the_calls_of_that_part(beside_a_stance: Capture) -> None:
    assert beside_a_stance.only(function="wavy*").eager_calls != ()
    assert beside_a_stance.only(function="*lambda*").eager_calls == ()


# -- no false alarm --------------------------------------------------------------------------------


def identity(x: Tensor) -> Tensor:
    return x


def checked(x: Tensor) -> Tensor:
    if x.ndim != 1:
        raise ValueError("one dimension, please")
    return x.sin()


def fails(x: Tensor) -> None:
    with pytest.raises(ValueError, match="one dimension"):
        torch.compile(checked, backend="eager")(torch.ones(2, 2))


def breaks_under_fullgraph(x: Tensor) -> None:
    def broken(x: Tensor) -> Tensor:
        print(x)
        return x.sin()

    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(broken, backend="eager", fullgraph=True)(x)


def inlined(x: Tensor) -> Tensor:
    inner = wavy()
    return torch.compile(lambda x: inner(x) + 1, backend="eager")(x)


def inside_a_disabled_function(x: Tensor) -> Tensor:
    inner = wavy()
    between = torch.compiler.disable(lambda x: torch.compile(inner, backend="eager")(x))
    return torch.compile(lambda x: between(x + 1) * 2, backend="eager")(x)


def under_aot_eager_then_compile(x: Tensor) -> Tensor:
    with torch.compiler.set_stance("aot_eager_then_compile"):
        return wavy()(x)


def hit_under_a_stance(x: Tensor) -> Tensor:
    function = wavy()
    function(x)
    with torch.compiler.set_stance("eager_on_recompile"):
        return function(x)


def served_while_the_config_disables(x: Tensor) -> Tensor:
    function = wavy()
    function(x)
    with torch._dynamo.config.patch(disable=True):
        return function(x)


def first_of_all_print(x: Tensor) -> Tensor:
    def greets(x: Tensor) -> Tensor:
        print("hi")
        return x.sin()

    function = torch.compile(greets, backend="eager")
    function(x)
    return function(x)


class Passes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


def a_module_without_ops(x: Tensor) -> Tensor:
    return torch.compile(Passes(), backend="eager")(x)


@pytest.mark.parametrize(
    "step",
    [
        torch.compile(identity, backend="eager"),
        lambda x: torch.compile(lambda n: n + 1, backend="eager")(3),
        fails,
        breaks_under_fullgraph,
        inlined,
        inside_a_disabled_function,
        under_aot_eager_then_compile,
        hit_under_a_stance,
        served_while_the_config_disables,
        first_of_all_print,
        a_module_without_ops,
    ],
)
def test_compiled_calls_are_not_listed_as_eager(step: Any) -> None:
    for _ in ("cold", "warm"):
        assert watched(lambda x: [step(x), step(x)]).eager_calls == ()


def test_nested_compiled_calls_are_judged_separately() -> None:
    """The outer call gets compiled code after the inner call has returned."""
    inner = wavy()
    inner(ones())

    @torch.compiler.disable
    def between(x: Tensor) -> Tensor:
        with torch.compiler.set_stance("eager_on_recompile"):
            return inner(torch.ones(7))

    outer = torch.compile(lambda x: between(x + 1) * 2, backend="eager")
    outer(ones())
    (call,) = watched(lambda x: [outer(x), outer(x)]).eager_calls
    assert (call.function[:4], call.kind, call.count, call.calls) == ("wavy", "stance", 2, 2)


@pytest.fixture
def wrapper_as_before() -> Iterator[None]:
    """Remove the mark that torch 2.13 leaves on the code that wraps its layers."""
    yield
    reset_code(wrap_inline(len).__code__)


@pytest.mark.usefixtures("wrapper_as_before")
def test_a_layer_without_ops_makes_other_layers_of_torch_run_eagerly() -> None:
    """Both are wrapped in the same function, and torch 2.13 marks its code as skipped."""
    identity = torch.compile(nn.Identity(), backend="eager")
    linear = torch.compile(nn.Linear(4, 4), backend="eager")
    seen = watched(lambda x: [identity(x), identity(x), linear(x), linear(x)])
    eager, compiled = sum(call.count for call in seen.eager_calls), sum(seen.executions.values())
    assert {call.function for call in seen.eager_calls} <= {"Linear"}
    marked = [call.reason for call in seen.eager_calls if "marked as skipped" in call.reason]
    assert all("one such layer marks it for all" in reason for reason in marked)
    assert eager + compiled == 2


# -- Dynamo compiled some code of the call, but no graph ran --------------------------------------


def truth(target: Any, calls: int, warm: bool = False) -> tuple[Capture, list[EagerCall], int]:
    """Watch calls beside compiled calls. Return also the eager calls, and all graph runs."""
    runs: list[None] = []

    def backend(module: Any, inputs: Any) -> Any:
        return lambda *arguments: [runs.append(None), module(*arguments)][1]

    compiled = torch.compile(target, backend=backend)
    tame = torch.compile(lambda x: x.tan(), backend="eager")
    if warm:
        compiled(ones())
    with watch() as seen:
        for _ in range(calls):
            compiled(ones())
        tame(ones())
        tame(ones())
    return seen, list(seen.eager_calls), len(runs)


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("target", [takes_lock, BreaksInProperty()])
def test_call_that_runs_no_graph_because_a_frame_was_skipped_is_listed(
    target: Any, warm: bool
) -> None:
    torch._dynamo.reset()
    seen, calls, runs = truth(target, 2, warm)
    assert runs == 0
    (call,) = calls
    assert (call.kind, call.count, call.calls) == ("skipped", 2, 2)
    assert re.search(
        r"Unsupported context manager|non-Tensor|torch\._dynamo\.graph_break", call.reason
    )
    for check in (seen.assert_no_recompiles, lambda: seen.at("dynamo").assert_no_ops("aten.mm")):
        with pytest.raises(AssertionError, match="these calls ran eagerly"):
            check()
    problems = find_problems(seen, Limits(max_graph_breaks=None))
    assert "these calls ran eagerly" in "".join(str(error) for _, error in problems)


def test_call_whose_helper_was_skipped_is_listed() -> None:
    torch._dynamo.reset()
    _, (call,), _ = truth(calls_helper, 2)
    assert (call.function, call.count) == ("calls_helper", 2)
    assert "takes_lock at " in call.reason


def only_prints(x: Tensor) -> Tensor:
    print("hi")
    return x


@pytest.mark.parametrize(
    "target",
    [
        only_prints,
        calls_helper,
        lambda x: x.nonzero(),
        nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (4, 1)), nn.BatchNorm1d(1, momentum=None)),
    ],
)
def test_warm_call_whose_code_has_no_graph_is_listed(target: Any) -> None:
    """The breaks are from before the watch, so nothing else says that the call ran eagerly."""
    torch._dynamo.reset()
    seen, (call,), runs = truth(target, 2, warm=True)
    assert (call.kind, call.count, call.calls, runs) == ("skipped", 2, 2, 0)
    for check in (seen.assert_no_graph_breaks, seen.assert_no_recompiles):
        with pytest.raises(AssertionError, match="these calls ran eagerly"):
            check()


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_calls_that_run_no_graph_are_listed_beside_calls_that_run_one(warm: bool) -> None:
    torch._dynamo.reset()
    function = torch.compile(sometimes, backend="eager")
    step = lambda x: [function(x, whole) for whole in (True, False, True, False)]  # noqa: E731
    if warm:
        step(ones())
    (call,) = watched(step).eager_calls
    assert (call.count, call.calls) == (2, 4)


def test_call_that_runs_no_graph_is_listed_in_steady_nested_watches_and_threads() -> None:
    torch._dynamo.reset()
    function = torch.compile(takes_lock, backend="eager")
    with watch() as outer:
        function(ones())
        with watch() as inner:
            thread = threading.Thread(target=function, args=(ones(),))
            thread.start()
            thread.join()
    seen = steady(function, (ones(),), (ones(),), (ones(),))
    assert [[call.count for call in c.eager_calls] for c in (outer, inner, seen)] == [[2], [1], [2]]


# -- Dynamo skips code in which it once found no op -----------------------------------------------


def scales(x: Tensor, by: Tensor | None = None) -> Tensor:
    return x if by is None else x * by


def scales_the_cosine(x: Tensor, by: Tensor | None = None) -> Tensor:
    return x if by is None else cosine(x) * by


def cosine(x: Tensor) -> Tensor:
    return x.cos()


def adds_one(number: Any) -> Any:
    return number + 1


class Gate(nn.Module):
    def forward(self, x: Tensor, by: Tensor | None = None) -> Tensor:
        return x if by is None else x * by


HALF = torch.full((4,), 0.5)


@pytest.mark.parametrize(
    ("target", "calls", "eager"),
    [
        (scales, [(), (HALF,)], 1),
        (scales, [(HALF,), (), (HALF,), (HALF,)], 2),
        (scales_the_cosine, [(), (HALF,), (HALF,)], 2),  # a part of it is compiled
        (Gate(), [(), (HALF,)], 1),
        (adds_one, [(), ()], 0),
    ],
)
def test_call_skipped_because_an_earlier_one_had_no_op_is_listed(
    target: Any, calls: list[Any], eager: int
) -> None:
    torch._dynamo.reset()
    function, tame = (torch.compile(f, backend="eager") for f in (target, lambda x: x.tan()))
    with watch() as seen:
        tame(ones())
        for arguments in calls:
            function(ones(), *arguments)
    assert sum(call.count for call in seen.eager_calls) == eager
    if eager:
        (call,) = seen.eager_calls
        assert (call.kind, call.calls) == ("skipped", len(calls))
        assert "found no tensor operations in an earlier call" in call.reason
        for check in (
            seen.assert_no_graph_breaks,
            lambda: seen.at("dynamo").assert_no_ops("operator.mul"),
        ):
            with pytest.raises(AssertionError, match="no tensor operations in an earlier call"):
                check()
        assert find_problems(seen, Limits(max_graph_breaks=0))
        with pytest.raises(AssertionError, match="no tensor operations in an earlier call"):
            steady(function, (ones(),), (ones(), HALF)).assert_no_recompiles()


def test_call_skipped_because_one_before_the_watch_had_no_op_is_listed() -> None:
    torch._dynamo.reset()
    function = torch.compile(scales, backend="eager")
    function(ones())
    (call,) = watched(
        lambda x: [function(x, x), torch.compile(cosine, backend="eager")(x)]
    ).eager_calls
    assert (call.count, call.calls) == (1, 1)
    torch._dynamo.reset()
    assert watched(lambda x: [function(x, x), function(x, x)]).eager_calls == ()


def test_numbers_in_a_call_skipped_for_its_first_numbers_compute_nothing() -> None:
    torch._dynamo.reset()
    function = torch.compile(adds_one, backend="eager")
    (call,) = watched(lambda x: [function(1), function(2), function(x), function(3)]).eager_calls
    assert (call.count, call.calls) == (1, 4)


def test_reason_of_a_skipped_call_is_not_that_of_code_which_it_calls() -> None:
    """torch has the code of a custom op in files that Dynamo skips."""

    @torch.library.custom_op("skipped_calls::tick", mutates_args=())
    def tick(x: Tensor) -> Tensor:
        return x * 1

    @tick.register_fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    torch._dynamo.reset()
    function = torch.compile(lambda x, n: None if n == 0 else tick(x), backend="eager")
    (call,) = watched(lambda x: [function(x, n) for n in (0, 1, 2)]).eager_calls
    assert (call.count, call.calls) == (2, 3)
    assert "an earlier call" in call.reason


# -- calls that raise, run-only mode ---------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [{"error_on_recompile": True}, {"recompile_limit": 1, "fail_on_recompile_limit_hit": True}],
)
def test_call_that_raises_at_a_recompile_is_not_listed(settings: dict[str, Any]) -> None:
    torch._dynamo.reset()
    function = torch.compile(lambda x, n: x.sin() + len(n), backend="eager")
    with watch() as seen, torch._dynamo.config.patch(**settings):
        function(ones(), "a")
        with pytest.raises(Exception, match=r"[Rr]ecompil"):
            function(ones(), "ab")
        function(ones(), "a")
    assert seen.eager_calls == ()


def test_call_that_raises_at_the_recompile_limit_is_not_listed() -> None:
    def raises(x: Tensor, text: str) -> Tensor:
        if len(text) > 1:
            raise ValueError(text)
        return x * len(text)

    torch._dynamo.reset()
    function = torch.compile(raises, backend="eager")
    with watch() as seen, torch._dynamo.config.patch(recompile_limit=1):
        function(ones(), "a")
        for _ in range(2):
            with pytest.raises(ValueError, match="ab"):
                function(ones(), "ab")
    assert all(call.count == 1 for call in seen.eager_calls)  # the limit itself


def test_call_in_run_only_mode_is_listed_with_this_reason() -> None:
    torch._dynamo.reset()

    def scaled(x: Tensor, text: str) -> Tensor:
        x = x.sin()
        torch._dynamo.graph_break()
        return x * len(text)

    function = torch.compile(scaled, backend="eager")
    function(ones(), "a")
    run_only = torch._dynamo.run(function)
    seen = watched(lambda x: [run_only(x, "a"), run_only(x, "ab"), function(x, "a")])
    (call,) = seen.eager_calls
    assert (call.kind, call.reason) == ("disabled", "torch._dynamo.run compiles nothing")
    assert (call.count, call.calls) == (1, 3)


# -- resets ----------------------------------------------------------------------------------------


@OWN_CODE
def test_a_function_that_compiles_again_after_a_reset_is_a_recompile() -> None:
    function, other = wavy(), wavy()

    def step(x: Tensor) -> None:
        function(x)
        torch._dynamo.reset()
        other(x)
        function(x)

    seen = watched(step)
    (again,) = seen.recompiles
    assert again.function.startswith("wavy")
    assert again.reasons == ("torch._dynamo.reset() cleared the earlier compilations",)
    with pytest.raises(AssertionError, match=r"expected 0, found 1\n.*torch\._dynamo\.reset\(\)"):
        seen.assert_no_recompiles()


def test_function_that_compiles_again_after_reset_code_is_a_recompile() -> None:
    def again(x: Tensor) -> Tensor:
        return x.sin()

    torch._dynamo.reset()
    function = torch.compile(again, backend="eager")

    def step(x: Tensor) -> Tensor:
        function(x)
        reset_code(again.__code__)
        return function(x)

    (recompile,) = (seen := watched(step)).recompiles
    assert recompile.function.endswith("again")
    assert recompile.reasons == (
        "torch._dynamo.reset_code() or reset() cleared the earlier compilations",
    )
    with pytest.raises(AssertionError, match=r"expected 0, found 1\n.*reset_code\(\)"):
        seen.assert_no_recompiles()


@pytest.mark.parametrize("reset", ["reset", "compiler", "code", "none"])
def test_warm_function_that_compiles_again_after_a_reset_is_a_recompile(reset: str) -> None:
    def warm(x: Tensor) -> Tensor:
        return x.sin()

    resets: dict[str, Callable[[], object]] = {
        "reset": torch._dynamo.reset,
        "compiler": torch.compiler.reset,
        "code": lambda: reset_code(warm.__code__),
        "none": lambda: None,
    }
    function, calls = torch.compile(warm, backend="eager"), []

    def step(x: Tensor) -> Tensor:
        result = function(x)
        calls.append(x)
        if len(calls) % 2 == 0:
            resets[reset]()
        return result

    step(ones())
    twice = watched(lambda x: (step(x), step(x)))
    calls.clear()
    for seen in (twice, steady(step, (ones(),), (ones(),), (ones(),))):
        if reset == "none":
            seen.assert_no_recompiles()
            continue
        with pytest.raises(AssertionError, match=r"found 1\n.*reset_code\(\) or reset\(\)"):
            seen.assert_no_recompiles()


def test_new_function_after_a_warm_call_is_not_a_recompile() -> None:
    skip_before("2.13", "Dynamo compiles functions that have no file as one wrapper")
    scopes: list[dict[str, Any]] = [{}, {}]
    for scope in scopes:
        exec(compile("def twin(x): return x.sin()", "/twin.py", "exec"), scope)
    first, second = (torch.compile(scope["twin"], backend="eager") for scope in scopes)
    first(ones())
    watched(lambda x: (first(x), second(x))).assert_no_recompiles()


def test_garbage_collection_is_not_an_eager_call() -> None:
    # hypothesis has such a callback, in a file that Dynamo skips. A collection can start anywhere.
    made: dict[str, Any] = {"torch": torch}
    source = "def on_collection(phase, info):\n    return phase or torch\n"
    exec(compile(source, junkdrawer.__file__, "exec"), made)
    passes = torch.compile(Passes(), backend="eager")
    passes(ones())
    before = gc.get_threshold()
    gc.callbacks.append(made["on_collection"])
    gc.set_threshold(1, 1, 1)
    try:
        found = watched(lambda x: [passes(x) for _ in range(30)]).eager_calls
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(made["on_collection"])
    assert found == ()
