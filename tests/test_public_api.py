"""The package's public promises."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
from mechanisms.models import example, mlp

import pytest_torchgraph
from pytest_torchgraph import capture, diff, from_fx


def test_every_public_name_can_be_imported() -> None:
    for name in pytest_torchgraph.__all__:
        assert getattr(pytest_torchgraph, name) is not None
    assert set(pytest_torchgraph.__all__) <= set(dir(pytest_torchgraph))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = pytest_torchgraph.nothing


def test_importing_the_package_imports_neither_torch_nor_graphviz() -> None:
    code = (
        "import sys, pytest_torchgraph, pytest_torchgraph.plugin, pytest_torchgraph.graph\n"
        "print([m for m in ('torch', 'graphviz', 'jinja2', 'numpy') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_capture_stays_a_function_after_its_package_was_imported() -> None:
    import pytest_torchgraph.api.capture

    assert callable(pytest_torchgraph.capture)
    assert callable(pytest_torchgraph.diff)


def test_graphs_before_and_after_a_pass_are_compared() -> None:
    before = torch.fx.symbolic_trace(mlp())
    after = torch.fx.symbolic_trace(mlp())
    assert from_fx(before) == from_fx(after)
    for node in after.graph.find_nodes(op="call_function", target=torch.relu):
        if node is after.graph.find_nodes(op="call_function", target=torch.relu)[1]:
            node.target = torch.tanh
            break
    graph_diff = diff(before, after)
    assert len(graph_diff.findings) == 1
    (finding,) = graph_diff.findings
    assert finding.kind == "changed"
    assert finding.before.op == "torch.relu"  # type: ignore[union-attr]
    assert finding.after.op == "torch.tanh"  # type: ignore[union-attr]
    assert not diff(before, before)


def test_an_exported_program_is_a_graph() -> None:
    program = torch.export.export(mlp(), (example(4, 8),))
    graph = from_fx(program)
    assert graph.level == "export"
    assert graph.count("aten.linear") == 4
    assert diff(program, graph).findings == ()


@pytest.mark.slow("runs pytest several times")
def test_a_graph_renders_to_the_format_of_its_suffix(tmp_path: object) -> None:
    graph = capture(mlp(), example(4, 8)).forward
    path = graph.render(tmp_path / "forward.svg")  # type: ignore[operator]
    assert path.read_text().lstrip().startswith("<?xml")
    assert "digraph" in str(graph.to_dot())


def test_the_table_has_the_columns_of_fx() -> None:
    table = from_fx(torch.fx.symbolic_trace(mlp())).to_table().splitlines()
    assert table[0].split() == ["opcode", "name", "target", "args", "kwargs"]
    assert any(line.split()[:3] == ["call_module", "blocks.0", "blocks.0"] for line in table)


def test_type_checkers_see_the_public_names() -> None:
    tree = ast.parse(Path(pytest_torchgraph.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    told = {
        (f"pytest_torchgraph.{node.module}", name.asname)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    names = [name for _, name in told]
    assert sorted(map(str, names)) == list(pytest_torchgraph.__all__)
    for module, name in told:
        assert getattr(import_module(module), str(name)) is getattr(pytest_torchgraph, str(name))
