"""`pytest-torchgraph`: show, diff, render; `test_compare` has directories."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.conftest import Run
from console_script import environment_with, write_script

from pytest_torchgraph.cli import main
from pytest_torchgraph.graph import Graph

OLD = """torchgraph 4
via aot, torch 2.13.0

forward {
  %x = input : f32[2, 4]
  %relu = aten.relu.default(%x) : f32[2, 4]
  return %relu
}
"""
NEW = OLD.replace("relu", "tanh")
TWO = OLD + OLD.partition("\n\n")[2].replace("forward", "backward").join(["\n", ""])


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (("old", OLD), ("new", NEW), ("two", TWO), ("bad", "what\n"), ("none", "")):
        Path(f"{name}.tgraph").write_text(text)
    return tmp_path


def test_show_prints_what_is_stored(files: Path, run: Run) -> None:
    assert run("show", "old.tgraph", code=0) == OLD
    shown = run("show", "two.tgraph", "--graph", "backward", code=0)
    assert "backward {" in shown
    assert "forward {" not in shown


def test_show_prints_a_folded_file_folded_or_flat(files: Path, run: Run) -> None:
    lines = [
        f"  %h.{n}/{name} = aten.relu.default(%x) : f32[2, 4]" for n in range(5) for name in "abc"
    ]
    flat = OLD.replace("  %relu", "\n".join([*lines, "  %relu"]))
    folded = Graph.from_text(flat).to_text(fold=True)
    assert "  h.0\n  h.1\n" in folded
    folded = folded.replace("forward @ aot", "forward").replace(
        "\n", "\nvia aot, torch 2.13.0\n", 1
    )
    Path("folded.tgraph").write_text(folded)
    assert run("show", "folded.tgraph", code=0) == folded
    assert run("show", "folded.tgraph", "--flat", code=0) == flat
    assert run("show", "old.tgraph", "--flat", code=0) == OLD
    Path("flat.tgraph").write_text(flat)
    output = run("diff", "flat.tgraph", "folded.tgraph", code=0)
    assert output == run("diff", "old.tgraph", "old.tgraph", code=0)


def test_show_prints_costs_of_modules_and_nodes(files: Path, run: Run) -> None:
    mm = "%w = parameter : f32[4, 4]\n  %fc/mm = aten.mm.default(%relu, %w) : f32[2, 4]\n  return"
    text = OLD.replace("return", mm)
    Path("mm.tgraph").write_text(text.replace("return %relu", "return %fc/mm\n  save %relu"))
    modules = run("show", "mm.tgraph", "--cost", code=0).splitlines()
    assert [row.split() for row in modules[2:]] == [
        ["(all)", "64", "100.0", "32"],
        ["fc", "64", "100.0", "0"],
    ]
    nodes = run("show", "mm.tgraph", "--table", "--cost", code=0)
    assert "aten.mm.default       64" in nodes
    output = run("show", "mm.tgraph", "--ops", "--cost", code=2)
    assert "--cost accepts only --table: leave out --ops" in output


def test_show_prints_collectives(files: Path, run: Run) -> None:
    reduce = OLD.replace(
        "  return %relu",
        '  %sum = _c10d_functional.all_reduce.default(%relu, "sum", "tp") : f32[2, 4]\n'
        "  %done = _c10d_functional.wait_tensor.default(%sum) : f32[2, 4]\n  return %done",
    )
    Path("reduce.tgraph").write_text(reduce)
    title, _, row, _ = run("show", "reduce.tgraph", "--collectives", code=0).split("\n")
    assert title.split() == ["#", "kind", "group", "bytes", "tensor", "wait", "graph"]
    assert " ".join(row.split()) == "0 all_reduce tp 32 f32[2, 4] at once forward"
    none = run("show", "old.tgraph", "--collectives", code=0)
    assert none == "no collectives\n"
    hidden = OLD.replace("via aot", "via dynamo").replace(
        "aten.relu.default", "Tensor.redistribute"
    )
    Path("hidden.tgraph").write_text(hidden)
    output = run("show", "hidden.tgraph", "--collectives", code=2)
    assert "decides at run time what it communicates. Capture via 'aot'" in output


def test_show_replaces_symbolic_sizes(files: Path, run: Run) -> None:
    Path("dynamic.tgraph").write_text(OLD.replace("f32[2, 4]", "f32[s0, `2*s1`]"))
    shown = run("show", "dynamic.tgraph", "--size=s0=2", "--size=s1=2", code=0)
    assert shown == OLD
    for size, words in (
        ("s9=1", "unknown symbol 's9'"),
        ("s0", "expected SYMBOL=N, such as --size=s0="),
    ):
        assert words in run("show", "dynamic.tgraph", "--size", size, code=2)


def test_show_of_an_unknown_cost_or_without_torch_exits_2(
    files: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("dynamo.tgraph").write_text(OLD.replace("via aot", "via dynamo"))
    output = run("show", "dynamo.tgraph", "--cost", code=2)
    assert "FLOPs are unknown in a graph at level 'dynamo'" in output
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in [n for n in sys.modules if n.startswith("pytest_torchgraph.graph.cost")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "pytest_torchgraph.ops.flop_formulas", raising=False)
    output = run("show", "old.tgraph", "--cost", code=2)
    assert output == "pytest_torchgraph: FLOPs require torch, which is not installed\n"


def test_missing_graph_is_named(files: Path, run: Run) -> None:
    output = run("show", "two.tgraph", "--graph", "joint", code=2)
    assert (
        output == "pytest_torchgraph: two.tgraph has no graph 'joint': it has forward, backward\n"
    )


def test_diff_prints_changes_and_exits_like_diff(files: Path, run: Run) -> None:
    assert run("diff", "old.tgraph", "old.tgraph", code=0) == ""
    output = run("diff", "old.tgraph", "new.tgraph", code=1)
    assert output.startswith("1 edit: aten.relu -> aten.tanh\n")
    assert "aten.relu.default" in output
    assert "aten.tanh.default" in output


@pytest.mark.parametrize("missing", [os.devnull, "none.tgraph"])
def test_diff_with_dev_null_has_no_graphs_on_that_side(files: Path, missing: str, run: Run) -> None:
    assert "'forward' added" in run("diff", missing, "old.tgraph", code=1)
    assert "'forward' removed" in run("diff", "old.tgraph", missing, code=1)


def test_counts_are_compared_with_graphs(files: Path, run: Run) -> None:
    Path("counts.tgraph").write_text(Graph.from_text(OLD).to_text("ops"))
    alone = (
        "only op counts are compared: counts.tgraph was stored with detail='ops', so it has no "
        "graphs\n"
    )
    assert run("diff", "counts.tgraph", "old.tgraph", code=0) == alone
    assert run("diff", "old.tgraph", "counts.tgraph", code=0) == alone
    assert run("diff", "counts.tgraph", "counts.tgraph", code=0) == ""
    output = run("diff", "counts.tgraph", "new.tgraph", code=1)
    differing = "forward: aten.relu.default  1 -> 0\nforward: aten.tanh.default  0 -> 1\n"
    assert output == alone + differing


def test_two_empty_files_are_an_error(files: Path, run: Run) -> None:
    said = run("diff", "none.tgraph", os.devnull, code=2)
    assert f"nothing to compare: none.tgraph and {os.devnull} are empty" in said


EAGER = (
    OLD
    + """
