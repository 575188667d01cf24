"""Graphs for Google's model-explorer: one layer per module, the edits of a comparison in colour.

    model-explorer graphs.json

Install it with `pip install ai-edge-model-explorer`, best in an environment of its own. The field
names are those of its `graph_builder`.
"""

import json
from pathlib import Path

import torch
from torch import nn

from pytest_torchgraph import Capture, Graph, GraphDiff, Node, TensorMeta, capture, diff

COLOURS = {"added": "#b7e4c7", "removed": "#ffccd5", "changed": "#ffe8a3"}


def layer(node: Node) -> str:
    """Return the module of a node, or the module that owns a parameter, as a path of layers."""
    owner = node.module
    if not owner and node.op in ("parameter", "buffer"):
        owner = node.name.rpartition(".")[0]
    return owner.replace(".", "/")


def node_json(node: Node, edits: dict[Node, tuple[str, str]]) -> dict:
    kind, heading = edits.get(node, ("", ""))
    facts = {"op": node.op, "edit": heading, "source": str(node.source or "")}
    if isinstance(node.result, TensorMeta):
        facts["dtype"] = node.result.dtype
        facts["shape"] = " x ".join(map(str, node.result.shape)) or "scalar"
    return {
        "id": node.name,
        "label": node.name if node.kind == "placeholder" else node.op,
        "namespace": layer(node),
        "attrs": [{"key": key, "value": value} for key, value in facts.items() if value],
        "incomingEdges": [
            {"sourceNodeId": name, "sourceNodeOutputId": "0", "targetNodeInputId": str(position)}
            for position, name in enumerate(node.refs)
        ],
        **({"style": {"backgroundColor": COLOURS[kind]}} if kind else {}),
    }


def collection(graphs: tuple[Graph, ...], label: str, edits: dict[Node, tuple[str, str]]) -> dict:
    """Return the graphs of a capture, or of a loaded file, as a model-explorer collection."""
    return {
        "label": label,
        "subgraphs": [
            {"id": f"{label} {graph.name}", "nodes": [node_json(n, edits) for n in graph.nodes]}
            for graph in graphs
        ],
    }


def edits_of(difference: GraphDiff) -> dict[Node, tuple[str, str]]:
    """Return the kind of change of each node that differs, and the heading of its edit."""
    edits = {}
    for finding in difference.findings:
        heading = str(finding).splitlines()[0]
        for place in finding.places:
            for change in place.changes:
                for node in (change.before, change.after):
                    if node is not None:
                        kind = change.kind if change.kind in COLOURS else "changed"
                        edits[node] = (kind, heading)
    return edits


def write_pair(path: Path, old: Capture, new: Capture) -> None:
    """Write two captures side by side, with their edits in colour."""
    edits = edits_of(diff(old, new))
    sides = [collection(old.graphs, "old", edits), collection(new.graphs, "new", edits)]
    path.write_text(json.dumps(sides, indent=1))


def model(activation: type[nn.Module]) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), activation(), nn.Linear(4, 2))


def test_edit_has_a_colour(tmp_path: Path):
    old, new = (capture(model(kind), torch.ones(2, 4)) for kind in (nn.GELU, nn.ReLU))
    write_pair(tmp_path / "graphs.json", old, new)
    before, after = json.loads((tmp_path / "graphs.json").read_text())
    for side, op in ((before, "aten.gelu.default"), (after, "aten.relu.default")):
        forward = side["subgraphs"][0]["nodes"]
        coloured = [node for node in forward if "style" in node]
        assert [node["label"] for node in coloured] == [op]
        assert coloured[0]["namespace"] == "1"
        names = {node["id"] for node in forward}
        assert all(
            edge["sourceNodeId"] in names for node in forward for edge in node["incomingEdges"]
        )
