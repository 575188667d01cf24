"""A watch changes nothing that the watched code computes, compiles, counts or caches."""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
import threading
import time
import tracemalloc
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo.compiled_autograd as engine
from torch import Tensor, nn
from torch._C._dynamo import eval_frame
from torch._C._dynamo.eval_frame import set_guard_complete_hook
from torch._dynamo.eval_frame import skip_code
from torch._dynamo.utils import counters
from watching import hook_cases, hooks_installed, recompile_cases
from watching.break_cases import Block
from watching.uncompiled_cases import SINCE_2_14

import pytest_torchgraph
from pytest_torchgraph import Capture, watch
from pytest_torchgraph.watching import HUB

pytestmark = pytest.mark.filterwarnings("ignore:::torch", "ignore:The .grad attribute")

OURS = str(Path(pytest_torchgraph.__file__).parent)


def ones(*size: int, **options: Any) -> Tensor:
    return torch.ones(*(size or (3,)), **options)


def compiled(target: Any, backend: str = "eager", **options: Any) -> Any:
    return torch.compile(target, backend=backend, **options)


# -- equal results with and without a watch --------------------------------------------------------


def trained(backend: str) -> list[Any]:
    model = Block()
    step = compiled(model, backend)
    found = []
    for size in (2, 2, 4):
        model.zero_grad()
        loss = step(ones(size, 3)).square().mean()
        loss.backward()
        found += [loss, *(p.grad for p in model.parameters())]
    return found


def broken(backend: str) -> list[Any]:
    function = compiled(hook_cases.three_parts, backend)
    x = ones(4, requires_grad=True)
    loss = function(x)
    loss.backward()
    return [loss, x.grad]


def recompiled(backend: str) -> list[Any]:
    function = compiled(recompile_cases.doubled, backend, dynamic=False)
    return [function(ones(n)) for n in range(2, 14)]


def switched(backend: str) -> list[Any]:
    net = recompile_cases.Net()
    function = compiled(net, backend)
    found = [function(ones(4))]
    function.eval()
    with torch.no_grad():
        found += [function(ones(4)), function(ones(4))]
    return found


def taken_over(backend: str) -> list[Any]:
    model = hook_cases.Model()
    with torch._dynamo.config.patch(compiled_autograd=True):
        step = compiled(hook_cases.train, backend)
        for _ in range(3):
            step(model, ones(10))
    return [parameter.grad for parameter in model.parameters()]


def in_place(backend: str) -> list[Any]:
    def function(x: Tensor) -> Tensor:
        x.add_(1)
        return torch.rand(3) + x

    call, x = compiled(function, backend), ones()
    return [call(x), call(x), x]


SUBJECTS = (trained, broken, recompiled, switched, taken_over, in_place)


def run(subject: Callable[[str], list[Any]], backend: str, around: Any) -> tuple[Any, ...]:
    """Return everything observable about a run with a fresh compiler state."""
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    with around:
        values = [each.detach().clone() for each in subject(backend)]
    counted = {name: dict(group) for name, group in counters.items()}
    state = torch.random.get_rng_state()
    return values, counted, state


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def check_equal(a: tuple[Any, ...], b: tuple[Any, ...], but: str = "") -> None:
    (values, counted, state), (values_b, counted_b, state_b) = a, b
    assert {**counted, but: {}} == {**counted_b, but: {}}
    assert len(values) == len(values_b)
    assert all(torch.equal(x, y) for x, y in zip(values, values_b, strict=True))
    assert torch.equal(state, state_b)


@pytest.mark.slow("further models and backends", unless=["in_place*"])
@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("subject", SUBJECTS)
def test_outputs_gradients_and_counters_are_the_same(subject: Any, backend: str) -> None:
    run(subject, backend, contextlib.nullcontext())  # warms up, once per process
    without = run(subject, backend, contextlib.nullcontext())
    seen = watch()
    within = run(subject, backend, seen)
    # If compiled autograd captures in compiled code, Dynamo is active while the trace is written
    # and its count of the frames that it inspected includes those of logging and json.
    check_equal(without, within, but="frames" if subject is taken_over else "")
    assert seen.capture.executions
    stats = without[1]["stats"]
    assert stats["unique_graphs"] > 0
    # The watch's own figures equal the counters.
    told = {name: dict(group) for name, group in seen.capture.counters.items()}
    assert told == {name: group for name, group in within[1].items() if group}


