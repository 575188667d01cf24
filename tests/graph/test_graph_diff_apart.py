"""Added layers are not paired with nodes of other modules, but moved modules are paired."""

from __future__ import annotations

import pytest
import torch
from graph.build import difference, graph
from torch import nn

from pytest_torchgraph import capture, diff
from pytest_torchgraph.graph import Graph


def decoder(layers: int, act: str = "silu", blocks: str = "layers") -> Graph:
    """Return a decoder whose layers begin with a norm like the final norm."""
    lines, value = [], "x"
    for k in range(layers):
        path = f"%{blocks}.{k}"
        lines += [
            f"{path}.norm/pow = aten.pow(%{value}, 2)",
            f"{path}.norm/mean = aten.mean({path}.norm/pow)",
            f"{path}.norm/mul = aten.mul(%{value}, {path}.norm/mean)",
            f"{path}.mlp.act/{act} = aten.{act}({path}.norm/mul)",
            f"{path}/add = aten.add(%{value}, {path}.mlp.act/{act})",
        ]
        value = f"{path[1:]}/add"
    lines += [
        f"%norm/pow = aten.pow(%{value}, 2)",
        "%norm/mean = aten.mean(%norm/pow)",
        f"%norm/mul = aten.mul(%{value}, %norm/mean)",
        "return %norm/mul",
    ]
    return graph("\n".join(lines))


@pytest.mark.parametrize("more", [1, 2, 5])
def test_added_layer_has_all_its_ops_and_the_final_norm_none(more: int) -> None:
    few, many = decoder(5), decoder(5 + more)
    for before, after, kind in ((few, many, "added"), (many, few, "removed")):
        diff = difference(before, after)
        nodes = {node.name for node in (diff.added if kind == "added" else diff.removed)}
        new = {node.name for node in many.nodes if node.is_call} - {n.name for n in few.nodes}
        assert nodes == new, diff
        (finding,) = diff.findings
        assert finding.modules == tuple(f"layers.{5 + k}" for k in range(more))
        assert {sum(c.kind == kind for c in place.changes) for place in finding.places} == {5}
        assert not diff.changed


def test_a_new_layer_and_an_edit_of_its_class_are_two_findings() -> None:
    modules, edit = difference(decoder(5), decoder(6, "relu")).findings
    if modules.kind != "added":
        modules, edit = edit, modules
    assert modules.modules == ("layers.5",)
    assert [place.module for place in edit.places] == [f"layers.{k}.mlp.act" for k in range(5)]


def test_renamed_module_list_is_paired() -> None:
    diff = difference(decoder(5), decoder(5, "relu", blocks="blocks"))
    assert diff.heading().startswith("1 edit in 5 places: aten.silu -> aten.relu"), diff


def test_a_called_module_removed_from_a_list_is_that_module() -> None:
    modules = nn.ReLU(), nn.Tanh(), nn.GELU(), nn.SiLU()
    x = torch.ones(2)
    before, after = (
        capture(nn.Sequential(*side), x, via="fx") for side in (modules, (modules[0], *modules[2:]))
    )
    assert diff(before, after).heading().startswith("1 edit: torch.nn.Tanh removed in 1 (")
