"""`--torchgraph-json`: the facts of a run for other programs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from projects import Run
from report.audits import broken_at, compiling, made

from pytest_torchgraph.audit import Cause, LeakedSetting, TestFacts
from pytest_torchgraph.report.surfaces import document
from pytest_torchgraph.report.surfaces.document import audit_document

SUITE = """
    import pytest
    import torch


    def helper(x):
        y = x.sin()
        print("hi")
        return y.cos()


    @pytest.mark.parametrize("size", [3, 4])
    def test_break(size):
        torch.compile(helper, backend="eager", dynamic=False)(torch.ones(size))


    def test_empty():
        torch.compile(lambda x: 3, backend="eager")(torch.ones(3))


    def test_eager():
        assert torch.ones(3).sin().sum() > 0
"""


def read(pytester: pytest.Pytester, name: str = "run.json") -> dict[str, Any]:
    return json.loads((pytester.path / name).read_text("utf-8"))  # type: ignore[no-any-return]


@pytest.mark.slow("several changes at once are in every run", unless=["alone"])
@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n2")], ids=["alone", "n2"])
def test_json_without_an_audit_has_the_facts(
    pytester: pytest.Pytester, run: Run, workers: tuple[str, ...]
) -> None:
    pytester.makepyfile(test_net=SUITE)
    result = run("--torchgraph-json=run.json", *workers)
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["torchgraph: JSON of this run in *run.json"])
    result.stdout.no_fnmatch_line("*torchgraph audit*")
    data = read(pytester)
    assert (data["torchgraph-run"], data["exit_status"], data["comparisons"]) == (1, 0, [])
    audit = data["audit"]
    assert (audit["mode"], audit["broken"], audit["baseline"]) == (None, None, None)
    totals = audit["totals"]
    assert totals["compile_seconds"] > 0
    assert [totals[name] for name in ("tests", "using", "nothing", "graph_breaks")] == [4, 3, 1, 2]
    causes = {cause["kind"]: cause for cause in audit["causes"]}
    broken, nothing = causes["break"], causes["nothing"]
    assert (broken["file"], broken["line"], broken["function"]) == ("test_net.py", 7, "helper")
    assert (broken["code"], broken["times"]) == ('print("hi")', 2)
    assert broken["tests"] == ["test_net.py::test_break[3]", "test_net.py::test_break[4]"]
    # A cause without a place is put at the test's call.
    assert (nothing["file"], nothing["line"]) == ("test_net.py", 17)
    assert [*audit["tests"]] == [*broken["tests"], "test_net.py::test_empty"]
    assert audit["tests"]["test_net.py::test_break[3]"]["causes"] == broken["keys"]


def test_json_of_a_check_has_lines_and_exit_status(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_net=SUITE)
    only = ("-k", "not break", "-p", "no:cacheprovider")
    assert run(*only, "--torchgraph-audit=record", "--torchgraph-json=a.json").ret == 0
    recorded = read(pytester, "a.json")["audit"]
    assert recorded["mode"] == "record"
    assert recorded["baseline"]["said"][0].startswith("recorded  torchgraph-audit.json: 1 test")
    assert recorded["baseline"]["verdict"] is None

    result = run("--torchgraph-audit=check", "--torchgraph-json=b.json", "-k", "not empty")
    assert result.ret == 1
    data = read(pytester, "b.json")
    assert data["exit_status"] == 1
    baseline = data["audit"]["baseline"]
    verdict = baseline["verdict"]
    (broken,) = (
        regression for regression in verdict["worse"] if "graph break" in regression["text"]
    )
    assert (broken["file"], broken["line"], broken["function"]) == ("test_net.py", 7, "helper")
    assert broken["tests"] == verdict["new"]
    assert verdict["gone"] == ["test_net.py::test_empty"]
    assert baseline["compared"] == 0


def test_json_has_failed_comparisons_by_cause(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_net="""
        from graphs import graph

        def test_chain(graph_snapshot):
            assert graph() == graph_snapshot
        """
    )
    run("--torchgraph-update").assert_outcomes(passed=1)
    run("--torchgraph-json=run.json", OP="gelu").assert_outcomes(failed=1)
    data = read(pytester)
    (cause,) = data["comparisons"]
    assert cause["what"] == "aten.relu -> aten.gelu"
    assert cause["tests"] == ["test_net.py::test_chain"]
    assert cause["cost"].keys() == {"flops", "saved_bytes"}
    assert data["exit_status"] == 1
    assert data["audit"]["totals"]["tests"] == 1
    assert data["audit"]["tests"] == {}


def test_json_path_in_the_ini_file_without_torch(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeini("[pytest]\ntorchgraph_json = out/run.json\n")
    pytester.makepyfile(
        """
        import sys

        def test_nothing():
            assert not any(name.partition(".")[0] == "torch" for name in sys.modules)
        """
    )
    pytester.makeconftest(
        """
        import sys

        def pytest_sessionfinish(session):
            session.exitstatus = 9

        def pytest_unconfigure():
            assert not any(name.partition(".")[0] == "torch" for name in sys.modules)
        """
    )
    result = run()
    data = read(pytester, "out/run.json")
    assert result.ret == data["exit_status"] == 9
    assert data["audit"]["totals"]["tests"] == 1
    assert data["audit"]["causes"] == []
    assert result.stderr.str() == ""


@pytest.mark.parametrize("path", [".", "file/below/run.json"])
def test_unwritable_json_path_is_refused_before_any_test(
    pytester: pytest.Pytester, run: Run, path: str
) -> None:
    pytester.path.joinpath("file").write_text("")
    pytester.makepyfile("def test_one(): open('ran', 'w').close()")
    result = run(f"--torchgraph-json={path}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --torchgraph-json: *"])
    assert not pytester.path.joinpath("ran").exists()


def test_json_path_that_becomes_unwritable_changes_no_outcome(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile("def test_one(): open('out', 'w').close()")
    result = run("--torchgraph-json=out/run.json")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["torchgraph: the JSON of this run was not written: *"])


def test_json_of_an_unwatched_run_says_so(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest
        from pytest_torchgraph.watching.observe import hub

        def test_one(monkeypatch):
            import torch

            def fail(*args):
                raise ValueError("unreadable")

            monkeypatch.setattr(hub, "read_event", fail)
            torch.compile(lambda x: x.sin(), backend="eager")(torch.ones(3))
        """
    )
    result = run("--torchgraph-json=run.json")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["incomplete audit, *: ValueError: unreadable"])
    assert read(pytester)["audit"]["broken"] == "ValueError: unreadable"


