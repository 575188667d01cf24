"""An audit on GitHub Actions, with the variables and files that a step has."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from projects import Run
from report.audits import broken_at, compiling, made

from pytest_torchgraph.audit import (
    AuditOutcome,
    Cause,
    CodePlace,
    LeakedSetting,
    Verdict,
)
from pytest_torchgraph.report.surfaces.github import (
    MOST,
    Annotation,
    Workspace,
    annotations_of,
    append_summary,
    summary,
)
from pytest_torchgraph.words import markdown_code, markdown_text

NOTHING = Cause("nothing", "", "", "Dynamo found no tensor operation", "", 0)


def workspace(rootdir: Path, **environment: str | Path) -> Workspace:
    config: Any = SimpleNamespace(
        rootpath=rootdir, invocation_params=SimpleNamespace(dir=rootdir.parent)
    )
    return Workspace(config, str(environment.get("WORKSPACE") or rootdir))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Make a checkout with its tests in a subdirectory project."""
    path = tmp_path / "repository"
    for name in ("project/net.py", "src/package/model.py"):
        file = path / name
        file.parent.mkdir(parents=True)
        file.write_text("x = 1\n")
    return path


@pytest.fixture
def checkout(repository: Path) -> Workspace:
    return workspace(repository / "project", WORKSPACE=repository)


def commands(outcome: AuditOutcome, checkout: Workspace) -> list[str]:
    return [annotation.command(checkout) for annotation in annotations_of(outcome)]


# -- annotations -----------------------------------------------------------------------------------


def test_each_cause_is_a_warning_at_the_models_line(checkout: Workspace) -> None:
    facts = {f"test_net.py::test_{n}": compiling(broken_at(7)) for n in range(5)}
    assert commands(made(facts), checkout) == [
        "::warning file=project/net.py,line=7,title=torchgraph%3A graph break::"
        "graph break at net.py:7 in forward: print(x)%0A5 tests: test_net.py::test_0, "
        "test_net.py::test_1, test_net.py::test_2 and 2 more"
    ]


def test_recompilation_is_a_warning_at_the_line_that_made_the_guard(checkout: Workspace) -> None:
    again = Cause("recompile", "net.py", "forward", "", "", 3)
    known = replace(again, guard="self.calls: was 0, is 1", guard_place="net.py:7 helper")
    lines = [commands(made({"test_a": compiling(cause)}), checkout)[0] for cause in (again, known)]
    head = "title=torchgraph%3A recompile::recompiled: net.py:3 in forward"
    assert lines[0].startswith(f"::warning file=project/net.py,line=3,{head}%0A1 test")
    start = f"::warning file=project/net.py,line=7,{head}: self.calls: was 0, is 1%0A1 test"
    assert lines[1].startswith(start)


def test_texts_are_escaped_as_githubs_toolkit_does(repository: Path) -> None:
    checkout = workspace(repository, WORKSPACE=repository)
    odd = repository / "100%,a:b.py"
    odd.write_text("")
    annotation = Annotation("error", "a, b: c", "50%25\nné\x1b", CodePlace(odd.name, 3, "f"))
    assert annotation.command(checkout) == (
        "::error file=100%25%2Ca%3Ab.py,line=3,title=torchgraph%3A a%2C b%3A c::50%2525%0Ané?"
    )


def test_annotations_list_the_costliest_first_and_count_the_rest(checkout: Workspace) -> None:
    causes = [broken_at(line, f"print({line})") for line in range(1, 15)]
    facts = {f"test_{n}": compiling(*causes[:n]) for n in range(15)}
    annotations = commands(made(facts), checkout)
    assert len(annotations) == MOST
    assert "print(1)%0A14 tests: " in annotations[0]
    assert annotations[-1].startswith(
        "::warning title=torchgraph%3A 5 more::and 5 more: see the step"
    )
    fewer = {"test": compiling(*causes[:MOST])}
    assert "more" not in commands(made(fewer), checkout)[-1]


