"""The report of a failed comparison, for each way to run pytest."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from projects import Run, section

from pytest_torchgraph.graph import Program
from pytest_torchgraph.snapshot import Comparison, read_stored


def picture(pytester: pytest.Pytester, lines: list[str]) -> Path:
    paths = [line.removeprefix("picture: ") for line in lines if line.startswith("picture: ")]
    assert len(paths) == 1
    return pytester.path / paths[0].partition(" (")[0]


@pytest.mark.slow("further ways to run pytest", unless=["arguments0"])
@pytest.mark.parametrize(
    "arguments", [("--assert=plain",), ("-p", "xdist", "-n2"), ("--tb=no", "-rA")]
)
def test_section_has_change_accept_command_and_picture(
    pytester: pytest.Pytester, project: Run, arguments: tuple[str, ...]
) -> None:
    result = project(*arguments, OP="gelu")
    result.assert_outcomes(failed=1)
    if "--tb=no" in arguments:
        assert "torchgraph ---" not in result.stdout.str()
        return
    lines = section(result)
    assert lines[0] == "1 edit: aten.relu -> aten.gelu in layer.0"
    assert lines[1].startswith("~ changed in layer.0 [forward]")
    assert "    before  %layer.0/relu = aten.relu.default(%x) : f32[2, 16]" in lines
    assert "    after   %layer.0/gelu = aten.gelu.default(%x) : f32[2, 16]" in lines
    assert "file:    __snapshots__/test_net/test_step.tgraph" in lines
    assert "accept:  pytest test_net.py::test_step --torchgraph-update" in lines
    assert len(lines) <= 15
    drawn = picture(pytester, lines)
    assert drawn.parent == pytester.path / ".pytest_cache" / "d" / "torchgraph"
    assert "<svg" in drawn.read_text()


def test_assertion_message_is_too_short_to_be_cut(project: Run) -> None:
    result = project(OP="gelu " * 100)
    result.assert_outcomes(failed=1)
    message = [line for line in result.outlines if line.startswith("E ")]
    assert 2 <= len(message) <= 7
    assert "graphs == stored: " in message[0]
    assert "Full diff" not in result.stdout.str()
    assert "Use -v" not in result.stdout.str()


def test_large_finding_is_cut_and_written_whole_to_a_file(
    pytester: pytest.Pytester, project: Run
) -> None:
    ops = ["gelu", "neg", "exp", "sin", "cos", "tan", "erf", "log", "sqrt", "abs"]
    result = project(OP=" ".join(["relu", *ops]))
    lines = section(result)
    assert len(lines) <= 15
    assert lines[-1].endswith(" (full text in the .txt file next to it)")
    text = picture(pytester, lines).with_suffix(".txt").read_text()
    assert text.startswith("test_net.py::test_step\n")
    assert all(f"aten.{op}.default" in text for op in ops)


def test_section_names_another_torch_release_first(
    pytester: pytest.Pytester, project: Run, stored: Path
) -> None:
    stored.write_text(stored.read_text().replace("torch 2.13.0", "torch 2.9.1"))
    lines = section(project(OP="gelu"))
    assert lines[0] == "stored with torch 2.9.1, now running torch 2.13.0"
    assert lines[1] == "1 edit: aten.relu -> aten.gelu in layer.0"


def test_each_failed_comparison_has_its_own_section_and_picture(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(
        test_net="""
        import pytest
        from graphs import graph

        @pytest.fixture
        def checked(graph_snapshot):
            assert graph() == graph_snapshot

        def test_step(graph_snapshot):
            same = [graph() == graph_snapshot(name=name) for name in ("a", "A", "b")]
            assert all(same)

        def test_fixture(checked): pass
        """
    )
    run("--torchgraph-update").assert_outcomes(passed=2)
    result = run("-vv", OP="gelu")
    result.assert_outcomes(failed=1, errors=1)
    pictures = [line for line in result.outlines if line.startswith("picture: ")]
    assert len(set(pictures)) == 4
    assert sum(line.strip("-") == " torchgraph " for line in result.outlines) == 4
    assert result.outlines.count("1 edit: aten.relu -> aten.gelu in layer.0") == 4


def test_mismatch_that_fails_no_test_has_no_section(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_net="""
        import os
        import pytest
        from graphs import graph

        def test_differs(graph_snapshot):
            if os.environ["OP"] == "relu":
                assert graph() == graph_snapshot
            else:
                assert graph() != graph_snapshot

        @pytest.mark.xfail
        def test_known(graph_snapshot):
            assert graph() == graph_snapshot

        def test_other():
            assert 0
        """
    )
    run("--torchgraph-update", "-k", "differs", OP="relu").assert_outcomes(passed=1, deselected=2)
    result = run("-rP", "-rx", OP="tanh")
    result.assert_outcomes(passed=1, xfailed=1, failed=1)
    assert "- torchgraph -" not in result.stdout.str()


def test_op_counts_that_differ_are_listed_and_cut_with_a_count(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(
        test_net="""
        from graphs import graph

        def test_step(graph_snapshot):
            assert graph() == graph_snapshot(detail="ops")
        """
    )
    result = run("--torchgraph-update")
    result.stdout.fnmatch_lines(["created  *test_step.tgraph: op counts only: forward 1 op"])
    result = run(OP="relu gelu relu")
    result.stdout.fnmatch_lines(["E*graphs == stored: 2 op counts differ"])
    assert section(result)[:3] == [
        "2 op counts differ",
        "forward: aten.gelu.default  0 -> 1",
        "forward: aten.relu.default  1 -> 2",
    ]
    lines = section(run(OP=" ".join(f"op{i}" for i in range(200))))
    assert len(lines) < 70
    assert "... and 141 more lines" in lines


def test_undrawable_picture_changes_nothing_else(pytester: pytest.Pytester, project: Run) -> None:
    pytester.makeconftest(
        """
        import pytest_torchgraph.render.difference

        def broken(*args, **kwargs):
            raise RuntimeError("no ink\\nat all")

        pytest_torchgraph.render.difference.drawing = broken
        """
    )
    result = project(OP="gelu")
    result.assert_outcomes(failed=1)
    lines = section(result)
    assert lines[0] == "1 edit: aten.relu -> aten.gelu in layer.0"
    assert lines[-1] == "picture: none, RuntimeError: no ink"


def test_error_in_the_difference_changes_nothing_else(
    pytester: pytest.Pytester, project: Run
) -> None:
    pytester.makeconftest(
        """
        import pytest_torchgraph.graph.diff

        def broken(*args):
            raise RecursionError("too deep")

        pytest_torchgraph.graph.diff.diff_graphs = broken
        """
    )
    result = project(OP="gelu")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E*graphs == stored: the graphs differ (cannot describe the difference: "
            "RecursionError: too deep)"
        ]
    )
    lines = section(result)
    assert lines[1] == "cannot describe the difference: RecursionError: too deep"
    assert "accept:  pytest test_net.py::test_step --torchgraph-update" in lines


def test_uncreatable_artifact_directory_changes_nothing_else(
    pytester: pytest.Pytester, project: Run
) -> None:
    (pytester.path / "file").touch()
    result = project("--torchgraph-artifacts=file/sub", OP="gelu")
    result.assert_outcomes(failed=1)
    assert section(result)[-1].startswith("picture: none, ")


def test_pictures_without_the_cache_plugin_are_in_a_temporary_directory(project: Run) -> None:
    lines = section(project("-p", "no:cacheprovider", OP="gelu"))
    drawn = Path(lines[-1].removeprefix("picture: ").partition(" (")[0])
    assert drawn.is_absolute()
    assert drawn.parent.name.startswith("pytest-torchgraph-")
    assert "<svg" in drawn.read_text()


def test_junit_and_html_reports_have_the_difference_and_the_picture(
    pytester: pytest.Pytester, project: Run
) -> None:
    pytest.importorskip("pytest_html")
    html = ("-p", "html", "-p", "metadata", "--html=out.html", "--self-contained-html")
    project("--junitxml=out.xml", "-o", "junit_family=xunit1", *html, OP="gelu")
    properties = {
        element.get("name"): element.get("value")
        for element in ET.parse(pytester.path / "out.xml").iter("property")
    }
    assert properties["torchgraph"] == (
        "__snapshots__/test_net/test_step.tgraph: 1 edit: aten.relu -> aten.gelu in layer.0"
    )
    assert (pytester.path / str(properties["torchgraph_picture"])).is_file()
    page = (pytester.path / "out.html").read_text()
    assert "svg" in page.partition("test_net.py::test_step")[2]


def test_artifact_directory_of_the_ini_file_has_expected_and_actual_graphs(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(
        test_net="""
        import pytest
        from graphs import graph

        @pytest.mark.parametrize("name", ["a", "🔥" * 100])
        def test_step(graph_snapshot, name):
            assert graph() == graph_snapshot

        def test_new(graph_snapshot):
            assert graph() == graph_snapshot
        """
    )
    pytester.makeini("[pytest]\ntorchgraph_artifacts = out/pictures")
    run("--torchgraph-update", "-k", "step").assert_outcomes(passed=2, deselected=1)
    stored = next((pytester.path / "__snapshots__/test_net").glob("*a].tgraph")).read_text()
    run(OP="relu tanh").assert_outcomes(failed=3)
    out = pytester.path / "out" / "pictures"
    for suffix, count in {"expected.tgraph": 2, "received.tgraph": 3, "diff": 2, "svg": 2}.items():
        assert len(list(out.glob(f"*.{suffix}"))) == count, suffix
    (expected,) = out.glob("*[[]a[]]*.expected.tgraph")
    assert expected.read_text() == stored
    received = expected.with_name(expected.name.replace("expected", "received")).read_text()
    assert "aten.tanh" in received
    diff = expected.with_name(expected.name.replace("expected.tgraph", "diff")).read_text()
    assert "\n+  %layer.1/tanh = aten.tanh.default(%layer.0/relu) : f32[2, 16]\n" in diff


def layers_of(*acts: str) -> Program:
    """Return the program of layers, each with its activation."""
    lines, before = [], "%x"
    for n, act in enumerate(acts):
        for op in ("norm", "mm", act, "add"):
            lines.append(f"  %layers.{n}/{op} = aten.{op}.default({before}) : f32[2]\n")
            before = f"%layers.{n}/{op}"
    text = f"torchgraph 2\n\nforward @ aot {{\n  %x = input : f32[2]\n{''.join(lines)}"
    return read_stored(f"{text}  return {before}\n}}\n")


@pytest.mark.parametrize(
    ("acts", "fold", "count"),
    [
        # The block has the line of all layers.
        (["relu"] * 12, True, 4),
        # One line of each layer, against a block that falls apart.
        (["relu", "gelu", *["sin", "cos", "tan", "exp"] * 2, "gelu", "gelu"], False, 36),
    ],
)
def test_text_difference_is_the_shorter_one(acts: list[str], fold: bool, count: int) -> None:
    before, after = layers_of(*["gelu"] * 12), layers_of(*acts)
    lines = Comparison(after, before).text_diff
    changed = [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    texts = [program.to_text("dataflow", fold=fold).splitlines() for program in (before, after)]
    assert len(changed) == count
    assert all(line[1:] in texts[line[0] == "+"] for line in changed)


@pytest.mark.parametrize("order", [1, -1])
def test_text_difference_of_many_lines_is_a_sentence(
    order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(op: str, step: int = 1) -> Any:
        lines = "".join(f"  %y{k} = aten.{op}(%x, {k}) : f32[2]\n" for k in range(40)[::step])
        text = f"torchgraph 4\n\nforward @ aot {{\n  %x = input : f32[2]\n{lines}"
        return read_stored(f"{text}  return %y0\n}}\n")

    before, after = program("add"), program("add" if order < 0 else "mul", order)
    assert len(Comparison(after, before).text_diff) > 40
    monkeypatch.setattr("pytest_torchgraph.snapshot.compare.MOST_WORK", 1_000)
    assert Comparison(after, before).text_diff == [
        "up to 41 lines differ, too many for a difference of the texts"
    ]
    assert not Comparison(before, before).text_diff
