"""Each mechanism finds host syncs and their source lines."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from syncs import waiting
from syncs.waiting import CLEAN, WAITING, Generator, line_of
from torch import Tensor
from torch_releases import RELEASE, skip_before

from pytest_torchgraph import (
    Capture,
    CaptureError,
    CompiledAutograd,
    Export,
    Sync,
    capture,
    load,
    watch,
)

FILE = str(Path(waiting.__file__).relative_to(Path.cwd()))
FILE_HERE = str(Path(__file__).relative_to(Path.cwd()))

# The tests run untraceable code, about which torch warns.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings(r"ignore:::torch")]


def example() -> Tensor:
    return torch.tensor([1.0, 2.0, 4.0])


def dispatched(function: Any) -> Capture:
    return capture(function, example(), via="dispatch")


def watched(function: Any, *args: Any, backend: str = "aot_eager") -> Capture:
    torch._dynamo.reset()
    with watch() as seen:
        torch.compile(function, backend=backend)(*(args or (example(),)))
    return seen


# -- every sync is found ---------------------------------------------------------------------------


@pytest.mark.slow("further cases; a few are in every run", unless=["*dispatch", "to_the_host-aot"])
@pytest.mark.parametrize("via", ["dispatch", "aot"])
@pytest.mark.parametrize("name", WAITING)
def test_sync_is_found_on_its_line(name: str, via: str) -> None:
    function, dispatched, compiled = WAITING[name]
    seen = capture(function, example(), via=via)
    (sync,) = seen.syncs
    line = line_of(name)
    assert (sync.file, sync.line, sync.function) == (FILE, line, name)
    assert sync.code == Path(waiting.__file__).read_text().splitlines()[line - 1].strip()
    assert sync.op == (dispatched if via == "dispatch" else compiled)
    assert sync.certain
    with pytest.raises(AssertionError, match="host syncs: expected none, found 1\n") as failure:
        seen.assert_no_syncs()
    assert f"1. {FILE}:{line} in {name}: {sync.code}\n" in str(failure.value)
    place = "outside every graph" if sync.seen == "call" else f"in graph {sync.seen!r}"
    assert f"{sync.kind}: {sync.op} ({place})" in str(failure.value)
    seen.assert_no_syncs(allow=rf"{name}: ")


@pytest.mark.parametrize("via", ["dispatch", "dynamo"])
@pytest.mark.parametrize("name", ["eig", "eigvalsh", "pinv"])
def test_function_of_linalg_that_synchronizes_is_found(name: str, via: str) -> None:
    function = getattr(torch.linalg, name)
    assert "synchronizes that device" in function.__doc__
    (sync,) = capture(lambda x: function(x), torch.eye(3), via=via).syncs
    assert "linalg_" in sync.op


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (lambda x: torch.linspace(0, x.max(), 4), "aten.linspace.Scalar_Tensor"),
        (lambda x: torch.logspace(x.min(), x.max(), 4), "aten.logspace.Tensor_Tensor"),
        (lambda x: x.to_sparse().to_dense() * 2, "aten._to_sparse.default"),
        (lambda x: torch.histc(x, 4), "aten.histc.default"),
    ],
)
def test_untagged_op_that_reads_a_value_is_found(
    function: Callable[[Tensor], Tensor], op: str
) -> None:
    seen = dispatched(function)
    assert op in [sync.op for sync in seen.syncs]
    with pytest.raises(AssertionError, match=op):
        seen.assert_no_syncs()


def test_histogram_of_a_given_range_is_no_sync() -> None:
    dispatched(lambda x: torch.histc(x, 4, 0, 1)).assert_no_syncs()


@pytest.mark.slow(
    "further cases; a few are in every run", unless=["*dispatch", "indexed-aot", "one_layer-dynamo"]
)
@pytest.mark.parametrize("via", ["dispatch", "aot", "dynamo"])
@pytest.mark.parametrize("function", CLEAN)
def test_function_without_a_sync_has_none(function: Callable[..., Tensor], via: str) -> None:
    seen = capture(function, example(), via=via)
    assert seen.syncs == ()
    seen.assert_no_syncs()


@pytest.mark.parametrize("via", ["dynamo", "compiled_autograd"])
def test_syncs_via_other_compiling_mechanisms(via: str) -> None:
    (sync,) = capture(WAITING["item"][0], example().requires_grad_(), via=via).syncs
    op = "aten._local_scalar_dense.default"
    assert (sync.line, sync.op, sync.seen) == (line_of("item"), op, "eager_0")


def test_syncs_of_a_watch() -> None:
    (sync,) = watched(WAITING["boolean_mask"][0]).syncs
    assert (sync.file, sync.line) == (FILE, line_of("boolean_mask"))
    (sync,) = watched(WAITING["written_by_mask"][0]).syncs
    assert (sync.line, sync.seen) == (line_of("written_by_mask"), "inference")
    (sync,) = watched(WAITING["to_the_host"][0]).syncs
    assert (sync.line, sync.op, sync.seen) == (line_of("to_the_host"), "Tensor.cpu", "call")


def test_syncs_of_an_exported_program() -> None:
    class Finding(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.nonzero() * 2

    seen = capture(Finding(), example(), via=Export())
    (sync,) = seen.syncs
    line = Finding.forward.__code__.co_firstlineno + 1
    assert (sync.line, sync.op) == (line, "aten.nonzero.default")
    with pytest.raises(AssertionError, match=r"has a size that depends on data: aten\.nonzero"):
        seen.assert_no_syncs()


def test_sync_captured_in_the_graph_is_found() -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        (sync,) = capture(WAITING["boolean_mask"][0], example()).syncs
    assert (sync.line, sync.op) == (line_of("boolean_mask"), "aten.index.Tensor")
    assert (sync.kind, sync.seen) == ("indexes by a bool mask", "inference")


def test_syncs_of_each_level() -> None:
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        seen = watched(WAITING["item"][0])
    for level, op in (("dynamo", "Tensor.item"), ("aot", "aten._local_scalar_dense.default")):
        (sync,) = seen.at(level).syncs  # type: ignore[arg-type]
        assert (sync.op, sync.line) == (op, line_of("item"))
        with pytest.raises(AssertionError, match=rf"reads a value back: {re.escape(op)} \("):
            seen.at(level).assert_no_syncs()  # type: ignore[arg-type]


def test_predicate_of_cond_is_a_sync() -> None:
    def choosing(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    (sync,) = capture(choosing, example()).syncs
    assert (sync.op, sync.kind) == ("higher_order.cond", "reads a value back")


def test_custom_op_is_a_sync_by_its_tags() -> None:
    with torch.library._scoped_library("syncs_test", "FRAGMENT") as library:
        tag = torch.Tag.dynamic_output_shape
        torch.library.define("syncs_test::kept", "(Tensor x) -> Tensor", tags=(tag,), lib=library)
        torch.library.impl("syncs_test::kept", "CPU", lambda x: x[:2].clone(), lib=library)
        (sync,) = dispatched(torch.ops.syncs_test.kept).syncs
    assert sync.op == "syncs_test.kept.default"


# -- counts and places -----------------------------------------------------------------------------


def test_sync_in_a_loop_of_a_module_is_one_sync() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), Generator())
    seen = dispatched(model)
    (sync,) = seen.syncs
    assert (sync.line, sync.occurrences, sync.module) == (line_of("Generator"), 4, "1")
    with pytest.raises(AssertionError, match="     4 times") as failure:
        seen.assert_no_syncs()
    assert "     module 1\n" in str(failure.value)


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x / 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * grad.sum().item()


def test_sync_of_the_backward_is_found() -> None:
    seen = capture(Halved.apply, example().requires_grad_(), via="dispatch")
    (sync,) = seen.syncs
    assert (sync.op, sync.seen) == ("aten._local_scalar_dense.default", "backward")
    with pytest.raises(
        AssertionError, match=r"_local_scalar_dense.default \(in graph 'backward'\)"
    ):
        seen.assert_no_syncs()


def test_sync_prints_its_line_and_op() -> None:
    (sync,) = capture(WAITING["item"][0], example()).syncs
    assert isinstance(sync, Sync)
    assert str(sync) == (
        f"{FILE}:{line_of('item')} in item: scale = x.sum().item()  # waits: item\n"
        "reads a value back: aten._local_scalar_dense.default"
    )


# -- eager graphs ----------------------------------------------------------------------------------


def test_syncs_of_an_eager_graph() -> None:
    @torch.compiler.disable
    def disabled(x: Tensor) -> Tensor:
        kept = x[x > 0]
        return kept[torch.tensor([0])] * kept.sum().item()

    seen = capture(lambda x: disabled(x * 2) + 1, example(), via="aot")
    mask, read, unknown = seen.syncs
    assert (mask.code, mask.kind) == ("kept = x[x > 0]", "indexes by a bool mask")
    assert (read.op, read.function) == ("aten._local_scalar_dense.default", "disabled")
    assert mask.seen == read.seen == "eager_0"
    assert not unknown.certain
    with pytest.raises(AssertionError, match="found 2 certain and 1 possible") as failure:
        seen.assert_no_syncs()
    assert "indexes by a bool mask: aten.index.Tensor (in graph 'eager_0')\n" in str(failure.value)
    seen.assert_no_syncs(allow=["in disabled", r"disabled\(x"])


def test_syncs_of_equal_eager_graphs_have_all_lines() -> None:
    def reading_twice(x: Tensor) -> Tensor:
        first = x.sum().item()
        x = x * 2
        second = x.sum().item()
        return x * first * second

    seen = capture(reading_twice, example())
    assert [graph.runs for graph in seen.eager] == [2]
    assert [(sync.code, sync.seen, sync.occurrences) for sync in seen.syncs] == [
        ("first = x.sum().item()", "eager_0", 1),
        ("second = x.sum().item()", "eager_0", 1),
    ]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no columns")
def test_sync_in_instructions_of_dynamo_has_the_line_of_its_operand() -> None:
    """Dynamo formats an f-string in instructions that have the line of the `def`."""
    logs = []

    def logging(x: Tensor) -> Tensor:
        y = x * 2
        logs.append(f"{y.sum():.3f}")
        return y + 1

    (sync,) = capture(logging, example(), via="aot").syncs
    assert sync.code == 'logs.append(f"{y.sum():.3f}")'


def test_graph_break_at_an_eager_sync_is_not_a_second_sync() -> None:
    def encoded(x: Tensor) -> Tensor:
        classes = x.long()
        return torch.nn.functional.one_hot(classes) * 2

    seen = capture(encoded, example())
    assert len(seen.breaks) == 1
    assert {(sync.kind, sync.seen) for sync in seen.syncs} == {("reads a value back", "eager_0")}


@pytest.mark.skipif(
    RELEASE in ((2, 10), (2, 11)), reason="these releases read back their own tensor of the number"
)
def test_eager_sync_is_multiplied_by_its_runs() -> None:
    def scaled(x: Tensor) -> Tensor:
        return x * x.sum().item()

    (sync,) = capture(lambda x: scaled(scaled(scaled(x))), example()).syncs
    assert (sync.function, sync.occurrences, sync.seen) == ("scaled", 3, "eager_0")


def test_sync_of_an_eager_backward_is_found() -> None:
    @torch.compiler.disable
    def halved(x: Tensor) -> Tensor:
        return Halved.apply(x)  # type: ignore[no-any-return]

    sync, _ = capture(lambda x: halved(x * 2) + 1, example().requires_grad_()).syncs
    assert (sync.code, sync.function) == ("return grad * grad.sum().item()", "backward")


# -- unknown syncs ---------------------------------------------------------------------------------


def printing(x: Tensor) -> Tensor:
    x = x * 2
    print(x)
    return x + 1


def test_syncs_at_a_graph_break_are_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    seen = capture(printing, example())
    (sync,) = seen.syncs
    assert not sync.certain
    assert sync.code == "print(x)"
    with pytest.raises(AssertionError, match=r"0 certain and 1 possible\n  1\. .*print") as failure:
        seen.assert_no_syncs()
    assert "ran eagerly at a graph break: Failed to trace builtin operator\n" in str(failure.value)
    assert "At a graph break, ops are checked" in str(failure.value)
    assert str(failure.value).endswith("or tolerate the break with allow='at a graph break'")
    seen.assert_no_syncs(allow="at a graph break")
    seen.assert_no_syncs(allow=r"print\(")
    with pytest.raises(AssertionError, match="At a graph break, ops are checked"):
        capture(printing, example(), via="dynamo").assert_no_syncs()
    with pytest.raises(AssertionError, match="Ops that ran at a graph break are in no graph"):
        watched(printing, example()).assert_no_syncs()
    (sync,) = dispatched(printing).syncs
    assert (sync.op, sync.code, sync.certain) == ("Tensor.__repr__", "print(x)", True)


def test_requested_graph_break_has_no_unknown_syncs() -> None:
    def asking(x: Tensor) -> Tensor:
        x = x * 2
        torch._dynamo.graph_break()
        return x + 1

    seen = capture(asking, example())
    assert len(seen.breaks) == 1
    seen.assert_no_syncs()


def test_syncs_after_a_break_without_a_resume_are_unknown() -> None:
    skip_before("2.10", "torch does not report a break without a resume")

    def cutting(x: Tensor) -> Tensor:
        n = x.long()[0]
        return x[:n] * 2

    certain, unknown = watched(cutting).syncs
    assert (certain.op, certain.certain) == ("Tensor.item", True)
    assert unknown.op.startswith("frame skipped: Unsupported Tensor.item() call")
    assert not unknown.certain
    for known in ("Tensor.item", r"x\[:n\]", f":{certain.line} in cutting"):
        with pytest.raises(AssertionError, match="0 certain and 1 possible") as failure:
            watched(cutting).assert_no_syncs(allow=known)
        assert f"\n  1. after line {certain.line} of {FILE_HERE} in cutting\n" in str(failure.value)
    watched(cutting).assert_no_syncs(allow=["Tensor.item", "after line"])


def hooked(*hooks: Callable[[Tensor], Tensor]) -> torch.nn.Module:
    layer = torch.nn.Linear(3, 3)
    for hook in hooks:
        layer.weight.register_hook(hook)
    return layer


def reading(grad: Tensor) -> Tensor:
    return grad * grad.sum().item()


def masking(grad: Tensor) -> Tensor:
    grad = grad.clone()
    grad[grad > 0] = torch.arange(9.0)
    return grad


@pytest.mark.slow("compiles many times")
def test_sync_in_a_hook_of_a_captured_backward_is_found() -> None:
    via = "compiled_autograd"
    (sync,) = capture(hooked(masking), example(), via=via).syncs
    assert sync.kind == "indexes by a bool mask"
    assert (sync.code, sync.function) == ("grad[grad > 0] = torch.arange(9.0)", "masking")

    def inside(x: Tensor) -> Tensor:
        x = x * 2
        x.register_hook(reading)
        return x.sin()

    seen = capture(inside, example().requires_grad_(), via=via)
    assert [sync.function for sync in seen.syncs] == ["reading", "reading"]
    capture(hooked(torch.neg), example(), via=via).assert_no_syncs()


def test_syncs_of_an_eager_forward_are_unknown() -> None:
    seen = capture(
        WAITING["item"][0], example().requires_grad_(), via=CompiledAutograd(forward="eager")
    )
    for events in ("syncs", "transfers"):
        with pytest.raises(CaptureError, match=f"{events} of the forward are not recorded"):
            getattr(seen, f"assert_no_{events}")()


def test_syncs_after_a_break_in_a_captured_backward_are_unknown() -> None:
    """Dynamo traces the backward only up to its first break; the ops of `masking` are recorded."""
    seen = capture(hooked(reading, masking), example(), via="compiled_autograd")
    masked, certain, unknown = seen.syncs
    assert (masked.function, masked.certain) == ("masking", True)
    assert (certain.function, certain.op, certain.certain) == ("reading", "Tensor.item", True)
    assert (unknown.function, unknown.certain) == ("reading", False)
    with pytest.raises(AssertionError, match="found 0 certain and 1 possible"):
        seen.assert_no_syncs(allow=["Tensor.item", "bool mask"])
    with pytest.raises(AssertionError, match="found 0 certain and 1 possible"):
        seen.assert_no_transfers()


def test_syncs_of_an_empty_watch_are_refused() -> None:
    with watch() as nothing:
        pass
    with pytest.raises(AssertionError, match="no graph was compiled:\n  no compiled function"):
        nothing.assert_no_syncs()
    with pytest.raises(AssertionError, match="no graph was compiled:\n  no compiled function"):
        nothing.assert_no_transfers()


@pytest.mark.parametrize("events", ["syncs", "transfers"])
def test_assertion_on_a_capture_without_this_record_is_refused(events: str, tmp_path: Path) -> None:
    stored = tmp_path / "relu.tgraph"
    stored.write_text(capture(torch.nn.ReLU(), example(), via="aot").to_text())
    traced = capture(torch.nn.ReLU(), example(), via="fx")
    for seen, how in ((traced, "via 'fx'"), (load(stored), "loaded from a file")):
        message = f"{events} are not available on a capture {how}: use via='dispatch'"
        with pytest.raises(CaptureError, match=message):
            getattr(seen, events)
        with pytest.raises(CaptureError, match=message):
            getattr(seen, f"assert_no_{events}")()


def test_syncs_of_another_thread_are_unknown_via_dispatch() -> None:
    def threaded(x: Tensor) -> Tensor:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(x.sum().item()))
        thread.start()
        thread.join()
        return x * found[0]

    seen = dispatched(threaded)
    (found,) = seen.syncs
    assert (found.kind, found.op) == ("ran in another thread", "threading.Thread.start")
    assert (found.code, found.function, found.certain) == ("thread.start()", "threaded", False)
    (moved,) = seen.transfers
    assert str(moved).endswith("\nran in another thread: threading.Thread.start")
    for check in (seen.assert_no_syncs, seen.assert_no_transfers):
        with pytest.raises(AssertionError, match="0 certain and 1 possible") as failure:
            check()
        assert "ran in another thread: threading.Thread.start\n" in str(failure.value)
        assert "Other threads are not recorded: run this code in the main thread" in str(
            failure.value
        )
        assert "graph break" not in str(failure.value)
        check(allow="in another thread")


# -- allowed syncs ---------------------------------------------------------------------------------


def test_sync_failure_mentions_allowed_syncs() -> None:
    def two(x: Tensor) -> Tensor:
        n = x.sum().item()
        return x.nonzero() * n

    seen = dispatched(two)
    with pytest.raises(
        AssertionError,
        match=r"expected none, found 1 \(and 1 that allow= permits\)\n  1\. .*nonzero",
    ):
        seen.assert_no_syncs(allow=[r"\.item\(\)"])
    seen.assert_no_syncs(allow=["reads a value back", "aten.nonzero"])


def test_allow_of_a_sync_by_its_line() -> None:
    def one(x: Tensor) -> Tensor:
        return x * x.sum().item()

    seen = dispatched(one)
    seen.assert_no_syncs(allow="x * x.sum().item()")
    with pytest.raises(AssertionError, match="expected none, found 1"):
        seen.assert_no_syncs(allow="x + x.sum().item()")


def test_invalid_allow_expression_is_an_error() -> None:
    seen = capture(torch.relu, example())
    with pytest.raises(ValueError, match=r"allow='\(' is not a valid regular expression"):
        seen.assert_no_syncs(allow="(")
    for everything in ("", ".*", ".", ["a", "b?"]):
        with pytest.raises(ValueError, match="matches everything, so nothing would be checked"):
            seen.assert_no_syncs(allow=everything)
    with pytest.raises(TypeError, match="allow=5 must be a str with a regular expression"):
        seen.assert_no_transfers(allow=5)  # type: ignore[arg-type]


# -- torch's methods are restored ------------------------------------------------------------------


def test_tensor_methods_are_restored() -> None:
    def failing(x: Tensor) -> Tensor:
        x.tolist()
        raise KeyError("mine")

    before = methods()
    dispatched(WAITING["tolist"][0])
    with pytest.raises(KeyError, match="mine"):
        dispatched(failing)
    assert methods() == before


def methods() -> list[Any]:
    names = ("tolist", "__repr__", "cpu")
    return [(vars(torch.Tensor).get(name), getattr(torch.Tensor, name)) for name in names]


FIRST_CAPTURE = """
import gc, torch, weakref
from pytest_torchgraph import capture

