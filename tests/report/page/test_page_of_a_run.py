"""`--torchgraph-report`: the data that a run puts into its page, with and without workers."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from projects import Run

from pytest_torchgraph.report.page.gather import read_page

PROJECT = """
    import os

    import pytest
    from graphs import graph


    @pytest.mark.parametrize("number", range(6))
    def test_chain(graph_snapshot, number):
        assert graph() == graph_snapshot


    def test_without_graphs():
        pass


    def test_crash(graph_snapshot):
        assert graph() == graph_snapshot
        if os.environ.get("CRASH"):
            os._exit(3)
"""


def data_of(pytester: pytest.Pytester, name: str = "page.html") -> dict[str, Any]:
    """Return the data of a page, each test with its details."""
    data, parts = read_page(pytester.path / name)
    data["tests"] = [{**test, **parts.get(test["part"])} for test in data["tests"]]
    return data


def outcomes(data: dict[str, Any]) -> dict[str, str]:
    return {test["id"].partition("::")[2]: test["outcome"] for test in data["tests"]}


@pytest.fixture
def project(pytester: pytest.Pytester, run: Run, store: Callable[..., object]) -> Run:
    pytester.makepyfile(test_net=PROJECT)
    store(passed=8)
    return run


def test_first_screen_has_every_failed_test(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_net="""
        import os
        from graphs import graph

        def test_changed(graph_snapshot):
            assert graph() == graph_snapshot

        def test_broken(graph_snapshot):
            assert graph("abs") == graph_snapshot
            assert not os.environ.get("OP"), "a graph break"
        """
    )
    run("--torchgraph-update").assert_outcomes(passed=2)
    run("--torchgraph-report=page.html", OP="gelu").assert_outcomes(failed=2)
    data = data_of(pytester)
    assert data["causes"]["heading"] == "1 cause in 1 test"
    assert data["causes"]["accept"] == "pytest --lf --torchgraph-update"
    assert [cause["files"] for cause in data["causes"]["list"]] == [["test_net.py::test_changed"]]
    assert [failure["tests"] for failure in data["failures"]] == [["test_net.py::test_broken"]]


WORKERS = {"two workers": ("-p", "xdist", "-n2"), "plain": ("--assert=plain",)}


@pytest.mark.slow("further cases; a few are in every run", unless=["plain"])
@pytest.mark.parametrize("how", WORKERS)
def test_page_has_each_test_with_its_difference(
    pytester: pytest.Pytester, project: Run, how: str
) -> None:
    result = project("--torchgraph-report=page.html", *WORKERS[how], OP="relu tanh")
    result.assert_outcomes(failed=7, passed=1)
    result.stdout.fnmatch_lines(["torchgraph: page of this run in *page.html"])
    data = data_of(pytester)
    assert set(outcomes(data).values()) == {"failed"}
    assert len(data["tests"]) == 7
    assert data["about"].endswith("; 1 further test without graphs")
    for test in data["tests"]:
        (difference,) = test["differences"]
        (finding,) = difference["findings"]
        assert finding["sign"] == "+"
        assert "aten.tanh" in finding["more"]
        assert difference["accept"].endswith("--torchgraph-update")
        assert test["id"].partition("::")[2] in difference["accept"]
        assert any(line.startswith("+") and "tanh" in line for line in difference["diff"])
        assert difference["svg"].count("<svg") == 1
        for place in finding["ids"]:
            assert f'id="{place}"' in unescape(difference["svg"])
        assert finding["ids"]
        assert "AssertionError" in test["message"]


@pytest.mark.slow("runs pytest several times")
def test_crashed_worker_loses_only_its_test(pytester: pytest.Pytester, project: Run) -> None:
    result = project("--torchgraph-report=page.html", "-p", "xdist", "-n2", CRASH="1")
    assert result.ret == 1
    data = data_of(pytester)
    assert data["warning"] == "a worker crashed"
    assert outcomes(data)["test_crash"] == "crashed"
    assert [outcomes(data)[f"test_chain[{n}]"] for n in range(6)] == ["passed"] * 6
    assert "crashed" in data["tests"][-1]["message"] or any(
        "crashed" in test["message"] for test in data["tests"]
    )


def test_run_that_is_interrupted_has_its_page(pytester: pytest.Pytester, project: Run) -> None:
    project("-x", "--torchgraph-report=page.html", OP="tanh").assert_outcomes(failed=1)
    assert outcomes(data_of(pytester)) == {"test_chain[0]": "failed"}


def test_reruns_count_once(pytester: pytest.Pytester, project: Run) -> None:
    project(
        "--torchgraph-report=page.html",
        "-p",
        "pytest_rerunfailures",
        "--reruns=1",
        "-k",
        "0",
        OP="tanh",
    )
    (test,) = data_of(pytester)["tests"]
    assert test["outcome"] == "failed"
    assert len(test["differences"]) == 1


def test_report_path_in_the_ini_file(pytester: pytest.Pytester, project: Run) -> None:
    pytester.makeini("[pytest]\ntorchgraph_report = out/graphs.html\n")
    project().assert_outcomes(passed=8)
    assert len(data_of(pytester, "out/graphs.html")["tests"]) == 7


def test_report_path_that_is_a_directory_is_refused(run: Run) -> None:
    result = run("--torchgraph-report=.")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --torchgraph-report: '*' is not a file"])


def test_unwritable_page_changes_no_outcome(pytester: pytest.Pytester, project: Run) -> None:
    pytester.path.joinpath("file").write_text("")
    result = project("--torchgraph-report=file/page.html")
    result.assert_outcomes(passed=8)
    result.stdout.fnmatch_lines(["torchgraph: the page was not written: *file/page.html*"])


@pytest.mark.slow("runs pytest in a new process")
def test_page_has_captures_of_real_models(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_net="""
        import pytest
        import pytest_torchgraph
        import torch
        from torch import nn


        @pytest.fixture(scope="module")
        def shared(graph_capture):
            return graph_capture(nn.Linear(2, 2), torch.ones(1, 2), via="dispatch")


        def test_captures(graph_capture, shared):
            pytest_torchgraph.capture(nn.ReLU(), torch.ones(2), via="fx")
            with graph_capture.watch():
                compiled = torch.compile(lambda x: (x + 1, print(x))[0] * 2, backend="eager")
                compiled(torch.ones(2))
                compiled(torch.ones(3))


        def test_none(shared):
            pass
        """
    )
    run("--torchgraph-report=page.html", "-p", "no:torchgraph").assert_outcomes(passed=2)
    first = data_of(pytester)["tests"][0]
    assert len(data_of(pytester)["tests"]) == 1
    captures = {capture["via"]: capture for capture in first["captures"]}
    assert list(captures) == ["dispatch", "fx", "watch"]
    assert [graph["name"] for graph in captures["dispatch"]["graphs"]] == ["forward", "backward"]
    assert dict(captures["fx"]["graphs"][0]["ops"]) == {"torch.nn.functional.relu": 1}
    assert captures["dispatch"]["cost"]["rows"][0][2:] == [8, 8, 16, 0]
    assert captures["fx"]["cost"] is None
    (broken,) = captures["watch"]["breaks"]
    assert broken["file"] == "test_net.py"
    assert "print(x)" in broken["code"]
    whole, resumed = captures["watch"]["recompiles"]
    for again in (whole, resumed):
        assert any(re.match(r" +made at test_net\.py:\d+ in ", line) for line in again["details"])
    assert any("mark_dynamic(x, 0)" in line for line in whole["details"])
    assert not any("mark_dynamic" in line for line in resumed["details"])
    assert data_of(pytester)["about"].startswith("torch 2.")


@pytest.mark.slow("a browser and a run of pytest")
def test_failure_links_to_its_place_in_the_picture(
    pytester: pytest.Pytester, run: Run, opened: Any
) -> None:
    pytester.makepyfile(
        test_net="""
        import pytest_torchgraph
        import torch
        from torch import nn


        def test_break():
            with pytest_torchgraph.watch() as capture:
                torch.compile(lambda x: (x + 1, print(x))[0] * 2, backend="eager")(torch.ones(2))
            capture.assert_no_graph_breaks()


        def test_ops():
            capture = pytest_torchgraph.capture(nn.Linear(2, 2), torch.ones(1, 2))
            capture.assert_no_ops("aten.addmm")
        """
    )
    run("--torchgraph-report=page.html").assert_outcomes(failed=2)
    signs = {"test_break": "✂", "test_ops": "!"}
    for test in data_of(pytester)["tests"]:
        (picture,) = test["pictures"]
        (mark,) = picture["findings"]
        assert mark["sign"] == signs[test["id"].partition("::")[2]]
        assert f'id="{mark["ids"][0]}"' in unescape(picture["svg"])
    page = opened.open(pytester.path / "page.html")
    assert page.locator("main h2").inner_text() == "2 failures in 2 tests"
    assert page.locator(".failure h3").nth(1).inner_text() == "AssertionError: unexpected ops:"
    page.locator("nav li button").nth(1).click()
    assert "aten.addmm" in page.locator(".view .chosen").text_content()


@pytest.mark.slow("a browser, for further keys, addresses and panes")
def test_error_while_collecting_page_data_changes_no_outcome(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makeconftest(
        """
        import pytest_torchgraph.report.page.collect as collect
        import pytest_torchgraph.report.page.gather as gather

        def broken(*args, **kwargs):
            raise RuntimeError("no words\\nat all")

        collect.comparison_data = collect.picture_data = gather.capture_data = broken
        """
    )
    pytester.makepyfile(
        test_net="""
        import torch
        from torch import nn

        def test_passes(graph_capture):
            graph_capture(nn.Linear(2, 2), torch.ones(1, 2))

        def test_fails(graph_capture):
            graph_capture(nn.Linear(2, 2), torch.ones(1, 2)).assert_no_ops("aten.addmm")

        def test_differs(graph_capture, graph_snapshot):
            assert graph_capture(nn.Linear(2, 2), torch.ones(1, 2)) == graph_snapshot
        """
    )
    result = run("--torchgraph-report=page.html")
    result.assert_outcomes(passed=1, failed=2)
    said = "not in the page of this run: RuntimeError: no words"
    assert result.outlines.count(said) == 2
    notes = {capture["note"] for test in data_of(pytester)["tests"] for capture in test["captures"]}
    assert notes == {"cannot be shown: RuntimeError: no words"}