def test_annotations_of_a_check_omit_tolerated_causes(checkout: Workspace) -> None:
    known, new = broken_at(3, "print(1)"), broken_at(9, "print(2)")
    before = {"test_a": compiling(known), "test_b": compiling(ops=8)}
    after = {"test_a": compiling(known, new), "test_b": compiling(ops=4)}
    title = "title=torchgraph%3A worse than torchgraph-audit.json"
    assert commands(made(after, before), checkout) == [
        f"::error file=project/net.py,line=3,{title}::fewer ops compiled: 8 -> 4 "
        "(net.py:3 in forward)%0A1 test: test_b",
        f"::error file=project/net.py,line=9,{title}::graph break at net.py:9 in forward: "
        "print(2)%0A1 test: test_a",
    ]
    assert commands(made(before, before), checkout) == []


def test_annotations_name_unjudged_tests(tmp_path: Path) -> None:
    checkout = workspace(tmp_path)
    facts = {"test": compiling()}
    broken = made(facts, mode="check", broken="KeyError: 'x'", said=("not checked",))
    assert commands(broken, checkout) == [
        "::error title=torchgraph%3A not watched::incomplete audit, so nothing "
        "was compared: KeyError: 'x'"
    ]
    cut = made(facts, mode="check", said=("a.json: not checked: the run stopped early",))
    assert commands(cut, checkout) == [
        "::error title=torchgraph%3A not checked::a.json: not checked: the run stopped early"
    ]
    said = ("nothing was compared with a.json",)
    empty = made(facts, mode="check", verdict=Verdict(gone=["test_gone"], vacuous=True), said=said)
    assert commands(empty, checkout) == [
        "::error title=torchgraph%3A nothing was compared::nothing was compared with a.json"
    ]


def test_annotation_without_a_place_is_at_the_tests_call(checkout: Workspace) -> None:
    empty = compiling(NOTHING, compiles=False, frames=(), callables=("net.py:12 Net",))
    (command,) = commands(made({"test": empty}), checkout)
    assert command.startswith("::warning file=project/net.py,line=12,")
    assert "Dynamo found no tensor operation (net.py:12 in Net)%0A1 test" in command


# -- places ----------------------------------------------------------------------------------------