model = torch.nn.Linear(2, 2)
capture(model, torch.ones(1, 2), via="dynamo")
assert torch.Tensor.item in torch.overrides.get_testing_overrides()
assert torch.Tensor.item in torch.overrides.get_overridable_functions()[torch.Tensor]
model = weakref.ref(model)
gc.collect()
assert model() is None
"""


@pytest.mark.slow("starts a process, because torch lists its methods once")
def test_first_capture_is_in_no_list_of_torchs_methods() -> None:
    subprocess.run([sys.executable, "-c", FIRST_CAPTURE], check=True)


def test_nested_captures_restore_tensor_methods() -> None:
    before = methods()

    def around(x: Tensor) -> Tensor:
        capture(lambda y: y * 2, x, via="dispatch")
        return x * len(x.tolist())

    (*_, found) = dispatched(around).syncs
    assert found.op == "Tensor.tolist"
    assert methods() == before


def test_method_that_the_target_replaces_stays_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    own = torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", own)  # restores it after the test
    made: list[Any] = []

    def patching(x: Tensor) -> Tensor:
        inner = torch.Tensor.cpu
        made.append(lambda tensor: inner(tensor))
        torch.Tensor.cpu = made[0]  # type: ignore[method-assign]
        return x.cpu() * 2

    (sync,) = dispatched(patching).syncs
    assert sync.op == "Tensor.cpu"
    assert vars(torch.Tensor)["cpu"] is made[0]
    assert torch.equal(example().cpu(), example())


@pytest.mark.slow("compiles many times")
@pytest.mark.filterwarnings(r"ignore:::torch")
def test_dispatch_capture_does_not_cause_recompiles() -> None:
    compiled: list[int] = []

    def backend(gm: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        compiled.append(1)
        return gm.forward

    torch._dynamo.reset()
    copying = torch.compile(lambda x: x.cpu() + torch.Tensor.cpu(x), backend=backend)
    reading = torch.compile(lambda x: x * len(x.long().tolist()), backend=backend)
    copying(example()), reading(example())
    before = len(compiled)
    assert before >= 2
    dispatched(WAITING["tolist"][0])
    dispatched(WAITING["to_the_host"][0])
    copying(example()), reading(example())
    assert len(compiled) == before
