"""An edited activation is one finding in its module, in-place or shared."""

from __future__ import annotations

import pytest
from graph.rule_examples import Example

from pytest_torchgraph import Finding

BLOCKS = (
    "blocks=nn.Sequential(*(Written('act(fc(x))', 'fc=nn.Linear(6, 6), act=' + act) "
    "for act in ('{0}', '{1}', '{0}')))"
)
SHARED = (
    "blocks=(lambda act: nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), act) for _ in range(3))))"
    "({})"
)


def edited(before: str, after: str) -> Example:
    return Example("blocks(x).cos()", "blocks(x).cos()", before, after)


def followed_in(finding: Finding) -> list[set[str]]:
    """Return, for each place, the modules of its consequences, rewired nodes excluded."""
    return [
        {c.node.module for c in place.consequences if c.node.is_call and c.kind != "rewired"}
        for place in finding.places
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("nn.Hardswish(inplace=True)", "nn.ReLU()"),
        ("nn.SiLU(inplace=True)", "nn.Tanh()"),
        ("nn.GELU()", "nn.ReLU6(inplace=True)"),
    ],
)
def test_in_place_activation_is_one_op_in_its_own_module(old: str, new: str) -> None:
    before = BLOCKS.format(old, old)
    for after, numbers in ((BLOCKS.format(new, new), [0, 1, 2]), (BLOCKS.format(old, new), [1])):
        diff = edited(before, after).difference()
        (finding,) = diff.findings
        paths = [f"blocks.{k}.act" for k in numbers]
        assert [place.module for place in finding.places] == paths, diff
        assert followed_in(finding) == [{path} for path in paths], diff
        assert finding.before is not None
        assert finding.after is not None
        assert "clone" not in finding.before.op + finding.after.op, diff


def test_shared_activation_keeps_its_path_and_names_its_callers() -> None:
    diff = edited(SHARED.format("nn.GELU()"), SHARED.format("nn.ReLU()")).difference()
    assert diff.heading().startswith(
        "1 edit in 3 places: aten.gelu -> aten.relu in blocks.0.1 × 3, fed by blocks.{0 … 2}.0 "
        "(ReLU, "
    )
    (finding,) = diff.findings
    assert [place.module for place in finding.places] == ["blocks.0.1"] * 3
    assert followed_in(finding) == [{"blocks.0.1"}] * 3, diff
    for k, place in enumerate(finding.places):
        took = {c.before.name for c in place.consequences if c.before is not None}
        assert f"blocks.{k}.0/addmm" in took, diff
