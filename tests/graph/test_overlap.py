"""The ops computed between the start of a collective and its wait, and `assert_overlapped`."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_torchgraph import CaptureError, Graph
from pytest_torchgraph.graph import ScheduledCall, in_schedule, shown_by

MM = "%up/mm = aten.mm.default(%x, %w) : bf16[4, 8]"
VIEW = "%up/t = aten.t.default(%w) : bf16[8, 8]"
OTHER = '%other = _c10d_functional.all_reduce.default(%x, "sum", "dp") : bf16[4, 8] !communicates'
WAIT = "%up/wait = _c10d_functional.wait_tensor.default(%up/gather) : bf16[8, 8] !communicates"


def graph(*between: str, wait: str = WAIT, level: str = "aot") -> Graph:
    lines = "\n  ".join([*between, wait] if wait else between)
    return Graph.from_text(
        f"""torchgraph 1

forward @ {level} {{
  %x = input : bf16[4, 8]
  %w = parameter : bf16[8, 8]
  %up/gather = _c10d_functional.all_gather_into_tensor.default(%x, 2, "tp") \
: bf16[8, 8] !communicates
  {lines}
  return %{"up/wait" if wait else "up/gather"}
}}
"""
    )


def test_overlapping_ops_are_listed() -> None:
    (first, _) = graph(MM, VIEW, OTHER).collectives
    assert first.distance == 3
    assert first.overlap == ("aten.mm.default",)


@pytest.mark.parametrize(
    "between",
    [
        "%e = aten.empty_like.default(%x) : bf16[4, 8]",
        "%e = aten.empty_permuted.default([4, 8], [0, 1]) : bf16[4, 8]",
        "%e = aten.detach_.default(%x) : bf16[4, 8] !mutates %x",
        "%e = aten.swapdims_.default(%w, 0, 1) : bf16[8, 8] !mutates %w",
        "%e = aten.unsafe_split.Tensor(%x, 2) : (bf16[2, 8], bf16[2, 8])",
        "%e = aten._assert_tensor_metadata.default(%x)",
        "%e = aten.is_same_size.default(%x, %w) : bool",
        "%e = aten.sym_size.int(%x, 0) : int",
        "%e = torch._dynamo.compiled_autograd.ops.validate_outputs([%x], []) : (bf16[4, 8])",
    ],
)
def test_op_that_computes_nothing_is_no_overlap(between: str) -> None:
    with pytest.raises(AssertionError, match="expected 0, found 1 of 1"):
        graph(between).assert_overlapped()
    graph(between, MM).assert_overlapped()


def test_op_that_only_writes_is_overlap() -> None:
    graph("%e = aten._foreach_add_.Scalar([%x], 1) !mutates %x").assert_overlapped()


def test_wait_for_several_collectives_ends_each_collective() -> None:
    """`wait_tensors` exists from torch 2.15 on."""
    text = """torchgraph 1

