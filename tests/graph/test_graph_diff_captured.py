"""One edit of a real model is one finding of the whole capture, its backward included."""

from __future__ import annotations

import re

import pytest
import torch
from graph.rule_examples import Example

from pytest_torchgraph import Capture, Graph, capture, diff

BLOCKS = (
    "blocks=nn.Sequential(*(Written(line, 'norm=nn.LayerNorm(6), act=nn.GELU(), "
    "up=nn.Linear(6, 8), down=nn.Linear(8, 6)') for line in ('{0}', '{1}', '{0}')))"
)
PLAIN = "x - down(act(up(norm(x))))"
EDITS = {
    "x - down(act(up(norm(x))).clone())": ("added", "aten.clone.default", ""),
    "x - down(act(up(x)))": ("removed", "aten.native_layer_norm.default", "norm"),
    "down(act(up(norm(x)))) - x": ("rewired", "aten.sub.Tensor", ""),
    "(h := norm(x)) - down(act(up(h)))": ("rewired", "aten.sub.Tensor", ""),
}


def edited(line: str) -> Example:
    """Return an example of three blocks, of which the middle one has another line."""
    return Example(
        "blocks(x)", "blocks(x)", BLOCKS.format(PLAIN, PLAIN), BLOCKS.format(PLAIN, line)
    )


@pytest.mark.parametrize("line", EDITS)
def test_edit_of_a_captured_model_is_one_finding(line: str) -> None:
    kind, op, part = EDITS[line]
    (finding,) = edited(line).difference().findings
    assert finding.kind == kind
    assert finding.graph == "forward"
    assert finding.changes[0].node.op == op
    assert finding.module == ".".join(filter(None, ("blocks.1", part)))
    backward = {change.graph for change in finding.consequences}
    assert backward <= {"backward"}
    assert bool(finding.consequences) or kind == "added", "the backward of it differs as well"


def test_values_exchanged_in_every_layer_are_one_edit() -> None:
    """In the last layer, each has the future of the other."""
    layers = (
        "layers=nn.Sequential(*(Written('{}', 'q=nn.Linear(6, 6), k=nn.Linear(6, 6)') "
        "for _ in range(3)))"
    )
    lines = "x + q(x).sin() * k(x).cos()", "x + k(x).sin() * q(x).cos()"
    found = Example("layers(x)", "layers(x)", *map(layers.format, lines)).difference()
    (finding,) = found.findings
    assert re.match(r"1 edit in 3 places: operands of .* exchanged in layers\.{0 … 2} ", str(found))
    assert [place.module for place in finding.places] == [f"layers.{n}" for n in range(3)]


def test_diff_text_has_module_source_line_before_after_and_consequences() -> None:
    lines = str(edited("down(act(up(norm(x)))) - x").difference()).splitlines()
    assert lines[0].startswith(
        "1 edit: operands of aten.sub.Tensor exchanged in blocks.1 (Written, "
    )
    assert re.fullmatch(
        r"> rewired in blocks\.1 \[forward\]  \S*\.py:2: return down\(act\(up\(norm\(x\)\)\)\) - x",
        lines[1],
    )
    x, y = "%blocks.0/sub", "%blocks.1.down/addmm"
    assert lines[2:4] == [
        f"    before  %blocks.1/sub = aten.sub.Tensor({x}, {y}) : f32[6, 6]",
        f"    after   %blocks.1/sub = aten.sub.Tensor({y}, {x}) : f32[6, 6]",
    ]
    assert lines[4] == "    follows in backward: 4 rewired"
    assert len(lines) == 9


def test_gradient_sums_follow_from_the_residual_not_from_the_activation_beside_it() -> None:
    before, after = (
        BLOCKS.format(line, line).replace("nn.GELU()", act)
        for line, act in (
            ("(h := x + norm(x)) + down(act(up(h)))", "nn.GELU()"),
            ("down(act(up(x + norm(x))))", "nn.SiLU()"),
        )
    )
    found = Example("blocks(x)", "blocks(x)", before, after).difference().findings
    kinds = {
        finding.kind: {c.kind for c in finding.consequences if c.node.is_call} for finding in found
    }
    assert kinds == {"changed": {"changed"}, "removed": {"removed"}}, found


NET = (
    "net=nn.Sequential(*(Written('torch.relu(norm(conv(x)))', 'conv=nn.Conv2d(1, 1, 3), norm={}') "
    "for _ in range(2))).eval()"
)


@pytest.mark.parametrize("traced", [False, True])
def test_removed_module_is_named_although_its_neighbours_moved(traced: bool) -> None:
    """torch.fx traces the relu, a function, outside all modules."""
    after = NET.format("nn.Identity()")
    if traced:
        after = after.replace("net=", "net=torch.fx.symbolic_trace(") + ")"
    lines = ["net(x[None, None])"] * 2
    diff = Example(*lines, NET.format("nn.BatchNorm2d(1)"), after).difference()
    (finding,) = diff.findings
    assert finding.kind == "removed"
    assert [place.module for place in finding.places] == ["net.0.norm", "net.1.norm"], diff
    assert diff.heading().startswith("1 edit in 2 places: aten.")
    assert not any(node.op == "aten.relu.default" for node in (*diff.added, *diff.removed))


@pytest.mark.parametrize("via", ["aot", "dispatch"])
def test_graph_with_an_input_named_output_reads_back(via: str) -> None:
    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output - target).square()

    graph = capture(loss, torch.ones(2), torch.zeros(2), via=via).forward
    assert len({node.name for node in graph.nodes}) == len(graph.nodes)
    assert Graph.from_text(graph.to_text()) == graph


