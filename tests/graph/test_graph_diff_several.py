"""An inserted op is the edit, several edits are several findings, one call is one finding."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from graph.build import difference, graph
from torch import Tensor, nn
from torch.nn import functional as F

import pytest_torchgraph
from pytest_torchgraph import GraphDiff

# -- changed sizes are consequences, not the edit -------------------------------------------------

CONVOLVED = """
    %w = parameter : f32[3, 3]{op}
    %norm = aten.group_norm_like(%{x}, 2, {pixels}) : f32[2, {n}]
    %conv = aten.conv_like(%norm, %w, [{stride}]) : f32[2, {n}]
    %view = aten.view.default(%conv, [{flat}]) : f32[{flat}]
    return %view
    """


def convolved(op: str = "", x: str = "x", n: int = 3, stride: int = 1) -> str:
    return CONVOLVED.format(op=op, x=x, n=n, pixels=2 * n, flat=2 * n, stride=stride)


POOLED = "\n    %pool = aten.max_pool_like(%x) : f32[2, 1]"


def test_inserted_op_is_the_edit_although_later_sizes_change() -> None:
    sides = graph(convolved()), graph(convolved(POOLED, "pool", 1))
    diff = difference(*sides)
    assert diff.heading() == "1 edit: aten.max_pool_like added (and 3 changed)"
    assert str(diff).splitlines()[1].startswith("+ added in ")
    diff = difference(*sides[::-1])
    assert diff.heading() == "1 edit: aten.max_pool_like removed (and 3 changed)"


def test_changed_constant_is_named_before_an_inserted_op() -> None:
    diff = difference(graph(convolved()), graph(convolved(POOLED, "pool", 1, stride=2)))
    assert diff.heading() == (
        "1 edit: argument 2: [1] -> [2] of aten.conv_like (and 1 added, 2 changed)"
    )


def test_inserted_casts_are_the_edit_not_the_changed_dtype() -> None:
    cast = """
        %up = aten._to_copy.default(%x, dtype=torch.float64) : f64[2, 3]
        %soft = aten._softmax.default(%up, -1, False) : f64[2, 3]
        %down = aten._to_copy.default(%soft, dtype=torch.float32) : f32[2, 3]
        return %down
        """
    plain = "%soft = aten._softmax.default(%x, -1, False) : f32[2, 3]\nreturn %soft"
    diff = difference(graph(plain), graph(cast))
    assert diff.heading() == "1 edit: 2 aten._to_copy added (and 1 changed)"


# -- several edits at once ------------------------------------------------------------------------


class RMS(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class MLP(nn.Module):
    def __init__(self, act: Callable[[Tensor], Tensor], *, gated: bool) -> None:
        super().__init__()
        self.up, self.down, self.act = nn.Linear(8, 16), nn.Linear(16, 8), act
        if gated:
            self.gate = nn.Linear(8, 16)
        self.gated = gated

    def forward(self, x: Tensor) -> Tensor:
        h = self.act(self.up(x))
        if self.gated:
            h = h * self.gate(x)
        return self.down(h)


class Net(nn.Module):
    def __init__(
        self,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        act: Callable[[Tensor], Tensor] = F.gelu,
        *,
        gated: bool = False,
    ) -> None:
        super().__init__()
        self.norms = nn.ModuleList(norm(8) for _ in range(2))
        self.mlps = nn.ModuleList(MLP(act, gated=gated) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for norm, mlp in zip(self.norms, self.mlps, strict=True):
            x = x + mlp(norm(x))
        return x


def compared(before: nn.Module, after: nn.Module) -> GraphDiff:
    x = torch.linspace(-1, 1, 16).reshape(2, 8)
    return pytest_torchgraph.diff(*(pytest_torchgraph.capture(net, x) for net in (before, after)))


NORM, ACT = "aten.native_layer_norm -> 6 ops", "aten.gelu -> aten.silu"
GATE = "aten.t and 2 more ops added"


@pytest.mark.parametrize(
    ("net", "edits"),
    [
        (lambda: Net(RMS, F.silu, gated=True), {NORM, ACT, GATE}),
        (lambda: Net(RMS, gated=True), {NORM, GATE}),
        (lambda: Net(act=F.silu, gated=True), {ACT, GATE}),
        (lambda: Net(RMS, F.silu), {NORM, ACT}),
        (lambda: Net(gated=True), {GATE}),
        (lambda: Net(RMS), {NORM}),
    ],
    ids=["norm, act and gate", "norm and gate", "act and gate", "norm and act", "gate", "norm"],
)
def test_each_of_several_edits_at_once_is_a_finding(
    net: Callable[[], nn.Module], edits: set[str]
) -> None:
    diff = compared(Net(), net())
    assert len(diff.findings) == len(edits), diff
    assert {len(finding.places) for finding in diff.findings} == {2}
    head, _, named = diff.heading().partition(": ")
    assert head.startswith(f"{len(edits)} edit")
    assert all(edit in named for edit in edits), named


def test_undone_edits_are_as_many_findings() -> None:
    diff = compared(Net(RMS, F.silu, gated=True), Net())
    assert len(diff.findings) == 3, diff
    assert "aten.silu -> aten.gelu" in diff.heading()


@pytest.mark.parametrize(
    "act",
    [
        lambda x: x * torch.sigmoid(1.702 * x),
        lambda x: x * torch.sigmoid(x),
        lambda x: F.relu(x).square(),
    ],
)
def test_op_replaced_by_its_parts_is_one_finding(act: Callable[[Tensor], Tensor]) -> None:
    assert len(compared(Net(), Net(act=act)).findings) == 1


# -- one call of a function of torch's -------------------------------------------------------------


def product(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-1, -2)


def einsum(q: Tensor, k: Tensor) -> Tensor:
    return torch.einsum("bhqd,bhkd->bhqk", q, k)


class Scores(nn.Module):
    def __init__(
        self,
        scores: Callable[[Tensor, Tensor], Tensor],
        before: Callable[[Tensor], Tensor] = torch.exp,
        after: Callable[[Tensor], Tensor] = torch.sin,
    ) -> None:
        super().__init__()
        self.scores, self.before, self.after = scores, before, after

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return self.after(self.scores(self.before(q), k))


def compared_scores(before: nn.Module, after: nn.Module) -> GraphDiff:
    q, k = torch.ones(2, 2, 8, 4, requires_grad=True), torch.ones(2, 2, 8, 4)
    return pytest_torchgraph.diff(
        *(pytest_torchgraph.capture(net, q, k) for net in (before, after))
    )


@pytest.mark.parametrize("sides", [(product, einsum), (einsum, product)])
def test_einsum_in_place_of_a_product_is_one_finding(
    sides: tuple[Callable[..., Tensor], ...],
) -> None:
    diff = compared_scores(*map(Scores, sides))
    (finding,) = diff.findings
    assert finding.source is not None
    assert len(finding.changes) > 8


def test_edit_beside_a_rewritten_call_is_a_separate_finding() -> None:
    diff = compared_scores(Scores(product), Scores(einsum, after=torch.tan))
    assert len(diff.findings) == 2, diff
    assert "aten.sin -> aten.tan" in diff.heading()


def test_two_edits_of_one_line_are_two() -> None:
    def one(q: Tensor, k: Tensor) -> Tensor:
        return (q.relu() @ k.mT).erf()

    def other(q: Tensor, k: Tensor) -> Tensor:
        return (q.tanh() @ k.mT).cos()

    def copied(q: Tensor, k: Tensor) -> Tensor:
        return (q.relu().clone() @ k.mT).neg().erf()

    assert len(compared_scores(Scores(one), Scores(other)).findings) == 2
    assert len(compared_scores(Scores(one), Scores(copied)).findings) == 2


# -- words ----------------------------------------------------------------------------------------

HALVES = """
    %a = aten.sin(%x) : f32[2, 3]
    %a.1 = aten.{first}(%a) : f32[2, 3]
    %a.2 = aten.{second}(%a) : f32[2, 3]
    {rest}
    """


@pytest.mark.parametrize(
    "rest",
    ["%sub = aten.sub(%a.1, %a.2) : f32[2, 3]\nreturn %sub", "return [%a.1, %a.2]"],
    ids=["an op", "the return"],
)
def test_names_with_a_new_meaning_are_reported(rest: str) -> None:
    rest = rest.replace("\n", "\n    ")
    before, after = (
        graph(HALVES.format(first=one, second=two, rest=rest))
        for one, two in (("cos", "exp"), ("exp", "cos"))
    )
    diff = difference(before, after)
    lines = str(diff).splitlines()
    assert lines[2].split() == ["before", *lines[3].split()[1:]]
    assert lines[4] == "    names   %a.1 is now %a.2, %a.2 is now %a.1"


def test_changed_return_value_is_not_reported_as_saved() -> None:
    diff = difference(
        graph("%n = aten.sin(%x) : f32[2, 3]\nreturn [%n, %y]"),
        graph("%n = aten.sin(%y) : f32[2, 3]\nreturn [%x, %n]"),
    )
    (finding,) = diff.findings
    assert [change.node.kind for change in finding.consequences] == ["output"]
    assert str(diff).splitlines()[-1] == "    follows in forward: the returned values differ"