def keys(data: object) -> Iterator[str]:
    for value in data if isinstance(data, list) else ():
        yield from keys(value)
    for key, value in data.items() if isinstance(data, dict) else ():
        if "::" not in key:  # a test id
            yield key
        yield from keys(value)


def test_json_keys_are_documented() -> None:
    outcome = made(
        {"t.py::a": compiling(broken_at(3)), "t.py::b": compiling()},
        before={"t.py::a": compiling(), "t.py::gone": compiling()},
        settings=[LeakedSetting("torch._dynamo.config.verbose", "False", "True", "t.py::a")],
    )
    data = document.run_document(outcome, 1)
    assert data["audit"]["baseline"]["verdict"]["worse"]
    documented = set(re.findall(r"[\w-]+", str(document.__doc__)))
    assert set(keys(data)) - documented == set()
    assert {fact_field.name for fact_field in fields(TestFacts)} <= documented


def test_json_has_one_cause_with_all_its_places() -> None:
    nothing = Cause("nothing", "b.py", "f", "never called", "", 5)
    other = Cause("nothing", "a.py", "g", "never called", "", 7)
    facts = {"1": compiling(nothing, compiles=False), "2": compiling(other, compiles=False)}
    document = audit_document(made(facts, passed={"2"}))
    assert [test_facts["passed"] for test_facts in document["tests"].values()] == [False, True]
    (cause,) = document["causes"]
    assert cause["words"] == "nothing compiled: b.py:5 in f and 1 more function: never called"
    assert cause["keys"] == [other.key, nothing.key]
    assert [(place["file"], place["line"]) for place in cause["places"]] == [
        ("a.py", 7),
        ("b.py", 5),
    ]
    assert cause["without_graph"] == 2


def test_json_lists_the_slowest_functions_first() -> None:
    slow, quick = "net.py:3 forward", "net.py:9 step"
    facts = {
        "1": compiling(frames=(quick, slow), frame_seconds=(0.5, 1.0)),
        "2": compiling(frames=(slow,), frame_seconds=(2.0,)),
    }
    functions = audit_document(made(facts))["functions"]
    assert [
        (function["line"], function["tests"], function["seconds"]) for function in functions
    ] == [
        (3, 2, 3.0),
        (9, 1, 0.5),
    ]


def test_json_with_an_old_torch_says_unwatched(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeconftest(
        """
        import sys
        import types

        sys.modules["torch"] = types.ModuleType("torch")
        sys.modules["torch"].__version__ = "2.6.0"
        """
    )
    pytester.makepyfile("def test_one(): pass")
    result = run("--torchgraph-json=run.json", "--torchgraph-report=page.html")
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*torchgraph audit*")
    audit = read(pytester)["audit"]
    assert audit["broken"] == "pytest-torchgraph needs torch 2.9 or newer, but this is 2.6.0"
    assert audit["totals"]["tests"] == 1
    step = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(pytester.path / "summary.md")}
    shown = run("--torchgraph-audit=show", **step)
    shown.stdout.fnmatch_lines(["no test was watched: *", "::warning title=*this is 2.6.0"])
    assert "uses torch.compile" not in (pytester.path / "summary.md").read_text()