@pytest.mark.slow("runs pytest in a new process")
@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("subject", [broken, taken_over, in_place])
def test_inductor_with_a_watch_is_equal_cold_and_warm(
    subject: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for name, around in (("without", contextlib.nullcontext()), ("within", watch())):
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / name))
        found[name] = [run(subject, "inductor", around) for _ in range(2)]
    (cold, warm), (cold_within, warm_within) = found.values()
    check_equal(warm, warm_within, but="frames" if subject is taken_over else "")
    assert sum(warm[1]["inductor"][name] for name in warm[1]["inductor"] if "cache_hit" in name)
    # Imports and objects created once per process are counted only in the first run.
    assert all(map(torch.equal, cold[0], cold_within[0]))
    assert cold[1]["stats"] == cold_within[1]["stats"]


# -- changes in torch are undone -------------------------------------------------------------------


@pytest.mark.usefixtures("unaudited")
def test_watch_restores_all_hooks() -> None:
    function = compiled(recompile_cases.scaled, "aot_eager")
    function(ones(), 2)
    before = hooks_installed.patched()
    names = dict(hooks_installed.graphs())
    with watch():
        during = hooks_installed.patched()
        function(ones(), 2)
        function(ones(requires_grad=True), 3).sum().backward()
        with engine._enable(torch.compile(backend="eager")):
            (ones(requires_grad=True) * 2).sum().backward()
    after = hooks_installed.patched()
    assert after == before
    assert all(dict(hooks_installed.graphs())[name] is value for name, value in names.items())
    skip = "skip" if before["skip"] else "convert"
    for part in ("hook", "entry", skip, "capture", "reset", "handlers", "graphs"):
        assert during[part] != before[part], part


@pytest.mark.usefixtures("unaudited")
def test_watch_restores_all_hooks_if_the_body_raises() -> None:
    before = hooks_installed.patched()
    function = compiled(recompile_cases.doubled)
    seen = watch()
    with pytest.raises(KeyError, match="mine"), seen:
        {}["mine"] if function(ones()) is not None else None
    assert hooks_installed.patched() == before
    assert seen.capture.executions == {"0/0": 1}
    function(ones())
    assert seen.capture.executions == {"0/0": 1}


def test_exceptions_of_compiled_code_pass_unchanged() -> None:
    def raises(x: Tensor) -> Tensor:
        raise KeyError("mine")

    for around in (contextlib.nullcontext(), watch()):
        torch._dynamo.reset()
        with around, pytest.raises(KeyError, match="'mine'") as caught:
            compiled(raises)(ones())
        files = [entry.path for entry in caught.traceback]
        assert not any(str(file).startswith(OURS) for file in files)


@pytest.mark.usefixtures("unaudited")
def test_third_party_hook_is_called_and_restored() -> None:
    found = []

    def theirs(hit: bool) -> bool:
        found.append(hit)
        return True

    before = set_guard_complete_hook(theirs)
    try:
        function = compiled(recompile_cases.doubled)
        with watch() as seen:
            function(ones())
            function(ones())
            function(ones())
        assert found == [True, True]
        function(ones())
        assert found == [True, True, True]
        now = set_guard_complete_hook(theirs)
        assert now is theirs
    finally:
        set_guard_complete_hook(before)
    seen.assert_no_recompiles()
    assert seen.executions == {"0/0": 3}


def test_third_party_hook_that_refuses_is_obeyed() -> None:
    before = set_guard_complete_hook(lambda hit: False)
    try:
        function = compiled(recompile_cases.doubled)
        without = function(ones()), function(ones())
        frames = counters["stats"]["unique_graphs"]
        torch._dynamo.reset()
        counters.clear()
        with watch():
            within = function(ones()), function(ones())
        assert counters["stats"]["unique_graphs"] == frames
        assert all(map(torch.equal, without, within))
    finally:
        set_guard_complete_hook(before)