def test_files_are_found_from_the_workspace_on(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    checkout = workspace(repository / "project", WORKSPACE=repository)
    assert checkout.path("net.py") == "project/net.py"
    assert checkout.path("package/model.py") == ""
    monkeypatch.syspath_prepend(str(repository / "src"))
    checkout = workspace(repository / "project", WORKSPACE=repository)
    assert checkout.path("package/model.py") == "src/package/model.py"
    assert checkout.path("away.py") == checkout.path("") == ""

    through = tmp_path / "link"
    through.symlink_to(repository)
    for root, home in ((repository, through), (through, repository)):
        assert workspace(root / "project", WORKSPACE=home).path("net.py") == "project/net.py"


def test_files_outside_of_the_workspace_and_installed_ones_have_no_place(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed = repository / ".venv" / "lib" / "site-packages"
    (installed / "package").mkdir(parents=True)
    (installed / "package" / "layers.py").write_text("")
    (tmp_path / "outside.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(installed), str(tmp_path), *sys.path])
    checkout = workspace(repository / "project", WORKSPACE=repository)
    assert checkout.path("package/layers.py") == ""
    assert checkout.path("outside.py") == ""
    assert checkout.path("../../outside.py") == ""
    annotation = Annotation("warning", "t", "at outside.py:3", CodePlace("outside.py", 3, "f"))
    assert annotation.command(checkout) == "::warning title=torchgraph%3A t::at outside.py:3"


# -- the summary -----------------------------------------------------------------------------------


def test_summary_has_the_lines_of_the_terminal_escaped() -> None:
    facts = {f"test_{n}": compiling(broken_at(9 + n, f"a|{n}")) for n in range(12)}
    left = [LeakedSetting("torch._dynamo.config.verbose", "False", "True", "test_a")]
    lines = summary(made(facts, settings=left, said=("worse than a.json:", "1 test  x")), 10_000)
    assert lines[0] == "### torchgraph audit"
    assert lines[2].startswith("- 12 of 12 tests use torch.compile")
    assert sum("graph break at net.py:" in line for line in lines) == 12
    assert sum("a&#124;" in line for line in lines) == 12
    assert any("dynamo.config.verbose: False -> True test" in line for line in lines)
    assert lines[-2:] == ["- worse than a.json:", "- 1 test x"]
    broken = summary(made({}, broken="KeyError: 'x'", said=("not checked",)), 10_000)
    assert broken[2:] == ["- incomplete audit: KeyError: 'x'", "- not checked"]


def test_long_summary_is_cut_with_a_note() -> None:
    causes = [broken_at(line, f"print({line}, 'é\ud800')") for line in range(500)]
    outcome = made({"test": compiling(*causes)})
    whole = summary(outcome, 1_000_000)
    for budget in (5_000, 10_001, 30_000):
        lines = summary(outcome, budget)
        assert len("\n".join(lines[:-2]).encode("utf-8", "backslashreplace")) < budget
        omitted = len(whole) - len(lines) + 2
        assert lines[-1] == f"{omitted} more lines omitted: GitHub limits the size of a summary."
        assert lines[:-2] == whole[:-omitted]
    assert sum("graph break at " in line for line in whole) == 500
    assert not any("omitted" in line for line in whole)


def test_summary_keeps_and_counts_earlier_content(tmp_path: Path) -> None:
    path, outcome = tmp_path / "summary", made({"t": compiling()})
    path.write_text("of another step's program")
    append_summary(path, outcome)
    assert path.read_text().startswith("of another step's program\n### torchgraph audit\n")
    path.write_bytes(b"x" * 1024 * 1024)
    with pytest.raises(OSError, match="is full"):
        append_summary(path, outcome)
    assert path.stat().st_size == 1024 * 1024
    odd = replace(broken_at(1), code="half \ud800 of a pair")
    (tmp_path / "new").touch()
    append_summary(tmp_path / "new", made({"t": compiling(odd)}))
    assert "half ? of" in (tmp_path / "new").read_text()


@pytest.mark.parametrize(
    ("words", "markdown"),
    [
        ("x.sin() * 2", "x.sin() &#42; 2"),
        ("a|b `c` \\d", "a&#124;b &#96;c&#96; &#92;d"),
        ("<img src=x onerror=y> & &lt;", "&#60;img src=x onerror=y> &#38; &#38;lt;"),
        ("[text](https://x.y) www.x.y", "&#91;text&#93;(https&#58;//x.y) www&#46;x.y"),
        ("__init__ test_net.py::test_a", "&#95;&#95;init&#95;&#95; test_net.py::test_a"),
        ("one\r\n| two\t#1 @me", "one &#124; two &#35;1 <b></b>@<b></b>me"),
    ],
)
def test_summary_escapes_markup(words: str, markdown: str) -> None:
    assert markdown_text(words) == markdown


@pytest.mark.parametrize("words", ["a|b", "a`b", "``", "\\|", "`` a | b ``", "a @b", "<!-- a"])
def test_summary_code_spans_cannot_be_closed_by_text(words: str) -> None:
    assert markdown_code("a_b c <d>") == "`a_b c <d>`"
    assert markdown_code(words) == f"<code>{markdown_text(words)}</code>"
    assert not {*"|`\\"} & {*markdown_code(words)}


# -- runs ------------------------------------------------------------------------------------------

SUITE = """
    import pytest
    import torch


    def helper(x):
        y = x.sin()
        print("é | 100%")
        return y.cos()


    @pytest.mark.parametrize("size", [3, 4])
    def test_break(size):
        torch.compile(helper, backend="eager", dynamic=False)(torch.ones(size))


    def test_net():
        torch.compile(lambda x: x.sin(), backend="eager")(torch.ones(3))
"""


@pytest.fixture
def step(pytester: pytest.Pytester) -> Mapping[str, str]:
    """The environment of a GitHub Actions step. The checkout has its tests in a subdirectory."""
    pytester.makepyfile(test_net=SUITE)
    project = pytester.mkdir("project")
    os.rename("test_net.py", project / "test_net.py")
    (project / "pytest.ini").write_text("[pytest]\n")
    (pytester.path / "summary.md").write_text("# before\n")
    return {
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(pytester.path),
        "GITHUB_STEP_SUMMARY": str(pytester.path / "summary.md"),
        "PYTHONIOENCODING": "utf-8",
    }


def said(result: pytest.RunResult) -> list[str]:
    """Return the annotations of a run. They occur only at the start of a line."""
    lines = [line for line in result.outlines if "::warning" in line or "::error" in line]
    assert all(line.startswith("::") for line in lines)
    return lines


@pytest.mark.slow("runs pytest in a new process")
@pytest.mark.parametrize("how", [("-v", "-p", "xdist", "-n2"), ("-qq", "--no-summary")])
def test_step_has_annotations_and_a_summary(
    pytester: pytest.Pytester, run: Run, step: Mapping[str, str], how: tuple[str, ...]
) -> None:
    result = run("project", *how, "--torchgraph-audit=show", **step)
    assert result.ret == 0
    first, *others = said(result)
    assert first.startswith(
        "::warning file=project/test_net.py,line=7,title=torchgraph%3A graph break::graph break at "
        'test_net.py:7 in helper: print("é | 100%25")%0A2 tests: '
    )
    assert len(others) == len(set(others)) <= 1  # a recompile, if one process ran both
    written = (pytester.path / "summary.md").read_text("utf-8")
    assert written.startswith("# before\n\n### torchgraph audit\n")
    assert written.count("### torchgraph audit") == 1
    assert 'print("é &#124; 100%")' in written


@pytest.mark.slow("runs pytest in a new process")
def test_step_check_annotates_the_regressed_line(
    pytester: pytest.Pytester, run: Run, step: Mapping[str, str]
) -> None:
    check = ("project", "-k", "not break", "--torchgraph-audit=check")
    assert run(*check[:-1], "--torchgraph-audit=record", **step).ret == 0
    assert said(run(*check, **step)) == []
    path = pytester.path / "project" / "test_net.py"
    path.write_text(path.read_text("utf-8").replace("lambda x: x.sin()", "helper"), "utf-8")
    result = run(*check, **step)
    assert result.ret == 1
    result.assert_outcomes(passed=1, deselected=2)
    assert [line.partition("::graph")[0] for line in said(result)] == [
        "::error file=project/test_net.py,line=7,title=torchgraph%3A worse than "
        "project/torchgraph-audit.json"
    ]
    quiet = run(*check, "-o", "torchgraph_github=off", **step)
    assert quiet.ret == 1
    assert said(quiet) == []


@pytest.mark.slow("runs pytest in a new process")
def test_summary_that_cannot_be_written_changes_no_outcome(
    pytester: pytest.Pytester, run: Run, step: Mapping[str, str]
) -> None:
    missing = {**step, "GITHUB_STEP_SUMMARY": str(pytester.path / "missing" / "summary.md")}
    result = run("project", "-k", "test_net", "--torchgraph-audit=show", **missing)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["torchgraph: cannot write the GitHub step summary: *"])


@pytest.mark.slow("runs pytest several times")
def test_step_without_an_audit_has_no_annotations(
    pytester: pytest.Pytester, run: Run, step: Mapping[str, str]
) -> None:
    pytester.makepyfile(test_plain="def test_one(): pass")
    assert said(run("test_plain.py", "--torchgraph-json=run.json", **step)) == []
    assert (pytester.path / "summary.md").read_text() == "# before\n"
    elsewhere = {**step, "GITHUB_ACTIONS": "false"}
    assert said(run("test_plain.py", "--torchgraph-audit=show", **elsewhere)) == []
    wrong = run("test_plain.py", "-o", "torchgraph_github=on")
    assert wrong.ret == pytest.ExitCode.USAGE_ERROR
    wrong.stderr.fnmatch_lines(["*torchgraph_github: must be auto or off, got 'on'*"])
