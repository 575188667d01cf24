"""Lists of parameters: the lines of an update that are equal for each parameter, written once."""

import re

import pytest
import torch
from torch import nn

from pytest_torchgraph import GraphFormatError, diff
from pytest_torchgraph.graph.text import parse_document
from pytest_torchgraph.graph.text.expand import expand
from pytest_torchgraph.graph.text.fold import fold

OPTIMIZERS = {
    "foreach": lambda p: torch.optim.AdamW(p, foreach=True),
    "for-loop": lambda p: torch.optim.AdamW(p, foreach=False),
    "fused": lambda p: torch.optim.AdamW(p, fused=True),
}


def capture_update(graph_capture, *args, **kwargs):
    (update,) = graph_capture(*args, via="dispatch", **kwargs).phase("update")
    return update


def update_of(graph_capture, layers, optimizer, **edit):
    """The update of a transformer with clipping, whose scale is a parameter without dimensions."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    model.scale = nn.Parameter(torch.ones(()))
    optimizer = OPTIMIZERS[optimizer](model.parameters())
    optimizer.param_groups[0].update(edit)

    def step(x):
        (model(x).square().mean() * model.scale).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return capture_update(graph_capture, step, torch.randn(2, 3, 8), updates=(model, optimizer))


@pytest.mark.slow("two further optimizers", unless=["for-loop"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_update_is_as_long_for_more_layers(graph_capture, optimizer):
    short, long = (update_of(graph_capture, layers, optimizer) for layers in (2, 4))
    for graph in (short, long):
        text = graph.to_text()
        assert len(text.splitlines()) <= 60
        assert parse_document(text).graphs == (graph,)
        assert expand(text) == graph.to_text(fold=False)
    assert len(short.to_text().splitlines()) == len(long.to_text().splitlines())


def test_an_edit_of_the_settings_is_one_finding(graph_capture):
    for optimizer in OPTIMIZERS:
        before = update_of(graph_capture, 2, optimizer)
        difference = diff(before, update_of(graph_capture, 2, optimizer, weight_decay=0.5))
        assert len(difference.findings) == 1, difference.to_text()


def test_groups_of_an_optimizer_have_their_own_lists(graph_capture):
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(6)])
    named = dict(model.named_parameters())
    groups = [
        {"params": [p for name, p in named.items() if "weight" in name]},
        {"params": [p for name, p in named.items() if "bias" in name], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, foreach=False)

    def step(x):
        model(x).sum().backward()
        optimizer.step()

    update = capture_update(graph_capture, step, torch.ones(2, 4), updates=(model, optimizer))
    text = update.to_text()
    assert ": (0..5)(.weight[4, 4])\n" in text
    assert ": (0..5)(.bias[4])\n" in text
    assert parse_document(text).graphs == (update,)


@pytest.mark.slow("compiles two training steps")
def test_update_of_a_compiled_optimizer_is_as_long_for_more_layers(graph_capture):
    lengths = []
    for depth in (3, 6):
        model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(depth)])
        optimizer = torch.optim.AdamW(model.parameters())
        update = torch.compile(optimizer.step, backend="aot_eager")

        def step(x, model=model, update=update):
            model(x).sum().backward()
            update()

        captured = graph_capture(
            step, torch.ones(2, 4), via="aot", updates=(model, optimizer), warmup=1
        )
        (graph,) = captured.phase("update")
        text = graph.to_text()
        lengths.append(text.count("\n"))
        assert "for A:  %*.grad = buffer : f32[*]\n" in text
        assert "for A:    %//addcdiv,\n" in text
        assert parse_document(text).graphs == (graph,)
        assert 'result "output' not in captured.to_text()  # the target returns nothing
    assert lengths[0] == lengths[1] < 65


LISTED = """torchgraph 4

update @ dispatch {
  over A: w[2], layer.(0..2)(.w[2], .b[])
  for A:  %* = parameter : f32[*]
  for A {
    %/mul = aten.mul.Tensor(%*, 2) : f32[*]
    %/neg = aten.neg.default(%/mul) : f32[*]
  }
  %stack = aten.stack.default([%/mul, … A]) !mutates %* !mutates … A
  return %stack
}
"""


def test_lists_are_read():
    (update,) = parse_document(LISTED).graphs
    assert [node.name for node in update.nodes][:4] == ["w", "layer.0.w", "layer.0.b", "layer.1.w"]
    names = ["mul", *(f"layer.{n}/mul{k}" for n in range(3) for k in ("", ".1"))]
    assert [ref.name for ref in update.nodes[-2].args[0]] == names
    assert fold(expand(LISTED)) == LISTED


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("for A", "for B", "missing list 'over B: ' before this line"),
        ("… A", "… B", "missing list 'over B: ' before this line"),
        ("w[2], ", "w, ", "expected the shape of a parameter"),
        ("over A: w[2], layer.(0..2)(.w[2], .b[])", "over A: w[2]{", "expected the end"),
        ("0..2", "0..999999999", "the text expands to more than"),
        ("[%/mul", "[%/div", "w has no result %/div before this line"),
        ("over A:", "each m.* {\n    over A:", "a list of parameters must be in a graph"),
    ],
)
def test_malformed_lists(old, new, problem):
    with pytest.raises(GraphFormatError, match=re.escape(problem)):
        parse_document(LISTED.replace(old, new))


def test_truncated_list():
    with pytest.raises(GraphFormatError, match="the file is truncated"):
        parse_document(LISTED.partition("  }\n")[0])


def test_list_with_a_member_of_no_parameter():
    lines = [f"  %p{n} = parameter : f32[2]" for n in range(6)]
    names = ", ".join(f"%p{n}" for n in range(6))
    text = "\n".join(
        [
            *("torchgraph 4", "", "update @ dispatch {", "  %x = input : f32[2]", *lines),
            f"  %_foreach_neg = aten._foreach_neg.default([{names}, %x]) : (f32[2], f32[2])",
            "  %_foreach_neg#6 = operator.getitem(%_foreach_neg, 6) : f32[2]",
            *("  return %_foreach_neg#6", "}", ""),
        ]
    )
    assert "for A" in fold(text)
    assert expand(fold(text)) == text


def test_other_texts_have_no_lists():
    text = expand(LISTED).replace("update @", "forward @")
    assert "over" not in fold(text)
