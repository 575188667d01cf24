"""Text of a stranger's files and code reaches pytest's terminal, JUnit and a page as plain text."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from cli.test_hostile_text import check
from projects import GRAPHS, Run

EVIL = r"\u001b]0;t\u0007\u202e\u009b31m\n::error::x ##[add-mask]y"
"""A JSON string, and a Python literal, with commands for a terminal and a CI system."""
HOSTILE = (
    f'torchgraph 1\nvia aot, torch 2.13.0\n\n"{EVIL}": forward {{\n  %x = input : f32[2, 16]\n'
    f'  %"{EVIL}" = "{EVIL}"(%x) : f32[`s0\u202e\x9b31m`, 16] in "{EVIL}"\n  return %"{EVIL}"\n}}\n'
)
TESTS = f"""
import pytest
from graphs import Capture, graph
from pytest_torchgraph import diff
from pytest_torchgraph.errors import CaptureError
from pytest_torchgraph.graph import Graph

HOSTILE = {HOSTILE!r}

def test_step(graph_snapshot):
    assert Capture(graph("relu")) == graph_snapshot

def test_other(graph_snapshot):
    assert Capture(graph("relu")) == graph_snapshot

def test_message():
    name = chr(27) + "[31m" + chr(10) + ":" * 2 + "error::"
    Graph.from_text(HOSTILE).renamed(name).assert_no_ops("*")

def test_difference():
    difference = diff(Graph.from_text(HOSTILE), graph("relu"))
    assert not difference
"""


@pytest.fixture
def hostile(pytester: pytest.Pytester, run: Run) -> Run:
    pytester.makepyfile(graphs=GRAPHS, test_net=TESTS)
    for name in ("step", "other"):
        path = pytester.path / f"__snapshots__/test_net/test_{name}.tgraph"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HOSTILE, encoding="utf-8")
    return run


@pytest.mark.slow("more forms of a traceback", unless=["arguments0"])
@pytest.mark.parametrize("arguments", [(), ("--full-trace",), ("--tb=line",)])
def test_failures_with_hostile_names_send_no_command(
    pytester: pytest.Pytester, hostile: Run, arguments: tuple[str, ...]
) -> None:
    result = hostile(
        *(*arguments, "--junitxml=j.xml", "--torchgraph-report=p.html", "--torchgraph-artifacts=a")
    )
    result.assert_outcomes(failed=4)
    output = result.stdout.str() + result.stderr.str()
    assert "graphs differ: " in output
    check(output)
    texts = [*ET.parse(pytester.path / "j.xml").getroot().itertext()]
    texts += [v for e in ET.parse(pytester.path / "j.xml").iter() for v in e.attrib.values()]
    for text in texts:
        check(text)
    check(Path(pytester.path / "p.html").read_text().split("<script")[0])


def test_update_of_hostile_graphs_sends_no_command(hostile: Run) -> None:
    result = hostile("--torchgraph-update", "-k", "step or other")
    result.assert_outcomes(passed=2)
    assert "this update changes 2 of 2" in result.stdout.str()
    check(result.stdout.str())


def test_usage_error_of_hostile_settings_sends_no_command(
    pytester: pytest.Pytester, hostile: Run
) -> None:
    (pytester.path / "pytest.ini").write_text(
        "[pytest]\ntorchgraph_releases = 2.12\n\t2.13\u202e\n\t::error::\n"
    )
    result = hostile()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    check(result.stdout.str() + result.stderr.str())
