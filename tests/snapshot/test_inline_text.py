"""Messages of `assert_graph_text`, and the place and form of an update."""

from __future__ import annotations

import textwrap

import pytest
from projects import Run, stored_graphs

from pytest_torchgraph import GraphFormatError, assert_graph_text
from pytest_torchgraph.graph import Graph

NET = """
from graphs import graph
from pytest_torchgraph import assert_graph_text

def test_step():
    assert_graph_text(graph(), "", "ops")
"""
TEXT = "forward {\n%x = input : f32[2]\n%y = aten.relu.default(%x) : f32[2]\nreturn %y\n}"
GRAPH = Graph.from_text(
    "torchgraph 1\nvia aot\n\nforward {\n  %x = input : f32[2]\n"
    "  %y = aten.relu.default(%x) : f32[2]\n  return %y\n}\n"
)


def test_inline_difference_is_reported_as_findings() -> None:
    assert_graph_text(GRAPH, TEXT)
    with pytest.raises(AssertionError) as failed:
        assert_graph_text(GRAPH, TEXT.replace("relu", "sin"))
    lines = str(failed.value).splitlines()
    assert lines[0] == "graphs differ from the text: 1 edit: aten.sin -> aten.relu"
    assert lines[1].startswith("~ changed in (no module)")
    assert any("before  %y = aten.sin.default(%x) : f32[2]" in line for line in lines)


def test_counts_differ() -> None:
    with pytest.raises(AssertionError, match="1 op count differs"):
        assert_graph_text(GRAPH, "forward {\n2 aten.relu.default\n}", detail="ops")


@pytest.mark.parametrize("text", ["forward {", "nonsense"])
def test_malformed_text_is_an_error(text: str) -> None:
    with pytest.raises(GraphFormatError, match="--torchgraph-update"):
        assert_graph_text(GRAPH, text)


@pytest.mark.parametrize("text", ["", "  \n "])
def test_empty_text_fails(text: str) -> None:
    with pytest.raises(AssertionError) as failed:
        assert_graph_text(GRAPH, text)
    assert str(failed.value) == "no graph is stored in this call yet: the text is empty"


def test_inline_error_has_its_position_in_the_text() -> None:
    with pytest.raises(GraphFormatError) as failed:
        assert_graph_text(
            GRAPH, "\n\n" + textwrap.indent(TEXT.replace("relu.default(", "("), "    ")
        )
    assert failed.value.line == 5


@pytest.mark.slow("starts workers")
def test_inline_update_is_written_by_the_controller_once(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytest.importorskip("xdist")
    for name in ("a", "b", "c"):
        pytester.makepyfile(**{f"test_{name}": NET})
    result = run("-p", "xdist", "-n2", "--torchgraph-update")
    result.assert_outcomes(passed=3)
    assert stored_graphs(result) == [
        f"updated  test_{name}.py: 1 text on line 5" for name in ("a", "b", "c")
    ]
    run().assert_outcomes(passed=3)


def test_many_updated_texts_are_listed_with_their_lines(
    pytester: pytest.Pytester, run: Run
) -> None:
    names = [f"{number:02}" for number in range(11)]
    pytester.makepyfile(**{f"test_{name}": NET for name in names})
    lines = stored_graphs(run("--torchgraph-update"))
    assert [*filter(None, lines)] == [
        f"updated  test_{name}.py: 1 text on line 5" for name in names
    ]


def test_inline_update_in_a_directory_outside_the_root_is_refused(
    pytester: pytest.Pytester, run: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "test_net.py").write_text(NET)
    (pytester.path / "sub").symlink_to(outside)
    result = run("--torchgraph-update", "--rootdir=.", "sub/test_net.py")
    assert result.ret == 2
    result.stdout.fnmatch_lines(["refused  *test_net.py: * is outside the root directory *"])
    assert (outside / "test_net.py").read_text() == NET