eager_0 × 2 {
  %"forward:relu" = saved : f32[2, 4]
  %sin = aten.sin.default(%"forward:relu") : f32[2, 4]
  return %sin
}
"""
)


def test_eager_graphs_are_shown_compared_and_drawn(files: Path, run: Run) -> None:
    Path("eager.tgraph").write_text(EAGER)
    assert run("show", "eager.tgraph", code=0) == EAGER
    counts = run("show", "eager.tgraph", "--ops", code=0)
    assert "\neager_0 × 2\n       1 aten.sin.default\n" in counts
    one = run("show", "eager.tgraph", "--graph", "eager_0", code=0)
    assert one.startswith("torchgraph 4\nvia aot, torch 2.13.0\n\neager_0 × 2 {\n")
    table = run("show", "eager.tgraph", "--table", code=0)
    assert "\neager_0 × 2\nopcode" in table
    output = run("diff", "old.tgraph", "eager.tgraph", code=1)
    assert output == "1 graph added\n+ eager graph 'eager_0' added (1 op)\n"
    run("render", "eager.tgraph", "all.dot", code=0)
    assert "eager_0: eager, ran 2 times, 1 op" in Path("all.dot").read_text()


def test_counts_of_eager_ops_are_compared_with_runs(files: Path, run: Run) -> None:
    counts = "torchgraph 4\nvia aot, detail ops\n\neager_0 × 2 {\n  1 aten.sin.default\n}\n"
    Path("counts.tgraph").write_text(counts)
    Path("more.tgraph").write_text(counts.replace("× 2", "× 3"))
    shown = run("show", "counts.tgraph", code=0)
    assert shown == "eager_0 × 2\n       1 aten.sin.default\n"
    output = run("diff", "counts.tgraph", "more.tgraph", code=1)
    assert output == "eager_0 ran 3 times, before: 2\n"


@pytest.mark.parametrize("words", [["show", "bad.tgraph"], ["diff", "bad.tgraph", "old.tgraph"]])
def test_file_that_is_not_a_graph_exits_2(files: Path, words: list[str], run: Run) -> None:
    assert "bad.tgraph:1:1: " in run(*words, code=2)
    assert "no.tgraph" in run("show", "no.tgraph", code=2)


def test_wrong_command_exits_2(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["draw", "old.tgraph"])
    assert ended.value.code == 2
    assert "show" in capsys.readouterr().err


def test_render_draws_a_graph_and_a_difference(files: Path, run: Run) -> None:
    assert run("render", "old.tgraph", "out.dot", code=0) == "out.dot\n"
    assert "relu" in Path("out.dot").read_text()
    run("render", "new.tgraph", "diff.dot", "--against", "old.tgraph", code=0)
    drawn = Path("diff.dot").read_text()
    assert "relu" in drawn
    assert "tanh" in drawn


def test_render_names_the_formats(files: Path, run: Run) -> None:
    error = run("render", "old.tgraph", "out.gif", code=2)
    assert error == (
        "pytest_torchgraph: cannot draw out.gif: the suffix must be one of .svg, .png, .pdf, .dot\n"
    )


def test_render_colours_boxes_by_cost(files: Path, run: Run) -> None:
    for heat, words in (("flops", "floating-point"), ("saved_bytes", "bytes saved")):
        run("render", "two.tgraph", "out.dot", f"--heat={heat}", code=0)
        assert f"colour: share of all {words}" in Path("out.dot").read_text()
    against = ("--against", "new.tgraph", "--heat=flops")
    output = run("render", "old.tgraph", "o.dot", *against, code=2)
    assert "--heat applies to graphs, not to a diff" in output


def test_render_draws_all_graphs_of_a_file_as_one(files: Path, run: Run) -> None:
    assert run("render", "two.tgraph", "out.dot", code=0) == "out.dot\n"
    drawn = Path("out.dot").read_text()
    assert "2 graphs: 2 compiled" in drawn
    assert "forward: " in drawn
    assert "backward: " in drawn
    run("render", "two.tgraph", "one.dot", "--graph", "backward", code=0)
    assert "forward: " not in Path("one.dot").read_text()


def test_render_needs_a_graph_and_a_difference(files: Path, run: Run) -> None:
    Path("counts.tgraph").write_text(Graph.from_text(OLD).to_text("ops"))
    output = run("render", "counts.tgraph", "out.dot", code=2)
    assert (
        "counts.tgraph:1:1: only op counts are stored, not nodes: use graph_snapshot(detail="
        in output
    )
    output = run("render", "old.tgraph", "o.dot", "--against", "old.tgraph", code=2)
    assert "nothing to draw" in output


@pytest.fixture
def git(files: Path) -> Callable[..., str]:
    """Return a function that runs git with the configuration that the page shows."""
    if shutil.which("git") is None:
        pytest.skip("git is not there")
    script = write_script(files / "bin")
    page = (Path(__file__).parents[2] / "docs" / "reference" / "command_line.md").read_text()
    shown = re.findall(r"^git config (diff\S+) '(.+)'$", page, re.M)
    assert [name for name, _ in shown] == ["diff.tgraph.textconv", "difftool.tgraph.cmd"]
    options = [word for pair in shown for word in ("-c", "=".join(pair))]

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-c", "user.name=n", "-c", "user.email=e", *options, *words],
            capture_output=True,
            text=True,
            env={**environment_with(script), "GIT_PAGER": "cat"},
        )
        return done.stdout + done.stderr

    git("init", "-q")
    Path(".gitattributes").write_text("*.tgraph diff=tgraph\n")
    git("add", "old.tgraph", ".gitattributes")
    git("commit", "-qm", "first")
    return git


def test_git_shows_and_compares_with_it(git: Callable[..., str]) -> None:
    Path("old.tgraph").write_text(NEW)
    assert "aten.tanh.default" in git("diff")
    assert "1 edit: aten.relu -> aten.tanh" in git("difftool", "--no-prompt", "--tool=tgraph")


@pytest.mark.slow("each case runs five processes", unless=["argparse"])
@pytest.mark.parametrize("module", ["argparse", "pytest_torchgraph/__init__"])
def test_code_of_the_checkout_does_not_run(
    git: Callable[..., str], files: Path, module: str
) -> None:
    path = files / f"{module}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"open({str(files / 'ran')!r}, 'w')")
    Path("old.tgraph").write_text(NEW)
    assert "aten.tanh.default" in git("diff")
    environment = environment_with(files / "bin" / "pytest-torchgraph")
    for words in (["review", "--list", "."], ["show", "old.tgraph"]):
        done = subprocess.run(
            ["pytest-torchgraph", *words], capture_output=True, text=True, env=environment
        )
        assert "aten.tanh" in done.stdout or "no pending changes" in done.stderr
    assert not (files / "ran").exists()


def test_only_the_page_that_gives_the_reason_names_python_m() -> None:
    root = Path(__file__).parents[2]
    named = {}
    folders = ("docs", "action", ".github", ".ci", "pytest_torchgraph", "examples", "benchmarks")
    pages = [path for name in folders for path in (root / name).rglob("*") if path.is_file()]
    for path in (root / "README.md", root / "CONTRIBUTING.md", *pages):
        if path.suffix in (".png", ".pyc"):
            continue
        for paragraph in path.read_text(encoding="utf-8").split("\n\n"):
            if "-m pytest_torchgraph" in paragraph:
                is_reason = "import path" in paragraph or "argparse.py" in paragraph
                named[path.relative_to(root).as_posix()] = is_reason
    assert all(named.values()), named
    assert "docs/reference/command_line.md" in named


def test_console_that_lacks_a_character_gets_it_escaped(files: Path) -> None:
    """Windows consoles do so if the output goes into a file."""
    Path("three.tgraph").write_text(OLD.replace("%relu", '%"h→/relu"'), encoding="utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest_torchgraph", "show", "three.tgraph"],
        capture_output=True,
        env=environment,
        check=False,
    )
    assert done.stderr == b""
    assert b'%"h\\u2192/relu" = aten.relu' in done.stdout


def test_commands_do_not_import_torch(files: Path) -> None:
    code = (
        "import sys; from pytest_torchgraph.cli import main;"
        "main(['show', 'old.tgraph']); main(['diff', 'old.tgraph', 'new.tgraph']);"
        "main(['render', 'old.tgraph', 'old.dot', '--heat=saved_bytes']);"
        "from pytest_torchgraph import diff; assert diff('old.tgraph', 'new.tgraph');"
        "assert diff('.', '.');"  # of the broken file
        "sys.exit('torch' in sys.modules)"
    )
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0