@pytest.mark.usefixtures("unaudited")
def test_hook_installed_inside_a_watch_is_called_beside_ours_and_kept() -> None:
    hits = []

    def theirs(hit: bool) -> bool:
        hits.append(hit)
        return hit

    function = compiled(recompile_cases.doubled)
    function(ones())
    try:
        with watch() as seen:
            imported_inside = eval_frame.set_guard_complete_hook
            assert imported_inside(theirs) is None
            function(ones())
            function(ones())
            assert eval_frame.set_guard_complete_hook(theirs) is theirs
        function(ones())
        assert hits == [True] * 3
        assert imported_inside(None) is theirs
        assert set_guard_complete_hook(None) is None
    finally:
        set_guard_complete_hook(None)
    assert seen.eager_calls == ()
    assert seen.executions == {"0/0": 2}


@pytest.mark.parametrize("enabled", [True, False])
def test_guard_collectives_switched_inside_a_watch_stay_switched(enabled: bool) -> None:
    function = compiled(recompile_cases.doubled)
    function(ones())
    try:
        torch.compiler.set_enable_guard_collectives(not enabled)
        with watch() as seen:
            assert torch.compiler.set_enable_guard_collectives(enabled) is not enabled
            function(ones())
        assert torch.compiler.set_enable_guard_collectives(False) is enabled
    finally:
        torch.compiler.set_enable_guard_collectives(False)
    assert seen.eager_calls == ()


# -- the start of a watch --------------------------------------------------------------------------


