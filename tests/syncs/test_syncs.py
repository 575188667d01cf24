"""Where Python waits for the device: each place is found, with its line, by each mechanism."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from syncs import waiting
from syncs.waiting import CLEAN, WAITING, Generator, line_of
from torch import Tensor

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

# torch warns about what it cannot trace, which is what is tried here.
pytestmark = pytest.mark.filterwarnings(r"ignore:::torch")


def example() -> Tensor:
    return torch.tensor([1.0, 2.0, 4.0])


def watched(function: Any, *args: Any, backend: str = "aot_eager") -> Capture:
    torch._dynamo.reset()
    with watch() as seen:
        torch.compile(function, backend=backend)(*(args or (example(),)))
    return seen


# -- each is found ---------------------------------------------------------------------------------


@pytest.mark.slow("further cases; a few are in every run", unless=["*dispatch", "to_the_host-aot"])
@pytest.mark.parametrize("via", ["dispatch", "aot"])
@pytest.mark.parametrize("name", WAITING)
def test_each_is_found_on_its_line(name: str, via: str) -> None:
    function, dispatched, compiled = WAITING[name]
    seen = capture(function, example(), via=via)
    (found,) = seen.syncs
    line = line_of(name)
    assert (found.file, found.line, found.function) == (FILE, line, name)
    assert found.code == Path(waiting.__file__).read_text().splitlines()[line - 1].strip()
    assert found.op == (dispatched if via == "dispatch" else compiled)
    assert found.certain
    with pytest.raises(AssertionError, match="host syncs: expected none, found 1\n") as failure:
        seen.assert_no_syncs()
    assert f"1. {FILE}:{line} in {name}: {found.code}\n" in str(failure.value)
    assert f"{found.kind}: {found.op} ({found.seen})" in str(failure.value)
    seen.assert_no_syncs(allow=rf"{name}: ")


@pytest.mark.parametrize(
    ("function", "op", "via"),
    [
        (lambda x: torch.linspace(0, x.max(), 4), "aten.linspace.Scalar_Tensor", "dispatch"),
        (lambda x: torch.linspace(0, x.max(), 4), "aten.linspace.Scalar_Tensor", "aot"),
        (lambda x: torch.logspace(x.min(), x.max(), 4), "aten.logspace.Tensor_Tensor", "dispatch"),
        (lambda x: x.to_sparse().to_dense() * 2, "aten._to_sparse.default", "dispatch"),
    ],
)
def test_op_without_torchs_tag_that_reads_a_value_is_found(
    function: Callable[[Tensor], Tensor], op: str, via: str
) -> None:
    seen = capture(function, example(), via=via)
    assert op in [sync.op for sync in seen.syncs]
    with pytest.raises(AssertionError, match=op):
        seen.assert_no_syncs()


@pytest.mark.slow(
    "further cases; a few are in every run", unless=["*dispatch", "indexed-aot", "one_layer-dynamo"]
)
@pytest.mark.parametrize("via", ["dispatch", "aot", "dynamo"])
@pytest.mark.parametrize("function", CLEAN)
def test_what_does_not_wait_is_not_found(function: Callable[..., Tensor], via: str) -> None:
    seen = capture(function, example(), via=via)
    assert seen.syncs == ()
    seen.assert_no_syncs()


@pytest.mark.parametrize("via", ["dynamo", "compiled_autograd"])
def test_other_captures_through_torch_compile_know_them_too(via: str) -> None:
    (found,) = capture(WAITING["item"][0], example().requires_grad_(), via=via).syncs
    op = "aten._local_scalar_dense.default"
    assert (found.line, found.op, found.seen) == (line_of("item"), op, "eager_0")


def test_a_watch_knows_them_too() -> None:
    (found,) = watched(WAITING["boolean_mask"][0]).syncs
    assert (found.file, found.line) == (FILE, line_of("boolean_mask"))
    (found,) = watched(WAITING["written_by_mask"][0]).syncs
    assert (found.line, found.seen) == (line_of("written_by_mask"), "inference")
    (found,) = watched(WAITING["to_the_host"][0]).syncs
    assert (found.line, found.op, found.seen) == (line_of("to_the_host"), "Tensor.cpu", "call")


def test_an_exported_program_knows_them_too() -> None:
    class Finding(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.nonzero() * 2

    seen = capture(Finding(), example(), via=Export())
    (found,) = seen.syncs
    line = Finding.forward.__code__.co_firstlineno + 1
    assert (found.line, found.op) == (line, "aten.nonzero.default")
    with pytest.raises(AssertionError, match=r"has a size that depends on data: aten\.nonzero"):
        seen.assert_no_syncs()


def test_what_torch_captures_in_the_graph_is_found_there() -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        (found,) = capture(WAITING["boolean_mask"][0], example()).syncs
    assert (found.line, found.op) == (line_of("boolean_mask"), "aten.index.Tensor")
    assert (found.kind, found.seen) == ("indexes by a bool mask", "inference")


def test_each_level_has_its_own() -> None:
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        seen = watched(WAITING["item"][0])
    for level, op in (("dynamo", "Tensor.item"), ("aot", "aten._local_scalar_dense.default")):
        (found,) = seen.at(level).syncs  # type: ignore[arg-type]
        assert (found.op, found.line) == (op, line_of("item"))
        with pytest.raises(AssertionError, match=rf"reads a value back: {re.escape(op)} \("):
            seen.at(level).assert_no_syncs()  # type: ignore[arg-type]


def test_a_predicate_of_cond_is_read() -> None:
    def choosing(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    (found,) = capture(choosing, example()).syncs
    assert (found.op, found.kind) == ("higher_order.cond", "reads a value back")


def test_a_custom_op_is_known_by_its_tags() -> None:
    with torch.library._scoped_library("syncs_test", "FRAGMENT") as library:
        tag = torch.Tag.dynamic_output_shape
        torch.library.define("syncs_test::kept", "(Tensor x) -> Tensor", tags=(tag,), lib=library)
        torch.library.impl("syncs_test::kept", "CPU", lambda x: x[:2].clone(), lib=library)
        (found,) = capture(torch.ops.syncs_test.kept, example(), via="dispatch").syncs
    assert found.op == "syncs_test.kept.default"


# -- how often, and where --------------------------------------------------------------------------


def test_one_place_is_one_sync() -> None:
    seen = capture(Generator(), example(), via="dispatch")
    (found,) = seen.syncs
    assert (found.line, found.occurrences) == (line_of("Generator"), 4)
    with pytest.raises(AssertionError, match="     4 times"):
        seen.assert_no_syncs()


def test_it_has_the_module_that_waits() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), Generator())
    (found,) = capture(model, example(), via="dispatch").syncs
    assert found.module == "1"
    with pytest.raises(AssertionError, match="     module 1\n"):
        capture(model, example(), via="dispatch").assert_no_syncs()


def test_a_sync_whose_result_nobody_uses_is_one() -> None:
    def forgotten(x: Tensor) -> Tensor:
        x.nonzero()
        return x * 2

    seen = capture(forgotten, example(), via="dispatch")
    assert not seen.forward.op_counts.keys() & {"aten.nonzero.default"}
    assert [each.op for each in seen.syncs] == ["aten.nonzero.default"]


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x / 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * grad.sum().item()


def test_a_sync_of_the_backward_is_found() -> None:
    seen = capture(Halved.apply, example().requires_grad_(), via="dispatch")
    (found,) = seen.syncs
    assert (found.op, found.seen) == ("aten._local_scalar_dense.default", "backward")
    with pytest.raises(AssertionError, match=r"aten._local_scalar_dense.default \(backward\)"):
        seen.assert_no_syncs()


def test_a_sync_can_be_printed() -> None:
    (found,) = capture(WAITING["item"][0], example()).syncs
    assert isinstance(found, Sync)
    assert str(found) == (
        f"{FILE}:{line_of('item')} in item: scale = x.sum().item()  # waits: item\n"
        "reads a value back: aten._local_scalar_dense.default"
    )


# -- what ran eagerly ------------------------------------------------------------------------------


@pytest.mark.slow("further cases; a few are in every run", unless=["aot"])
@pytest.mark.parametrize("via", ["aot", "inductor"])
def test_an_eager_graph_shows_each_of_its_ops(via: str) -> None:
    @torch.compiler.disable
    def disabled(x: Tensor) -> Tensor:
        kept = x[x > 0]
        return kept[torch.tensor([0])] * kept.sum().item()

    seen = capture(lambda x: disabled(x * 2) + 1, example(), via=via)
    mask, read, unknown = seen.syncs
    assert (mask.code, mask.kind) == ("kept = x[x > 0]", "indexes by a bool mask")
    assert (read.op, read.function) == ("aten._local_scalar_dense.default", "disabled")
    assert mask.seen == read.seen == "eager_0"
    assert not unknown.certain
    with pytest.raises(AssertionError, match="found 2 certain and 1 possible") as failure:
        seen.assert_no_syncs()
    assert "indexes by a bool mask: aten.index.Tensor (eager_0)\n" in str(failure.value)
    seen.assert_no_syncs(allow=["in disabled", r"disabled\(x"])


def test_lines_of_equal_eager_graphs_are_all_there() -> None:
    def reading_twice(x: Tensor) -> Tensor:
        first = x.sum().item()
        x = x * 2
        second = x.sum().item()
        return x * first * second

    seen = capture(reading_twice, example())
    assert [graph.runs for graph in seen.eager] == [2]
    assert [(each.code, each.seen, each.occurrences) for each in seen.syncs] == [
        ("first = x.sum().item()", "eager_0", 1),
        ("second = x.sum().item()", "eager_0", 1),
    ]


def test_a_break_at_what_ran_eagerly_is_not_one_more_sync() -> None:
    def encoded(x: Tensor) -> Tensor:
        classes = x.long()
        return torch.nn.functional.one_hot(classes) * 2

    seen = capture(encoded, example())
    assert len(seen.breaks) == 1
    assert {(each.kind, each.seen) for each in seen.syncs} == {("reads a value back", "eager_0")}


def test_a_sync_that_ran_eagerly_is_counted_as_often_as_it_ran() -> None:
    def scaled(x: Tensor) -> Tensor:
        return x * x.sum().item()

    (found,) = capture(lambda x: scaled(scaled(scaled(x))), example()).syncs
    assert (found.function, found.occurrences, found.seen) == ("scaled", 3, "eager_0")


def test_an_eager_backward_is_looked_into() -> None:
    @torch.compiler.disable
    def halved(x: Tensor) -> Tensor:
        return Halved.apply(x)  # type: ignore[no-any-return]

    found, _ = capture(lambda x: halved(x * 2) + 1, example().requires_grad_()).syncs
    assert (found.code, found.function) == ("return grad * grad.sum().item()", "backward")


# -- what nobody knows -----------------------------------------------------------------------------


def printing(x: Tensor) -> Tensor:
    x = x * 2
    print(x)
    return x + 1


def test_what_runs_at_a_graph_break_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    seen = capture(printing, example())
    (found,) = seen.syncs
    assert not found.certain
    assert found.code == "print(x)"
    with pytest.raises(AssertionError, match=r"0 certain and 1 possible\n  1\. .*print") as failure:
        seen.assert_no_syncs()
    assert "ran eagerly at a graph break: Failed to trace builtin operator\n" in str(failure.value)
    assert "Ops that ran at a graph break were checked" in str(failure.value)
    assert str(failure.value).endswith("or tolerate it with allow=")
    seen.assert_no_syncs(allow=r"print\(")
    with pytest.raises(AssertionError, match="Ops that ran at a graph break were checked"):
        capture(printing, example(), via="dynamo").assert_no_syncs()
    with pytest.raises(AssertionError, match="Ops that ran at a graph break are in no graph"):
        watched(printing, example()).assert_no_syncs()
    (found,) = capture(printing, example(), via="dispatch").syncs
    assert (found.op, found.code, found.certain) == ("Tensor.__repr__", "print(x)", True)


def test_nothing_runs_at_a_break_that_was_asked_for() -> None:
    def asking(x: Tensor) -> Tensor:
        x = x * 2
        torch._dynamo.graph_break()
        return x + 1

    seen = capture(asking, example())
    assert len(seen.breaks) == 1
    seen.assert_no_syncs()


def test_what_follows_a_break_that_cannot_be_resumed_is_not_known() -> None:
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
def test_a_hook_of_a_captured_backward_is_looked_into() -> None:
    """Its graph only calls the hook; what Dynamo traces of the hook is what is known."""
    via = "compiled_autograd"
    (found,) = capture(hooked(masking), example(), via=via).syncs
    assert found.kind == "indexes by a bool mask"
    assert (found.code, found.function) == ("grad[grad > 0] = torch.arange(9.0)", "masking")

    def inside(x: Tensor) -> Tensor:
        x = x * 2
        x.register_hook(reading)
        return x.sin()

    seen = capture(inside, example().requires_grad_(), via=via)
    assert [each.function for each in seen.syncs] == ["reading", "reading"]
    capture(hooked(torch.neg), example(), via=via).assert_no_syncs()


def test_nothing_is_known_of_an_eager_forward() -> None:
    seen = capture(
        WAITING["item"][0], example().requires_grad_(), via=CompiledAutograd(forward="eager")
    )
    for ask in ("syncs", "transfers"):
        with pytest.raises(CaptureError, match=f"{ask} of the forward are not recorded"):
            getattr(seen, f"assert_no_{ask}")()


def test_behind_a_break_in_a_captured_backward_nothing_is_known() -> None:
    """The backward is traced as far as its first break."""
    seen = capture(hooked(reading, masking), example(), via="compiled_autograd")
    certain, unknown = seen.syncs
    assert (certain.function, certain.op, certain.certain) == ("reading", "Tensor.item", True)
    assert (unknown.function, unknown.certain) == ("reading", False)
    with pytest.raises(AssertionError, match="found 0 certain and 1 possible"):
        seen.assert_no_syncs(allow="Tensor.item")
    with pytest.raises(AssertionError, match="found 0 certain and 1 possible"):
        seen.assert_no_transfers()


def test_where_nothing_was_compiled_nothing_is_known() -> None:
    with watch() as nothing:
        pass
    with pytest.raises(AssertionError, match="no graph was compiled:\n  no compiled function"):
        nothing.assert_no_syncs()
    with pytest.raises(AssertionError, match="no graph was compiled:\n  no compiled function"):
        nothing.assert_no_transfers()
    run = torch.compile(WAITING["item"][0], backend="eager")
    run(example())
    with watch() as warm:
        run(example())
    with pytest.raises(AssertionError, match="was compiled before the watch"):
        warm.assert_no_syncs()


@pytest.mark.parametrize("ask", ["syncs", "transfers"])
def test_a_capture_that_cannot_know_says_so(ask: str, tmp_path: Path) -> None:
    traced = capture(torch.nn.ReLU(), example(), via="fx")
    for via in ("aot", "export"):
        module = torch.nn.ReLU()
        (tmp_path / f"{via}.tgraph").write_text(capture(module, example(), via=via).to_text())
    stored = [(load(tmp_path / f"{via}.tgraph"), via) for via in ("aot", "export")]
    for seen, via in ((traced, "fx"), *stored):
        message = f"{ask} are not recorded via '{via}'.*: use via='dispatch'"
        with pytest.raises(CaptureError, match=message):
            getattr(seen, ask)
        with pytest.raises(CaptureError, match=message):
            getattr(seen, f"assert_no_{ask}")()


def test_what_another_thread_runs_is_not_known_to_dispatch() -> None:
    def threaded(x: Tensor) -> Tensor:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(x.sum().item()))
        thread.start()
        thread.join()
        return x * found[0]

    seen = capture(threaded, example(), via="dispatch")
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


# -- what is allowed -------------------------------------------------------------------------------


def test_the_others_are_said_to_be_allowed() -> None:
    def two(x: Tensor) -> Tensor:
        n = x.sum().item()
        return x.nonzero() * n

    seen = capture(two, example(), via="dispatch")
    with pytest.raises(
        AssertionError, match=r"expected none, found 1 \(1 more are allowed\)\n  1\. .*nonzero"
    ):
        seen.assert_no_syncs(allow=[r"\.item\(\)"])
    seen.assert_no_syncs(allow=["reads a value back", "aten.nonzero"])


def test_a_line_can_be_allowed_as_it_is() -> None:
    def one(x: Tensor) -> Tensor:
        return x * x.sum().item()

    seen = capture(one, example(), via="dispatch")
    seen.assert_no_syncs(allow="x * x.sum().item()")
    with pytest.raises(AssertionError, match="expected none, found 1"):
        seen.assert_no_syncs(allow="x + x.sum().item()")


def test_what_is_no_expression_is_a_mistake() -> None:
    seen = capture(torch.relu, example())
    with pytest.raises(ValueError, match=r"allow='\(' is not a valid regular expression"):
        seen.assert_no_syncs(allow="(")
    for everything in ("", ".*", ["a", "b?"]):
        with pytest.raises(ValueError, match="matches everything, so nothing would be checked"):
            seen.assert_no_syncs(allow=everything)
    with pytest.raises(TypeError, match="allow=5 must be a regular expression"):
        seen.assert_no_transfers(allow=5)  # type: ignore[arg-type]


# -- nothing is touched ----------------------------------------------------------------------------


def test_tensors_have_their_own_methods_afterwards() -> None:
    def failing(x: Tensor) -> Tensor:
        x.tolist()
        raise KeyError("mine")

    names = ("tolist", "__repr__", "cpu")
    before = [(vars(torch.Tensor).get(name), getattr(torch.Tensor, name)) for name in names]
    capture(WAITING["tolist"][0], example(), via="dispatch")
    with pytest.raises(KeyError, match="mine"):
        capture(failing, example(), via="dispatch")
    assert before == [(vars(torch.Tensor).get(n), getattr(torch.Tensor, n)) for n in names]


def methods() -> list[Any]:
    names = ("tolist", "__repr__", "cpu")
    return [(vars(torch.Tensor).get(name), getattr(torch.Tensor, name)) for name in names]


def test_two_threads_cannot_capture_at_once() -> None:
    """They would put back each other's methods."""
    before = methods()
    failed: list[BaseException] = []

    def around(x: Tensor) -> Tensor:
        def run() -> None:
            try:
                capture(torch.relu, example(), via="dispatch")
            except CaptureError as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join(60)
        return x * 2

    capture(around, example(), via="dispatch")
    assert "another thread is capturing" in str(failed[0])
    assert methods() == before
    capture(torch.relu, example(), via="dispatch").assert_no_syncs()


