"""What belongs to an edit and what is another one, in examples of one line."""

from __future__ import annotations

import pytest
from graph.rule_examples import Example

MLP = "up=nn.Linear({0}, {1}), down=nn.Linear({1}, {2})"
CONVOLVED = "layers(x[None, None])"
CONVOLUTIONS = (
    "layers=nn.Sequential(nn.Conv2d(1, 8, {0}, padding={0} // 2), nn.ReLU(), "
    "nn.Conv2d(8, 8, {1}, padding={1} // 2), nn.ReLU(), nn.Conv2d(8, 4, {2}, padding={2} // 2))"
)
BLOCKS = (
    "blocks=nn.Sequential(*(Written('x + mlp(norm(x))', 'norm={0}, mlp=Written(\"{1}\", "
    '"up=nn.Linear(6, 8), gate=nn.Linear(6, 8), down=nn.Linear(8, 6)")\') for _ in range(2)))'
)
PLAIN = BLOCKS.format("nn.LayerNorm(6)", "down(F.gelu(up(x)))")
GATED = BLOCKS.format("nn.RMSNorm(6)", "down(F.silu(up(x)) * gate(x))")
SCORES = "(query(x).sin() @ key(x).cos().T) * {}"
HEADS = "query=nn.Linear(6, {0}), key=nn.Linear(6, {0})"
SMALL, WIDE = HEADS.format(8), HEADS.format(16)

EDITS: dict[str, tuple[int, str, Example]] = {
    "clone of the user's before a reshape": (
        2,
        "aten.clone removed",
        Example("x.sin().t().clone().sigmoid().sum(0)", "x.cos().t().sigmoid().sum(0)", via="aot"),
    ),
    "kernels of other channels": (
        1,
        "1 edit in 3 places",
        Example(CONVOLVED, CONVOLVED, CONVOLUTIONS.format(3, 3, 3), CONVOLUTIONS.format(5, 5, 5)),
    ),
    "kernels of two sizes": (
        2,
        "",
        Example(CONVOLVED, CONVOLVED, CONVOLUTIONS.format(3, 3, 3), CONVOLUTIONS.format(5, 7, 3)),
    ),
    "wider hidden layer and another activation": (
        2,
        "aten.relu -> aten.tanh",
        Example(
            "down(up(x).relu())", "down(up(x).tanh())", MLP.format(6, 4, 6), MLP.format(6, 8, 6)
        ),
    ),
    "wider input and wider output around the same hidden size": (
        2,
        "",
        Example(
            *("down(up(x[:, :4]).relu())", "down(up(x[:, :5]).relu())"),
            *(MLP.format(4, 8, 4), MLP.format(5, 8, 12)),
        ),
    ),
    "wider hidden layers that share no size": (
        2,
        "",
        Example(
            *["second(first(x).sin())"] * 2,
            *(
                f"first=Written('down(up(x))', '{MLP.format(6, one, 6)}'), "
                f"second=Written('down(up(x))', '{MLP.format(6, other, 6)}')"
                for one, other in ((8, 8), (16, 24))
            ),
        ),
    ),
    "wider hidden layer and another input of a third layer": (
        2,
        "",
        Example(
            *("down(up(x).relu()) + a(y[:, :3]).sin()", "down(up(x).relu()) + a(y[:, :4]).sin()"),
            f"{MLP.format(6, 8, 6)}, a=nn.Linear(3, 6)",
            f"{MLP.format(6, 24, 6)}, a=nn.Linear(4, 6)",
        ),
    ),
    "width of a query and a key": (
        1,
        "",
        Example(SCORES.format(2.0), SCORES.format(2.0), SMALL, WIDE),
    ),
    **{
        f"scale of a width, {power}": (
            1,
            "",
            Example(SCORES.format(8**power), SCORES.format(16**power), SMALL, WIDE),
        )
        for power in (0.5, -0.5, -1)
    },
    "norm, activation and gate": (
        3,
        "aten.gelu -> aten.silu",
        Example("blocks(x)", "blocks(x)", PLAIN, GATED),
    ),
    "norm, activation and gate undone": (
        3,
        "aten.silu -> aten.gelu",
        Example("blocks(x)", "blocks(x)", GATED, PLAIN),
    ),
    "op and its parts": (
        1,
        "",
        Example("F.gelu(x.sin()) * y", "(h := x.sin()) * torch.sigmoid(1.702 * h) * y"),
    ),
    "rewritten call and an edit beside it": (
        2,
        "aten.sin -> aten.tan",
        Example(
            "(x.view(2, 3, 6) @ y.view(2, 6, 3)).sin()",
            "torch.einsum('bij,bjk->bik', x.view(2, 3, 6), y.view(2, 6, 3)).tan()",
            via="aot",
        ),
    ),
    "width and an unrelated scale": (
        2,
        "",
        Example(SCORES.format(0.5), SCORES.format(0.25), SMALL, WIDE),
    ),
}
"""The number of findings, words of the heading, and the example."""


@pytest.mark.parametrize("name", EDITS)
def test_edits_of_an_example_are_as_many_findings(name: str) -> None:
    count, words, example = EDITS[name]
    diff = example.difference()
    assert len(diff.findings) == count, diff
    assert words in diff.heading()
