"""Called modules of fx graphs whose names follow from an edit.

Quantizers such as nncf insert modules and name each after the op whose result it takes.
"""

from __future__ import annotations

import torch
from torch import fx, nn

from pytest_torchgraph import Graph, diff, from_fx


def quantized(*ops: str, names: tuple[str, ...] = ()) -> Graph:
    """Return the graph of a chain of ops, with a module after each cosine.

    Args:
        ops: names of functions of torch.
        names: names of the modules; if missing, each module is named after the op before it.
    """
    root, graph = nn.Module(), fx.Graph()
    value = graph.placeholder("x")
    cosines = 0
    for k, op in enumerate(ops):
        value = graph.call_function(getattr(torch, op), (value,))
        if op == "neg" or (op == "cos" and ops[k + 1 : k + 2] != ("neg",)):
            name = names[cosines] if names else f"{value.name}_quant"
            cosines += 1
            root.add_module(name, nn.ReLU())
            value = graph.call_module(name, (value,))
    graph.output(value)
    return from_fx(fx.GraphModule(root, graph))


def test_module_named_after_an_added_op_is_a_consequence_of_the_op() -> None:
    before = quantized("sin", "cos", "exp", "cos", "exp")
    after = quantized("sin", "cos", "neg", "exp", "cos", "exp")
    (finding,) = diff(before, after).findings
    assert [(change.kind, change.node.op) for change in finding.changes] == [("added", "torch.neg")]
    (change,) = finding.consequences
    assert change.before is not None
    assert change.after is not None
    assert (change.before.target, change.after.target) == ("cos_quant", "neg_quant")
    (finding,) = diff(after, before).findings
    assert [(change.kind, change.node.op) for change in finding.changes] == [
        ("removed", "torch.neg")
    ]


def test_module_with_another_name_is_a_finding_without_an_edit_before_it() -> None:
    before = quantized("sin", "cos", "exp", names=("first",))
    after = quantized("sin", "cos", "exp", names=("second",))
    (finding,) = diff(before, after).findings
    assert [change.kind for change in finding.changes] == ["changed"]


def test_other_module_of_the_same_class_after_an_added_op_is_an_edit() -> None:
    """Both graphs have both modules, so neither module was renamed."""
    before = quantized("sin", "cos", "exp", "cos", names=("first", "second"))
    after = quantized("sin", "cos", "neg", "exp", "cos", names=("second", "first"))
    changed = {
        change.node.name
        for finding in diff(before, after).findings
        for change in finding.changes
        if change.node.op == "torch.nn.ReLU"
    }
    assert changed == {"first", "second"}