def test_captures_inside_each_other_leave_the_methods_as_they_were() -> None:
    before = methods()

    def around(x: Tensor) -> Tensor:
        capture(lambda y: y * 2, x, via="dispatch")
        return x * len(x.tolist())

    (*_, found) = capture(around, example(), via="dispatch").syncs
    assert found.op == "Tensor.tolist"
    assert methods() == before


def test_a_method_that_the_target_replaces_stays_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    own = torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", own)  # so that it is put back
    made: list[Any] = []

    def patching(x: Tensor) -> Tensor:
        inner = torch.Tensor.cpu
        made.append(lambda tensor: inner(tensor))
        torch.Tensor.cpu = made[0]  # type: ignore[method-assign]
        return x.cpu() * 2

    (found,) = capture(patching, example(), via="dispatch").syncs
    assert found.op == "Tensor.cpu"
    assert vars(torch.Tensor)["cpu"] is made[0]
    assert torch.equal(example().cpu(), example())


@pytest.mark.slow("compiles many times")
@pytest.mark.filterwarnings(r"ignore:::torch")
def test_compiled_code_is_not_compiled_again_because_of_a_capture_by_dispatch() -> None:
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
    capture(WAITING["tolist"][0], example(), via="dispatch")
    capture(WAITING["to_the_host"][0], example(), via="dispatch")
    copying(example()), reading(example())
    assert len(compiled) == before


def test_the_files_are_relative() -> None:
    for via in ("dispatch", "aot"):
        for each in capture(WAITING["item"][0], example(), via=via).syncs:
            assert not re.search(r"0x[0-9a-f]{6}|^/", f"{each}")
