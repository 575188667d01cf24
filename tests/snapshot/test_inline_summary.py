"""A failed `assert_graph_text` is reported like a stored graph, with its causes."""

from __future__ import annotations

import pytest
from projects import Run

from pytest_torchgraph.cli import main

TESTS = """
from graphs import graph
from pytest_torchgraph import GraphTestCase, assert_graph_text

class TestNet(GraphTestCase):
    def test_sub(self):
        for width in (2, 4):
            with self.subTest(width=width):
                self.assertGraph(graph())

    def test_text(self):
        assert_graph_text(graph(), "")
"""


@pytest.mark.slow("a run of pytest of its own")
def test_summary_review_and_last_failed_include_texts_and_subtests(
    pytester: pytest.Pytester,
    run: Run,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytester.makeini("[pytest]\npythonpath = .")
    directory = pytester.mkdir("tests")
    directory.joinpath("test_net.py").write_text(TESTS)
    monkeypatch.chdir(directory)
    accept = "accept:  pytest test_net.py::TestNet::test_text --torchgraph-update"
    result = run()
    result.stdout.fnmatch_lines(
        [
            "E * AssertionError: no graph is stored in this call yet: the text is empty",
            f"E * {accept}",
            "*= graphs not stored: 2 causes in 2 tests =*",
            "accept all:  pytest --lf --torchgraph-update",
        ]
    )
    assert main(["review"]) == 1
    listed = capsys.readouterr().out
    assert "!  tests/test_net.py::TestNet::test_text: this text is in the test: run " in listed
    assert "--cache-clear" not in listed
    run("--lf", "--torchgraph-update").assert_outcomes(passed=2)
    assert main(["review"]) == 0
    result = run(OP="sin")
    result.stdout.fnmatch_lines(
        [f"E * {accept}", "*= graphs differ: 1 cause in 2 tests =*", "~ aten.relu -> aten.sin *"]
    )
    assert main(["review"]) == 1
    assert "1  ~ aten.relu -> aten.sin" in capsys.readouterr().out
