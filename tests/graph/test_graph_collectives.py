"""Collectives as values, and the assertion about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_torchgraph import CaptureError, Collective, Graph
from pytest_torchgraph.graph import Source, shown_by
from pytest_torchgraph.graph.collectives import Collectives

TEXT = """torchgraph 1
via aot, torch 2.13.0

forward {
  %x = input : bf16[4, 8]
  %w = parameter : bf16[8, 8]
  %up/gather = _c10d_functional.all_gather_into_tensor.default(%x, 2, "tp") : bf16[8, 8]
  %up/mm = aten.mm.default(%x, %w) : bf16[4, 8]
  %up/wait = _c10d_functional.wait_tensor.default(%up/gather) : bf16[8, 8]
  %down/both = _c10d_functional.all_reduce_coalesced.default([%up/mm, %up/wait], "sum", "tp") \
: (bf16[4, 8], bf16[8, 8])
  %down/both#0 = operator.getitem(%down/both, 0) : bf16[4, 8]
  %down/wait = _c10d_functional.wait_tensor.default(%down/both#0) : bf16[4, 8]
  %sum = aten.sum.default(%down/wait) : bf16[]
  %all_reduce_ = _c10d_functional.all_reduce_.default(%sum, "sum", "dp") : bf16[] !communicates
  return %down/wait
}
"""


def graph(text: str = TEXT) -> Graph:
    return Graph.from_text(text)


def facts(collective: Collective) -> tuple[Any, ...]:
    return (
        collective.kind,
        collective.group,
        collective.bytes,
        collective.shape,
        collective.module,
        collective.distance,
    )


def test_collectives_have_kind_group_bytes_and_place() -> None:
    assert [facts(collective) for collective in graph().collectives] == [
        ("all_gather", "tp", 8 * 8 * 2, (8, 8), "up", 1),
        ("all_reduce", "tp", (4 * 8 + 8 * 8) * 2, (4, 8), "down", 0),
        ("all_reduce", "dp", 2, (), "", None),
    ]
    first = graph().collectives[0]
    assert first.dtype == "bf16"
    assert first.graph == "forward"
    assert first.node is graph()["up/gather"] or first.node.name == "up/gather"
    assert str(first) == "all_gather over tp, 128 bytes (bf16[8, 8]) in up, waited for after 1 op"
    assert repr(first) == f"<{first}>"


def test_collectives_print_as_a_table() -> None:
    assert str(graph().collectives).splitlines() == [
        "#  kind        group  bytes  tensor      wait        module  graph",
        "-  ----------  -----  -----  ----------  ----------  ------  -------",
        "0  all_gather  tp       128  bf16[8, 8]  after 1 op  up      forward",
        "1  all_reduce  tp       192  bf16[4, 8]  at once     down    forward",
        "2  all_reduce  dp         2  bf16[]                          forward",
    ]
    symbolic = graph(TEXT.replace("[8, 8]", "[s0, 8]")).collectives
    assert str(symbolic).splitlines()[2].split()[:5] == ["0", "all_gather", "tp", "?", "bf16[s0,"]
    view = TEXT.replace("%up/mm = aten.mm.default(%x, %w)", "%up/mm = aten.alias.default(%x)")
    assert "after 1 op, none of which computes" in str(graph(view).collectives)
    line = replace(symbolic[0], source=Source("net.py", 31, "x = gather(x)"))
    assert str(line).endswith("in up, waited for after 1 op (net.py:31)")
    assert str(Collectives([line])).splitlines()[-1].split()[-2:] == ["net.py:31", "forward"]
    assert str(Collectives()) == "no collectives"


def test_collective_wait_for_a_view_is_found() -> None:
    """The wait for padded rows takes a view of the rows."""
    text = TEXT.replace(
        "%up/wait = _c10d_functional.wait_tensor.default(%up/gather) : bf16[8, 8]",
        "%up/part = aten.slice.Tensor(%up/gather, 0, 0, 8) : bf16[8, 8]\n"
        "  %up/view = aten.view.default(%up/part, [8, 8]) : bf16[8, 8]\n"
        "  %up/wait = _c10d_functional.wait_tensor.default(%up/view) : bf16[8, 8]",
    )
    assert graph(text).collectives[0].distance == 3


def test_batched_sends_and_receives_are_one_op() -> None:
    text = TEXT.replace(
        '%all_reduce_ = _c10d_functional.all_reduce_.default(%sum, "sum", "dp") : bf16[]',
        '%p2p = _c10d_functional.batch_p2p_ops.default(["isend", "irecv"], [1, 3], [0, 0], '
        '[%x, %down/wait], "pp") : (bf16[4, 8], bf16[4, 8])',
    )
    *_, send, receive = graph(text).collectives
    assert facts(send)[:3] == ("send", "pp", 64)
    assert facts(receive)[:3] == ("recv", "pp", 64)


def test_collective_of_symbolic_size_has_no_bytes() -> None:
    text = TEXT.replace("[8, 8]", "[s0, 8]")
    first = graph(text).collectives[0]
    assert first.bytes is None
    graph(text).assert_collectives({"all_gather": 1, "all_reduce": 2})
    with pytest.raises(AssertionError, match=r"size is symbolic: .*capture\.with_sizes\(s0=8\)"):
        graph(text).assert_collectives({"all_gather": 1, "all_reduce": 2}, bytes=1)
    assert graph(text).with_sizes(s0=8).collectives[0].bytes == graph().collectives[0].bytes


def collective(op: str, arguments: str, result: str = "f32[4]") -> Collective:
    text = (
        "torchgraph 1\n\nforward @ aot {\n  %x = input : f32[4]\n"
        f"  %one = {op}({arguments}) : {result} !communicates\n  return %one\n}}\n"
    )
    (collective,) = graph(text).collectives
    return collective


@pytest.mark.parametrize(
    ("op", "arguments", "kind", "group"),
    [
        ("symm_mem.tile_reduce.default", '%x, %x, 0, "tp", "sum"', "reduce", "tp"),
        ("symm_mem.one_shot_all_reduce.default", '%x, "sum", "tp"', "all_reduce", "tp"),
        ("symm_mem.fused_all_gather_matmul.default", '%x, [%x], 0, "tp"', "all_gather", "tp"),
        ("symm_mem.nvshmem_put.default", "%x, 1", "other", ""),
        ("symm_mem.nccl_put_with_signal.default", "%x, 0, 1", "other", ""),
        ("c10d.monitored_barrier_.default", '%x, "dp", [], 30, False', "barrier", "dp"),
    ],
)
def test_symmetric_memory_and_rare_collectives(
    op: str, arguments: str, kind: str, group: str
) -> None:
    result = collective(op, arguments)
    assert (result.kind, result.group) == (kind, group)


def test_barrier_has_no_bytes() -> None:
    """c10d passes a tensor that only states the device."""
    result = collective("c10d.barrier.default", '%x, "dp", []', "opaque")
    assert (result.bytes, result.shape, result.dtype) == (0, (), "")


@pytest.mark.parametrize(
    ("result", "size"),
    [("c64[3]", 24), ("c128[2, 2]", 64), ("f8e4m3fn[5]", 5), ("bool[7]", 7), ("f32[0, 4]", 16)],
)
def test_collective_bytes_are_those_of_the_larger_side(result: str, size: int) -> None:
    """The input is f32[4], 16 bytes."""
    result = collective("_c10d_functional.all_reduce.default", '%x, "sum", "tp"', result)
    assert result.bytes == max(16, size)


def test_unused_dimension_of_a_known_mesh_counts_zero() -> None:
    meshed = replace(graph(), groups={"tp": (0, 1), "dp": (0, 2), "pp": (0, 4)})
    meshed.assert_collectives({}, group="pp")
    with pytest.raises(AssertionError, match="all_reduce: expected 1, found 0"):
        meshed.assert_collectives({"all_reduce": 1}, group="pp")
    with pytest.raises(ValueError, match=r"group 'ppp'.* groups: dp, pp, tp"):
        meshed.assert_collectives({}, group="ppp")
    assert meshed == graph()


def test_collective_group_is_the_argument_with_a_known_group() -> None:
    text = TEXT.replace('"sum", "dp")', '"sum", "dp", "fast")')
    assert graph(text).collectives[-1].group == "fast"
    known = replace(graph(text), groups={"dp": (0, 2)})
    assert known.collectives[-1].group == "dp"


def test_collectives_of_an_unknown_group_match_any_group() -> None:
    """torch.export passes a process group as an object."""
    text = TEXT.replace('"sum", "dp")', "%w)")
    assert graph(text).collectives[-1].group == ""
    with pytest.raises(
        AssertionError, match="1 collective over an unknown group, possibly tp \\(omit group="
    ):
        graph(text).assert_collectives({"all_gather": 1, "all_reduce": 1}, group="tp")
    graph(text).assert_collectives({"all_gather": 1, "all_reduce": 2})


def test_collective_functions_traced_by_fx_are_found() -> None:
    result = collective("torch.distributed.distributed_c10d.all_gather", "[%x, %x], %x, group=%x")
    assert (result.kind, result.group, result.bytes) == ("all_gather", "", 32)
    result = collective(
        "torch.distributed.distributed_c10d.broadcast_object_list", "[%x], group=%x"
    )
    assert result.kind == "broadcast"


def test_collectives_in_unrecorded_hooks_are_refused() -> None:
    op = "torch._dynamo.external_utils.call_hook"
    with pytest.raises(CaptureError, match=r"%one \(torch._dynamo.external_utils.call_hook"):
        collective(op, '%x, %x, hook_type="tensor_pre_hook"')


def test_assert_collectives_passes() -> None:
    graph().assert_collectives({"all_gather": 1, "all_reduce": 2})
    graph().assert_collectives({"all_gather": 1}, exact=False)
    graph().assert_collectives({"all_gather": (1, None), "all_reduce": 1}, group="tp")
    graph().assert_collectives({"all_reduce": 1, "all_gather": 0}, group="dp", bytes=2)
    graph().assert_collectives({"all_gather": 1}, bytes=128, exact=False)
    graph().assert_collectives({"all_gather": {"cpu": 1}}, exact=False)


@pytest.mark.parametrize(
    ("expected", "options", "message"),
    [
        ({"all_gather": 1}, {}, r"all_reduce: expected none \(exact=True\), found 2"),
        ({"all_gather": 1, "all_reduce": 1}, {}, "all_reduce: expected 1, found 2"),
        ({"all_gather": 2, "all_reduce": 2}, {}, "all_gather: expected 2, found 1"),
        ({"all_to_all": 1}, {"exact": False}, "all_to_all: expected 1, found 0"),
        ({}, {}, r"all_gather: expected none \(exact=True\), found 1"),
        ({"all_reduce": 2}, {"group": "tp", "exact": False}, "in group tp"),
        ({"all_reduce": 1}, {"group": "dp", "bytes": 1}, "bytes: expected 1, found 2"),
        ({"all_gather": 1}, {"bytes": (0, 100), "exact": False}, "at most 100, found 128"),
    ],
)
def test_assert_collectives_failure_lists_the_collectives(
    expected: dict[str, int], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(AssertionError, match=message) as error:
        graph().assert_collectives(expected, **options)
    collectives = ("over tp, 128 bytes", "over dp, 2 bytes", "192 bytes")
    assert any(text in str(error.value) for text in collectives)


def test_equal_collectives_are_listed_once() -> None:
    call = '_c10d_functional.all_reduce_.default(%sum, "sum", "dp") : bf16[] !communicates\n'
    parsed = graph(TEXT.replace(f"= {call}", f"= {call}  %again = {call}"))
    line = Source("step.py", 7, "reduce(x)")
    placed = replace(parsed, nodes=tuple(replace(node, source=line) for node in parsed.nodes))
    with pytest.raises(AssertionError) as error:
        placed.assert_collectives({}, group="dp", bytes=0)
    *_, listed, place, size = str(error.value).splitlines()
    assert listed.strip() == "all_reduce over dp, 2 bytes, in graph 'forward'  (2 times)"
    assert place.endswith("step.py:7: reduce(x)")
    assert size.strip() == "bytes: expected 0, found 4"


def test_assert_collectives_failure_has_a_picture() -> None:
    with pytest.raises(AssertionError) as error:
        graph().assert_collectives({})
    assert shown_by(error.value) is not None


def test_assert_collectives_without_any_collective() -> None:
    quiet = Graph.from_text(
        "torchgraph 1\n\nforward @ aot {\n  %x = input : f32[2]\n"
        "  %relu = aten.relu.default(%x) : f32[2]\n  return %relu\n}\n"
    )
    quiet.assert_collectives({})
    assert quiet.collectives == ()
    with pytest.raises(AssertionError, match="no collective was captured"):
        quiet.assert_collectives({"all_reduce": 1})
    with pytest.raises(ValueError, match=r"over group 'tp', and no mesh.*Omit group="):
        quiet.assert_collectives({}, group="tp")


@pytest.mark.parametrize(
    ("expected", "options", "error", "message"),
    [
        ({}, {"exact": False}, TypeError, "exact=False\\) checks nothing: name a kind"),
        ({}, {"exact": False, "bytes": 1}, TypeError, "checks nothing"),
        ({"all_reduce": (0, None)}, {"exact": False}, TypeError, r"because \(0, None\) allows"),
        (
            {"all_reduce": (0, None)},
            {"exact": False, "bytes": (0, None)},
            TypeError,
            r"because \(0, None\) allows",
        ),
        (["all_reduce"], {}, TypeError, "expected a mapping"),
        ({"allreduce": 1}, {}, ValueError, "did you mean 'all_reduce'"),
        ({"wait_tensor": 1}, {}, ValueError, "not a kind of collective: use all_reduce"),
        ({"all_reduce": 1}, {"group": "pp"}, ValueError, "groups: dp, tp"),
        ({"all_reduce": True}, {}, TypeError, "True is not a valid count"),
        (
            {"all_reduce": 2},
            {"bytes": "1k", "exact": False},
            TypeError,
            "'1k' is not a valid count",
        ),
    ],
)
def test_assert_collectives_bad_arguments(
    expected: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        graph().assert_collectives(expected, **options)
