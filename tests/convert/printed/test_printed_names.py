"""Names of nodes and inputs of printed graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from convert.printed.live_and_printed import compiled, read_all
from convert.printed.subjects import SUBJECTS
from convert.printed.texts import module, parse_printed
from mechanisms.models import Norm, example, mlp

from pytest_torchgraph import Aot, capture, torch_private
from pytest_torchgraph.convert import (
    CanonicalNames,
    Naming,
    aot_names,
    convert,
    dynamo_names,
    read_printed,
)
from pytest_torchgraph.mechanisms.step.named_tensors import NamedTensors


@pytest.mark.slow("compiles several models")
def test_names_are_read_back_from_a_stored_graph() -> None:
    for _, graph in read_all(compiled(SUBJECTS["nested_cond"](), "aot_eager")):
        again = type(graph).from_text(graph.to_text("full"))
        assert [node.name for node in again.nodes] == [node.name for node in graph.nodes]
        assert again == graph


@pytest.mark.parametrize(
    ("printed", "named"),
    [
        ("L_self_modules_fc_parameters_weight_", ("parameter", "fc.weight")),
        (
            "L_self_modules_layer_modules_0_modules_norm_1_buffers_running_mean_",
            ("buffer", "layer.0.norm_1.running_mean"),
        ),
        ("L_self_parameters_scale_", ("parameter", "scale")),
        ("L_x_", ("input", "x")),
        ("L_kwargs_input_ids_", ("input", "input_ids")),
        ("L_args_0_", ("input", "0")),
        ("L_attention_mask_", ("input", "attention_mask")),
        ("weird", ("input", "weird")),
    ],
)
def test_dynamo_input_is_named_after_its_mangled_source(
    printed: str, named: tuple[str, str]
) -> None:
    text = module(f"return {printed}", f'{printed}: "f32[2]"')
    assert dynamo_names(read_printed(text)) == [named]


def test_ambiguous_mangled_name_keeps_its_underscore() -> None:
    text = "class G(torch.nn.Module):\n    def forward(self, L_batch_ids_):\n        return ()\n"
    assert dynamo_names(read_printed(text)) == [("input", "batch_ids")]


def test_symbol_has_the_same_name_in_all_graphs_of_a_capture() -> None:
    canon = CanonicalNames()
    text = module("return (x, y)", 'x: "f32[s7, s3]", y: "f32[s9]"')
    parse_printed(text, level="dynamo", kind="forward", canon=canon)
    later = module("return x", 'x: "f32[s9, s3, s5]"')
    graph = parse_printed(later, level="aot", kind="forward", canon=canon)
    assert "%x = input : f32[s2, s1, s3]" in graph.to_text()


def test_printed_size_is_named_after_its_symbol() -> None:
    text = 'class G(torch.nn.Module):\n    def forward(self, s3: "Sym(s3)"):\n        return s3\n'
    assert dynamo_names(read_printed(text)) == [("input", "size")]


@pytest.mark.slow("further cases; a few are in every run", unless=["<lambda>"])
@pytest.mark.parametrize("make", [mlp, lambda: Norm().train()])
def test_a_capture_via_aot_equals_the_texts_of_its_own_compile(make: Any) -> None:
    model = make()
    x = example(4, 8) if not isinstance(model, Norm) else example(2, 2, 8, 8)
    texts: dict[str, str] = {}

    def emit(metadata: dict[str, Any], payload: str) -> None:
        texts.update({key: payload for key in metadata if key.endswith("_graph") and payload})

    with torch_private.structured_trace(emit):
        captured = capture(model, x, via=Aot())
    dynamo = dynamo_names(read_printed(texts["dynamo_output_graph"]))
    input_order = NamedTensors(model, (x,), {}).input_order()
    names: dict[str, str] = {}
    for kind in ("forward", "backward"):
        printed = read_printed(texts[f"aot_{kind}_graph"])
        naming = Naming(
            aot_names(printed, dynamo, names, None), input_order=input_order, dynamo=dynamo
        )
        converted = convert(printed, level="aot", kind=kind, naming=naming)  # type: ignore[arg-type]
        names = converted.names
        if kind == "forward":
            saved = {ref.name for ref in converted.graph.saved}
            assert len(saved) > 3
        else:
            assert saved == {n.name for n in converted.graph.inputs if n.op != "tangent"}
        live = getattr(captured, kind)
        assert converted.graph == live
        roles = ("parameter", "buffer", "input")
        assert [(n.name, n.op) for n in converted.graph.inputs if n.op in roles] == [
            (n.name, n.op) for n in live.inputs if n.op in roles
        ]
        assert torch.is_grad_enabled()