forward @ aot {
  %x = input : bf16[4, 8]
  %both = _c10d_functional.all_reduce_coalesced.default([%x, %x], "sum", "tp") \
: (bf16[4, 8], bf16[4, 8]) !communicates
  %a = operator.getitem(%both, 0) : bf16[4, 8]
  %b = operator.getitem(%both, 1) : bf16[4, 8]
  %sin = aten.sin.default(%x) : bf16[4, 8]
  %waits = _c10d_functional.wait_tensors.default([%a, %b]) : (bf16[4, 8], bf16[4, 8]) !communicates
  %c = operator.getitem(%waits, 0) : bf16[4, 8]
  %d = operator.getitem(%waits, 1) : bf16[4, 8]
  return [%sin, %c, %d]
}
"""
    captured = Graph.from_text(text)
    assert [collective.overlap for collective in captured.collectives] == [("aten.sin.default",)]
    captured.assert_overlapped()


def test_assert_overlapped_passes() -> None:
    graph(MM).assert_overlapped()
    graph(MM, OTHER).assert_overlapped("tp", at_least=1)
    graph(MM, OTHER).assert_overlapped(kind="all_gather")
    graph(MM, OTHER).assert_overlapped(exposed=1)
    graph(OTHER).assert_overlapped(exposed=(0, 2))


@pytest.mark.parametrize(
    ("made", "options", "message"),
    [
        (
            graph(),
            {},
            r"(?s)expected 0, found 1 of 1\n.*immediately after it starts:\n +all_gather",
        ),
        (graph(VIEW), {}, "waited for after 1 op, none of which computes:"),
        (graph(OTHER), {"kind": "all_gather"}, "waited for after 1 op, none of which computes:"),
        (
            graph(MM),
            {"exposed": 1},
            r"(?s)expected 1, found 0 of 1\n  computed .*: aten.mm.default:\n +all_gather",
        ),
        (
            graph(MM),
            {"at_least": 2},
            r"computed before the wait: aten\.mm\.default \(fewer than 2",
        ),
        (graph(MM), {"exposed": 1}, "expected 1, found 0 of 1"),
        (graph(MM, wait=""), {}, "no wait in the graph"),
        (graph(MM, OTHER), {}, r"(?s)found 1 of 2\n.*all_reduce over dp, .*, in graph 'forward'"),
        (graph(MM, OTHER), {"group": "dp"}, r"exposed collectives \(group dp\)"),
        (
            graph(MM),
            {"kind": "all_reduce"},
            r"(?s)\(kind all_reduce\).*all_gather over .*, in graph 'forward'",
        ),
    ],
)
def test_assert_overlapped_failure_names_exposed_collectives(
    made: Graph, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        made.assert_overlapped(**options)


def test_in_schedule_has_the_order_of_the_code_and_keeps_all_collectives() -> None:
    collectives = graph(MM, OTHER).collectives
    reduce = ScheduledCall("_c10d_functional.all_reduce_.default", "dp", "", 4, ("kernel",))
    gather = ScheduledCall("_c10d_functional.all_gather_into_tensor_out.default", "", "", 0)
    elsewhere = ScheduledCall("_c10d_functional.all_reduce_.default", "tp", "", 9)
    by_name = ScheduledCall("mine.send.default", "", "up/gather", 2)
    for calls, expected in (
        ((reduce, gather), [("all_reduce", 4, ("kernel",)), ("all_gather", 0, ())]),
        ((by_name, reduce), [("all_gather", 2, ()), ("all_reduce", 4, ("kernel",))]),
        ((elsewhere, gather), [("all_gather", 0, ()), ("all_reduce", None, ())]),
        ((gather, gather, by_name), [("all_gather", 2, ()), ("all_reduce", None, ())]),
        ((), [("all_gather", None, ()), ("all_reduce", None, ())]),
    ):
        placed = in_schedule(collectives, calls)
        assert [(c.kind, c.distance, c.overlap) for c in placed] == expected


def test_assert_overlapped_failure_has_a_picture() -> None:
    with pytest.raises(AssertionError) as error:
        graph().assert_overlapped()
    assert shown_by(error.value) is not None


def test_assert_overlapped_without_a_collective_fails() -> None:
    quiet = Graph.from_text(
        "torchgraph 1\n\nforward @ aot {\n  %x = input : f32[2]\n"
        "  %relu = aten.relu.default(%x) : f32[2]\n  return %relu\n}\n"
    )
    with pytest.raises(AssertionError, match="no collective was captured"):
        quiet.assert_overlapped()
    with pytest.raises(AssertionError, match="no collective was captured"):
        quiet.assert_overlapped("tp", exposed=(0, None))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"kind": "allgather"}, ValueError, "did you mean 'all_gather'"),
        ({"group": "pp"}, ValueError, "groups: tp"),
        ({"at_least": 0}, ValueError, "holds for every collective"),
        ({"at_least": 1.5}, TypeError, "not a valid number of ops"),
        ({"exposed": "one"}, TypeError, "'one' is not a valid count"),
        ({"exposed": (0, None)}, TypeError, "checks nothing"),
    ],
)
def test_assert_overlapped_bad_arguments(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        graph(MM).assert_overlapped(**options)


def test_assert_overlapped_is_refused_at_levels_without_views() -> None:
    with pytest.raises(CaptureError, match=r"level 'dynamo'.*capture via 'aot'"):
        graph(MM, level="dynamo").assert_overlapped()
