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


def sequence(*ops: str, head: str = "") -> Graph:
    """Return a list of modules of two ops each, with a head after the list."""
    lines, value = [], "x"
    paths = [*(f"net.{k}" for k in range(len(ops))), *["head"] * bool(head)]
    for path, op in zip(paths, (*ops, head) if head else ops, strict=True):
        lines += [f"%{path}/{op} = aten.{op}(%{value})", f"%{path}/neg = aten.neg(%{path}/{op})"]
        value = f"{path}/neg"
    return graph("\n".join([*lines, f"return %{value}"]))


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


@pytest.mark.parametrize("longer", [False, True], ids=["fewer have it", "more have it"])
def test_a_layer_and_the_residual_of_all_others_are_two_findings(longer: bool) -> None:
    def layers(count: int, *, residual: bool) -> Graph:
        lines, value = [], "x"
        for k in range(count):
            fc, add = f"layers.{k}.fc", f"layers.{k}/add"
            lines += [f"%{fc}/sin = aten.sin(%{value})", f"%{fc}/cos = aten.cos(%{fc}/sin)"]
            if residual:
                lines.append(f"%{add} = aten.add(%{value}, %{fc}/cos)")
            value = add if residual else f"{fc}/cos"
        return graph("\n".join([*lines, f"return %{value}"]))

    few, many = layers(3, residual=not longer), layers(4, residual=longer)
    for sides, layer, other in (
        ((few, many), "added", "removed"),
        ((many, few), "removed", "added"),
    ):
        assert difference(*sides).heading() == (
            f"1 module {layer}: layers.3, like layers.2 ({2 + longer} ops); "
            f"1 edit in 3 places: aten.add {layer if longer else other} in layers.{{0 … 2}}"
        )


def test_renamed_module_list_is_paired() -> None:
    diff = difference(decoder(5), decoder(5, "relu", blocks="blocks"))
    assert diff.heading().startswith("1 edit in 5 places: aten.silu -> aten.relu"), diff


@pytest.mark.parametrize("head", ["", "tan"])
def test_modules_that_moved_up_in_their_list_are_paired(head: str) -> None:
    before = sequence("sin", "cos", "tanh", "exp", head=head)
    after = sequence("sin", "erf", "cos", "tanh", "exp", head=head)
    diff = difference(before, after)
    assert [node.name for node in diff.added] == ["net.1/erf", "net.1/neg"], diff
    assert not diff.removed
    assert not diff.changed


OPS = ("sin", "cos", "tanh", "exp", "erf")


@pytest.mark.parametrize("place", range(len(OPS)))
def test_a_module_removed_from_a_list_is_that_module_and_no_other(place: int) -> None:
    long, short = sequence(*OPS), sequence(*OPS[:place], *OPS[place + 1 :])
    for before, after, kind in ((long, short, "removed"), (short, long, "added")):
        found = difference(before, after)
        assert found.heading() == f"1 module {kind}: net.{place} (2 ops)"
        (finding,) = found.findings
        assert [change.node.op for change in finding.changes] == [f"aten.{OPS[place]}", "aten.neg"]


def test_a_called_module_removed_from_a_list_is_that_module() -> None:
    modules = nn.ReLU(), nn.Tanh(), nn.GELU(), nn.SiLU()
    x = torch.ones(2)
    before, after = (
        capture(nn.Sequential(*side), x, via="fx") for side in (modules, (modules[0], *modules[2:]))
    )
    assert diff(before, after).heading().startswith("1 edit: torch.nn.Tanh removed in 1 (")


def test_an_edit_of_a_renumbered_module_is_a_finding_of_its_own() -> None:
    found = difference(sequence(*OPS), sequence(*OPS[1:3], "relu", OPS[4]))
    headings = found.heading()
    assert headings.startswith("1 module removed: net.0 (2 ops)")
    assert "aten.exp -> aten.relu in net.2" in headings
    assert len(found.findings) == 2


def test_modules_inside_renumbered_modules_are_aligned_too() -> None:
    def nested(*blocks: tuple[str, ...]) -> Graph:
        lines, value = [], "x"
        for number, ops in enumerate(blocks):
            for place, op in enumerate(ops):
                name = f"net.{number}.{place}/{op}"
                lines.append(f"%{name} = aten.{op}(%{value})")
                value = name
        return graph("\n".join([*lines, f"return %{value}"]))

    rest = ("sinh", "cosh", "abs"), ("sqrt", "log")
    before = nested(("sin", "cos"), ("tanh", "exp", "erf"), *rest)
    after = nested(("tanh", "erf"), *rest)
    found = difference(before, after)
    assert {change.node.op for finding in found.findings for change in finding.changes} == {
        "aten.sin",
        "aten.cos",
        "aten.exp",
    }


def test_module_that_moved_into_a_list_is_paired() -> None:
    before = sequence("sin", "cos", "tanh", head="exp")
    after = sequence("sin", "erf", "tanh", "exp")
    assert difference(before, after).heading() == "1 edit: aten.cos -> aten.erf in net.1"
