"""Collectives as values, and the assertion about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_torchgraph import Collective, Graph
from pytest_torchgraph.graph.failures import shown_by
from pytest_torchgraph.graph.model import Source

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


def facts(found: Collective) -> tuple[Any, ...]:
    return found.kind, found.group, found.bytes, found.shape, found.module, found.distance


def test_what_is_known_of_each() -> None:
    assert [facts(each) for each in graph().collectives] == [
        ("all_gather", "tp", 8 * 8 * 2, (8, 8), "up", 1),
        ("all_reduce", "tp", (4 * 8 + 8 * 8) * 2, (4, 8), "down", 0),
        ("all_reduce", "dp", 2, (), "", None),
    ]
    first = graph().collectives[0]
    assert first.dtype == "bf16"
    assert first.graph == "forward"
    assert first.node is graph()["up/gather"] or first.node.name == "up/gather"
    assert str(first) == "all_gather over tp, 128 bytes in up"


def test_several_sends_and_receives_as_one_op() -> None:
    (text,) = [
        TEXT.replace(
            '%all_reduce_ = _c10d_functional.all_reduce_.default(%sum, "sum", "dp") : bf16[]',
            '%p2p = _c10d_functional.batch_p2p_ops.default(["isend", "irecv"], [1, 3], [0, 0], '
            '[%x, %down/wait], "pp") : (bf16[4, 8], bf16[4, 8])',
        )
    ]
    *_, send, receive = graph(text).collectives
    assert facts(send)[:3] == ("send", "pp", 64)
    assert facts(receive)[:3] == ("recv", "pp", 64)


def test_a_symbolic_size_has_no_bytes() -> None:
    text = TEXT.replace("[8, 8]", "[s0, 8]")
    first = graph(text).collectives[0]
    assert first.bytes is None
    graph(text).assert_collectives({"all_gather": 1, "all_reduce": 2})
    with pytest.raises(AssertionError, match="not known, because a size is a symbol"):
        graph(text).assert_collectives({"all_gather": 1, "all_reduce": 2}, bytes=1)


def test_holds() -> None:
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
def test_fails_and_lists_what_is_there(
    expected: dict[str, int], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(AssertionError, match=message) as error:
        graph().assert_collectives(expected, **options)
    assert (
        "over tp, 128 bytes" in str(error.value)
        or "over dp, 2 bytes" in str(error.value)
        or ("192 bytes" in str(error.value))
    )


def test_equal_ones_are_listed_once() -> None:
    call = '_c10d_functional.all_reduce_.default(%sum, "sum", "dp") : bf16[] !communicates\n'
    made = graph(TEXT.replace(f"= {call}", f"= {call}  %again = {call}"))
    line = Source("step.py", 7, "reduce(x)")
    placed = replace(made, nodes=tuple(replace(node, source=line) for node in made.nodes))
    with pytest.raises(AssertionError) as error:
        placed.assert_collectives({}, group="dp", bytes=0)
    *_, listed, place, size = str(error.value).splitlines()
    assert listed.strip() == "all_reduce of forward over dp, 2 bytes  (2 times)"
    assert place.endswith("step.py:7: reduce(x)")
    assert size.strip() == "bytes: expected 0, found 4"


def test_a_failure_has_a_picture_of_what_is_too_much() -> None:
    with pytest.raises(AssertionError) as error:
        graph().assert_collectives({})
    assert shown_by(error.value) is not None


def test_none_at_all() -> None:
    quiet = Graph.from_text(
        "torchgraph 1\n\nforward @ aot {\n  %x = input : f32[2]\n"
        "  %relu = aten.relu.default(%x) : f32[2]\n  return %relu\n}\n"
    )
    quiet.assert_collectives({})
    assert quiet.collectives == ()
    with pytest.raises(AssertionError, match="no collective was captured at all"):
        quiet.assert_collectives({"all_reduce": 1})
    with pytest.raises(ValueError, match=r"over a group 'tp'.*there is no group"):
        quiet.assert_collectives({}, group="tp")


@pytest.mark.parametrize(
    ("expected", "options", "error", "message"),
    [
        ({}, {"exact": False}, TypeError, "checks nothing"),
        (["all_reduce"], {}, TypeError, "expected a mapping"),
        ({"allreduce": 1}, {}, ValueError, "did you mean 'all_reduce'"),
        ({"wait_tensor": 1}, {}, ValueError, "no kind of collective: use all_reduce"),
        ({"all_reduce": 1}, {"group": "pp"}, ValueError, "there is dp, tp"),
        ({"all_reduce": True}, {}, TypeError, "True is no count"),
        ({"all_reduce": 2}, {"bytes": "1k", "exact": False}, TypeError, "'1k' is no count"),
    ],
)
def test_bad_arguments(
    expected: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        graph().assert_collectives(expected, **options)