@pytest.mark.slow("further cases; a few are in every run", unless=["*-eager", "compiled-aot_eager"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("started", ["before", "decorated", "compiled", "ran"])
def test_watch_may_start_at_any_time(started: str, backend: str) -> None:
    x = ones(requires_grad=True)
    if started == "before":
        with watch() as seen:
            compiled(recompile_cases.doubled, backend)(x).sum().backward()
    else:
        function = compiled(recompile_cases.doubled, backend)
        loss = None
        if started != "decorated":
            loss = function(x).sum()
        if started == "ran":
            assert loss is not None
            loss.backward(retain_graph=True)
        with watch() as seen:
            function(x).sum().backward()
    expected = {"0/0": 1} if backend == "eager" else {"0/0": 1, "0/0 backward": 1}
    assert seen.executions == expected
    assert len(seen.graphs) == (0 if started in ("compiled", "ran") else len(expected))


def test_watch_counts_inductor_graphs() -> None:
    weight, x = ones(3, 3), ones(3, 3, requires_grad=True)
    function = compiled(lambda x: x @ weight, "inductor")  # generates no C++ code to compile
    function(x).sum().backward()
    with watch() as seen:
        function(x).sum().backward()
    assert seen.executions == {"0/0": 1, "0/0 backward": 1}


# -- several watches -------------------------------------------------------------------------------


@pytest.mark.slow("compiles many times")
def test_watches_nest() -> None:
    first, second, third = map(
        compiled, (recompile_cases.doubled, recompile_cases.by_global, recompile_cases.by_setting)
    )
    with watch() as outer:
        first(ones())
        with watch() as inner:
            second(ones())
            first(ones())
        third(ones())
    assert outer.executions == {"0/0": 2, "1/0": 1, "2/0": 1}
    assert inner.executions == {"0/0": 1, "1/0": 1}
    outer.assert_graph_count(total=3)
    with pytest.raises(AssertionError, match="compiled before the watch: doubled"):
        inner.assert_graph_count(total=1)
    inner.assert_graph_count(total=1, allow="compiled before the watch: doubled")
    inner.assert_no_recompiles()


def test_watches_may_overlap() -> None:
    function = compiled(recompile_cases.doubled)
    first, second = watch(), watch()
    first.__enter__()
    function(ones())
    second.__enter__()
    function(ones())
    first.__exit__(None, None, None)
    function(ones())
    second.__exit__(None, None, None)
    function(ones())
    assert first.capture.executions == {"0/0": 2}
    assert second.capture.executions == {"0/0": 2}


def test_reentered_watch_continues() -> None:
    function = compiled(recompile_cases.doubled)
    again_ = watch()
    with again_ as seen:
        function(ones())
    function(ones())
    with again_ as same:
        function(ones())
    assert same is seen
    assert seen.executions == {"0/0": 2}
    seen.assert_no_recompiles()
    with again_, again_:
        function(ones())
    assert seen.executions == {"0/0": 3}


def test_open_watch_can_be_read() -> None:
    function = compiled(recompile_cases.doubled, "aot_eager")
    with watch() as seen:
        assert seen.executions == {}
        assert seen.graphs == ()
        with pytest.raises(AssertionError, match="no compiled function or module was called"):
            seen.assert_no_graph_breaks()
        function(ones())
        seen.assert_no_graph_breaks()
        with pytest.raises(AssertionError, match="no compiled code ran twice"):
            seen.assert_no_recompiles()
        function(ones())
        seen.assert_no_recompiles()
        assert seen.executions == {"0/0": 2}
        loss = function(ones(requires_grad=True)).sum()
        assert len(seen.backwards) == 0
        loss.backward()
        assert len(seen.backwards) == 1
        assert seen.counters["stats"]["unique_graphs"] == 2
    assert len(seen.backwards) == 1


def test_open_watch_can_be_read_inside_compiled_code() -> None:
    found = []

    @torch.compiler.disable
    def look(x: Tensor) -> Tensor:
        found.append((len(seen.graphs), dict(seen.executions)))
        return x

    function = compiled(lambda x: look(x * 2) + 1)
    with watch() as seen:
        function(ones())
        function(ones())
    assert found == [(1, {"0/0": 1}), (2, {"0/0": 2, "1/0": 1})]


# -- threads ---------------------------------------------------------------------------------------


def test_compiled_code_of_another_thread_is_seen() -> None:
    function = compiled(recompile_cases.doubled, "aot_eager")

    def work() -> None:
        function(ones(requires_grad=True)).sum().backward()

    with watch() as seen:
        for _ in range(3):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    seen.assert_no_recompiles()
    seen.assert_graph_count(forward=1, backward=1)
    assert seen.executions == {"0/0": 3, "0/0 backward": 3}


def test_compiling_thread_does_not_make_another_thread_silent() -> None:
    compiling, go_on = threading.Event(), threading.Event()

    def slow(module: Any, inputs: Any) -> Any:
        compiling.set()
        go_on.wait(10)
        return module.forward

    function, other = compiled(recompile_cases.doubled, slow), compiled(recompile_cases.by_global)  # type: ignore[arg-type]
    other(ones())
    with watch() as seen:
        thread = threading.Thread(target=lambda: function(ones()))
        thread.start()
        compiling.wait(10)
        other(ones())
        other(ones())
        assert [each.uncompiled for each in seen.watched.callables] == [Counter(), Counter()]
        go_on.set()
        thread.join()
    seen.assert_no_graph_breaks(allow="compiled before the watch: by_global")
    seen.assert_no_recompiles()


def test_a_thread_that_waits_for_the_compiler_is_not_silent() -> None:
    compiling, go_on = threading.Event(), threading.Event()

    def slow(module: Any, inputs: Any) -> Any:
        compiling.set()
        go_on.wait(10)
        return module.forward

    first, second = (
        torch.compile(recompile_cases.doubled, backend=slow),
        compiled(recompile_cases.by_global),
    )
    with ThreadPoolExecutor(2) as pool, watch() as seen:
        done = [pool.submit(first, ones())]
        compiling.wait(10)
        done.append(pool.submit(second, ones()))
        while len(seen.watched.callables) < 2:
            time.sleep(0.01)
        time.sleep(0.05)
        assert [each.uncompiled for each in seen.watched.callables] == [Counter(), Counter()]
        go_on.set()
        assert [each.result().sum().item() for each in done] == [6, 6]
    seen.assert_no_graph_breaks()


@pytest.mark.skipif(SINCE_2_14, reason="torch 2.14 looks at code that ran under a dispatch mode")
def test_compilation_in_another_thread_does_not_hide_a_silent_call() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    silent, busy = compiled(recompile_cases.doubled), compiled(recompile_cases.by_global)
    with FlopCounterMode(display=False):
        silent(ones())
    called, go_on = threading.Event(), threading.Event()

    def work() -> None:
        silent(ones())
        called.set()
        go_on.wait(10)

    with ThreadPoolExecutor(1) as pool, watch() as seen:
        done = pool.submit(work)
        called.wait(10)
        busy(ones())
        busy(ones())
        go_on.set()
        done.result()
    with pytest.raises(
        AssertionError, match=r"doubled \(.*\): its call ran eagerly: Dynamo skipped"
    ):
        seen.assert_no_recompiles()


# -- the compiler itself ---------------------------------------------------------------------------


@pytest.mark.slow("via dispatch each case is in every run")
def test_watch_survives_a_reset() -> None:
    with watch() as seen:
        for _ in range(5):
            torch._dynamo.reset()
            compiled(recompile_cases.doubled, "aot_eager")(
                ones(requires_grad=True)
            ).sum().backward()
            gc.collect()
    assert seen.executions == {"0/0": 5, "0/0 backward": 5}
    seen.assert_graph_count(forward=5, backward=5)
    seen.assert_no_graph_breaks()
    assert [recompile.reasons for recompile in seen.recompiles] == [
        ("torch._dynamo.reset() cleared the earlier compilations",)
    ] * 4


def test_a_backend_may_call_compiled_code() -> None:
    inner = compiled(recompile_cases.by_global)

    def backend(module: Any, inputs: Any) -> Any:
        inner(ones())
        return module.forward

    function = torch.compile(recompile_cases.doubled, backend=backend)
    with watch() as seen:
        function(ones())
        function(ones())
    seen.assert_no_graph_breaks()
    seen.assert_no_recompiles()


@pytest.mark.slow("compiles several models")
def test_users_logging_is_unaffected() -> None:
    torch._logging.set_logs(graph_breaks=True, recompiles=True)
    try:
        for inside in (False, True):
            torch._dynamo.reset()
            with watch() as seen:
                if inside:
                    torch._logging.set_logs(graph_breaks=True, recompiles=True, output_code=False)
                compiled(hook_cases.three_parts, "aot_eager")(ones())
                compiled(recompile_cases.scaled)(ones(), 2)
                compiled(recompile_cases.scaled)(ones(), 3)
            assert len(seen.breaks) == 2
            assert len(seen.recompiles) == 1
    finally:
        torch._logging.set_logs()


def test_compiled_autograds_log_is_unaffected() -> None:
    torch._logging.set_logs(compiled_autograd_verbose=True)
    try:
        with watch() as seen:
            for loss in (
                (ones(requires_grad=True) * 2).sum(),
                (ones(requires_grad=True) / 2).sum(),
            ):
                with engine._enable(torch.compile(backend="eager")):
                    loss.backward()
    finally:
        torch._logging.set_logs()
    assert "DivBackward0" in str(seen.recompiles[0])


def test_disabled_logging_hides_nothing() -> None:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with watch() as seen:
            compiled(hook_cases.three_parts)(ones())
    finally:
        logging.disable(before)
    assert len(seen.breaks) == 2
    assert len(seen.graphs) == 3
    assert len(seen.executions) == 3


# -- overhead --------------------------------------------------------------------------------------


def frames_of_ours(call: Callable[[], Any]) -> list[str]:
    """Return this package's functions that ran, in order."""
    found: list[str] = []
    gc.collect()  # a watch drops its records of functions when they are freed
    gc.disable()

    def look(frame: Any, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            found.append(frame.f_code.co_name)

    skip_code(look.__code__)  # otherwise Dynamo inspects it when compiled code calls it
    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return found


@pytest.mark.slow("counts frames under a profiler")
def test_a_warm_call_costs_one_frame_and_no_record() -> None:
    model = nn.Sequential(Block(), Block())
    function = compiled(model, "aot_eager")
    x = ones(2, 3)

    def step() -> None:
        function(x).sum().backward()

    step()
    records = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign, assignment]
    with watch() as seen:
        step()
        logging.getLogger("torch.__trace").addHandler(handler)
        try:
            for _ in range(2):  # Dynamo may inspect the counting code in its first run
                frames_of_ours(step)
            assert len(frames_of_ours(step)) <= 1
            found = frames_of_ours(lambda: [step() for _ in range(10)])
            assert len(found) <= 10, found
        finally:
            logging.getLogger("torch.__trace").removeHandler(handler)
    assert records == []
    assert seen.executions["0/0"] == 14


@pytest.mark.slow("a thousand calls")
def test_watch_does_not_grow_in_a_thousand_warm_calls() -> None:
    function = compiled(recompile_cases.doubled, "aot_eager")
    x = ones(requires_grad=True)

    def step() -> None:
        function(x).sum().backward()

    with watch() as seen:
        for _ in range(200):
            step()
        tracemalloc.start()
        try:
            before = ours(tracemalloc.take_snapshot())
            tables = sizes()
            for _ in range(1000):
                step()
            after = ours(tracemalloc.take_snapshot())
        finally:
            tracemalloc.stop()
        assert sizes() == tables
    assert after - before < 2000
    assert seen.executions == {"0/0": 1200, "0/0 backward": 1200}


def ours(snapshot: tracemalloc.Snapshot) -> int:
    kept = snapshot.filter_traces([tracemalloc.Filter(True, f"{OURS}/*")])
    return sum(each.size for each in kept.statistics("filename"))


def sizes() -> list[int]:
    """Return the sizes of all tables in which a watch stores data."""
    callables, executions = HUB._callables, HUB._executions
    return [
        len(each)
        for each in (
            callables._all,
            callables._by_id,
            callables._references,
            callables._threads,
            callables._reasons.without_graph,
            callables._reasons.failures,
            executions._counters,
            executions._undo,
            executions._functions,
            *(recorder.events for recorder in HUB._open),
        )
    ]


def test_threads_that_ended_are_forgotten() -> None:
    with watch() as seen:
        for _ in range(20):
            thread = threading.Thread(target=lambda: compiled(lambda x: x * 2)(ones()))
            thread.start()
            thread.join()
            while HUB._callables._threads[-1].alive():  # joined, and not yet gone
                time.sleep(0.001)
        assert len(HUB._callables._threads) < 5
    assert len(seen.watched.callables) == 20


def test_no_watch_asks_for_the_frames_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """It hangs on Python 3.11.0 to 3.11.8 if the garbage collector starts in it.

    The collector then frees a `threading.local`, which waits for a lock that is already held.
    """

    def hang() -> None:
        raise AssertionError("sys._current_frames() was called")

    monkeypatch.setattr(sys, "_current_frames", hang)
    with watch() as seen:
        compiled(lambda x: x * 2)(ones())
    seen.assert_graph_count(1)


def test_a_watch_that_is_entered_twice_records_nothing_while_it_is_paused() -> None:
    twice = watch()
    with twice as seen, twice:
        with HUB.paused():
            compiled(lambda x: x * 2)(ones())
        compiled(lambda x: x * 3)(ones())
    seen.assert_graph_count(1)


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.slow("compiles many times")
def test_no_tensor_outlives_the_watch() -> None:
    def run() -> tuple[Capture, weakref.ref[Any], weakref.ref[Any]]:
        model = Block()
        function = compiled(model, "aot_eager")
        with watch() as seen:
            function(ones(2, 3)).sum().backward()
            function(ones(2, 3))
        seen.assert_graph_count(forward=1, backward=1)
        return seen, weakref.ref(model), weakref.ref(model.layers[0].weight)

    seen, model, weight = run()
    torch._dynamo.reset()
    gc.collect()
    assert seen.graphs
    assert model() is None
    assert weight() is None


@pytest.mark.slow("compiles many times")
def test_open_watch_does_not_keep_a_deleted_callable() -> None:
    with watch() as seen:
        references = []
        for _ in range(3):
            x = ones(requires_grad=True)
            loss = (x * 2).sum()
            references.append(weakref.ref(loss))
            with torch._dynamo.config.patch(compiled_autograd=True):
                compiled(lambda loss=loss: loss.backward())()
            del loss, x
        torch._dynamo.reset()
        gc.collect()
        assert [each() for each in references] == [None] * 3
        assert len(seen.watched.callables) >= 3


def test_watch_does_not_realize_dynamos_lazy_variables() -> None:
    """Reading an LSTM submodule's attributes in the stack of a break once prevented compilation."""

    class Rnn(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = torch.nn.LSTM(4, 4, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.rnn(x)[0]  # type: ignore[no-any-return]

    class Around(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.rnn, self.out = torch.nn.LayerNorm(4), Rnn(), torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + self.rnn(self.norm(x))
            return x + self.out(x)  # type: ignore[no-any-return]

    torch._dynamo.reset()
    with pytest_torchgraph.watch() as seen:
        torch.compile(Around(), backend="eager")(torch.ones(2, 3, 4))
    assert [graph.op_counts.total() for graph in seen.graphs] == [1, 3]
