"""Storages shared by an op's result, derived from its name, against torch's schemas."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_torchgraph.ops import ABBREVIATIONS, item_size, shared_argument
from pytest_torchgraph.ops.dtypes import _OTHERS
from pytest_torchgraph.ops.registry import registered
from pytest_torchgraph.ops.views import UNDECLARED_VIEWS, VIEWS


def schema_of(op: str) -> torch._C.FunctionSchema | None:
    found: object = torch.ops
    for part in op.split("."):
        found = getattr(found, part, None)
    return found._schema if isinstance(found, torch._ops.OpOverload) else None


def first_result_shares(schema: torch._C.FunctionSchema) -> int | None:
    """Return the position of the argument that shares its storage with the first result.

    For a list of results, a schema marks only the argument, as in `Tensor(a -> *) self`.
    """
    returned = schema.returns[0].alias_info
    for position, argument in enumerate(schema.arguments):
        info = argument.alias_info
        if info is None or argument.kwarg_only:
            continue
        if not info.is_write or (returned and info.before_set & returned.before_set):
            return position
    return None


def test_view_ops_agree_with_torchs_schemas() -> None:
    wrong = {}
    for op in registered():
        namespace, packet, _ = op.split(".")
        schema = schema_of(op)
        if namespace not in ("aten", "prims") or schema is None or len(schema.returns) == 0:
            continue
        undeclared = f"{namespace}.{packet}" in UNDECLARED_VIEWS
        if not undeclared and shared_argument(op) != first_result_shares(schema):
            wrong[op] = str(schema)
    assert wrong == {}
    assert len(VIEWS) > 80


def test_wait_tensor_shares_the_storage_of_its_operand() -> None:
    assert shared_argument("_c10d_functional.wait_tensor.default") == 0
    assert shared_argument("_c10d_functional.all_reduce.default") is None


@pytest.mark.parametrize(
    ("packet", "argument"),
    [
        ("_unsafe_view", [4]),
        ("unsafe_chunk", 2),
        ("unsafe_split", 1),
        ("unsafe_split_with_sizes", [1, 1]),
    ],
)
def test_ops_share_a_storage_that_their_schemas_do_not_declare(packet: str, argument: Any) -> None:
    x = torch.zeros(2, 2)
    result = getattr(torch.ops.aten, packet)(x, argument)
    first = result if isinstance(result, torch.Tensor) else result[0]
    assert first.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert shared_argument(f"aten.{packet}.default") == 0


def test_the_schema_of_an_op_of_the_users_is_read() -> None:
    with torch.library._scoped_library("torchgraph_views", "DEF") as library:
        library.define("second(Tensor x, Tensor(a) y) -> Tensor(a)")
        library.define("own(Tensor x) -> Tensor")
        assert shared_argument("torchgraph_views.second.default") == 1
        assert shared_argument("torchgraph_views.own.default") is None
    assert shared_argument("torchgraph_views.unknown.default") is None


@pytest.mark.parametrize("name", sorted({*ABBREVIATIONS, *_OTHERS}))
def test_bytes_of_an_element(name: str) -> None:
    dtype = getattr(torch, name, None)
    if dtype is None:
        pytest.skip(f"this torch has no {name}")
    assert item_size(name) == dtype.itemsize