LAYERS = (
    "layers=nn.Sequential(*(Written('(h := x + mix(a(x))) + ff(b(h))', 'mix=nn.Linear(6, 6), "
    "a=nn.RMSNorm(6), b=nn.RMSNorm(6), ff={}') for _ in range(5)))"
)
TWO_LAYERS = LAYERS.format("nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Linear(8, 6))")
GATED = LAYERS.format(
    'Written("down(F.silu(gate(x)) * up(x))", '
    '"up=nn.Linear(6, 8), gate=nn.Linear(6, 8), down=nn.Linear(8, 6)")'
)


@pytest.mark.parametrize("sides", [(TWO_LAYERS, GATED), (GATED, TWO_LAYERS)])
def test_renamed_modules_are_paired_in_each_layer(sides: tuple[str, str]) -> None:
    """The gated MLP of Llama, in place of one with two layers."""
    found = Example("layers(x)", "layers(x)", *sides).difference().findings
    assert sum(len(finding.places) for finding in found) == 5, found
    assert len(found) <= 2, found  # only the first layer's input is certain


@pytest.mark.slow("imports transformers, which takes seconds")
def test_a_mask_of_all_layers_is_not_rewired_if_a_layer_is_added() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "use_cache": False}
    sides = []
    for layers in (3, 4):
        model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=layers, **sizes, **heads))
        with torch.no_grad():
            sides.append(capture(model, input_ids=torch.arange(16).reshape(2, 8)))
    (finding,) = diff(*sides).findings
    assert finding.modules == ("model.layers.3",)


class Scores(torch.nn.Module):
    """A module that loses a gradient, as `lost` says."""

    def __init__(self, lost: str) -> None:
        super().__init__()
        self.lost = lost
        self.query, self.key = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)
        if lost in ("weight", "bias"):
            self.key.get_parameter(lost).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        key = self.key(x).tanh()
        if self.lost == "detach":
            key = key.detach()
        if self.lost == "edit":
            key = key.detach() * 2
        if self.lost.endswith("dropout"):
            key = torch.nn.functional.dropout(key, 0.5)
        if self.lost == "detach after a dropout":
            key = key.detach()
        return self.query(x) * key


LOST = {
    "detach": "1 edit: gradients of key.weight, key.bias removed",
    "edit": "1 edit: aten.mul.Tensor added (gradients of key.weight, key.bias removed) in ",
    "weight": "1 edit: gradient of key.weight removed in key (Linear, ",
    "bias": "1 edit: gradient of key.bias removed in key (Linear, ",
}


class Heads(torch.nn.Module):
    """A model of two heads, one of which may give the block no gradient."""

    def __init__(self, activation: torch.nn.Module, *, detached: bool) -> None:
        super().__init__()
        self.block = torch.nn.Sequential(torch.nn.Linear(6, 6), activation)
        self.head, self.value = (torch.nn.Linear(6, 6) for _ in range(2))
        self.detached = detached

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.block(x)
        return self.head(x) + self.value(x.detach() if self.detached else x).tanh()


@pytest.mark.slow("further mechanism", unless=["aot"])
@pytest.mark.parametrize("via", ["aot", "dispatch"])
def test_a_gradient_that_one_of_two_paths_loses_hides_behind_no_edit(via: str) -> None:
    def side(activation: torch.nn.Module, *, detached: bool) -> Capture:
        return capture(Heads(activation, detached=detached), torch.ones(2, 6), via=via)

    silu, relu = torch.nn.SiLU(), torch.nn.ReLU()
    before = side(silu, detached=False)
    lost = "aten.t and 2 more ops removed in the backward"
    found = diff(before, side(silu, detached=True))
    assert found.heading().startswith(f"1 edit: {lost} (Heads, ")
    assert "saves 1 fewer value for the backward: - %value/t" in str(found)
    edit, other = diff(before, side(relu, detached=True)).findings
    assert edit.to_json()["what"].startswith("aten.silu -> aten.relu")
    assert other.to_json()["what"].startswith(lost)


@pytest.mark.slow("further edits", unless=["detach-aot", "weight-aot", "edit-dispatch"])
@pytest.mark.parametrize("via", ["aot", "dispatch"])
@pytest.mark.parametrize("lost", LOST)
def test_heading_names_the_gradients_that_an_edit_loses(lost: str, via: str) -> None:
    x = torch.ones(6, 6)
    sides = [capture(Scores(words), x, via=via) for words in ("", lost)]
    found = diff(*sides)
    assert found.heading().startswith(LOST[lost])
    assert found.findings[0].gradients == (re.findall(r"gradients? of .*? removed", LOST[lost])[0],)
    assert found.findings[0].to_json()["what"].rstrip(")").endswith("removed")
    (back,) = diff(*sides[::-1]).findings
    assert back.gradients == (found.findings[0].gradients[0].replace("removed", "added"),)


def test_mask_that_the_backward_no_longer_reads_is_no_edit() -> None:
    """A mask is one of two results of a dropout. Without a gradient, its projection is gone."""
    x = torch.ones(6, 6)
    sides = [capture(Scores(lost), x, via="aot") for lost in ("dropout", "detach after a dropout")]
    assert diff(*sides).heading() == "1 edit: gradients of key.weight, key.bias removed"
