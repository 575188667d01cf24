"""From DOT to a file, with renderers that work, are missing, are broken, or hang."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import time
from pathlib import Path

import graphviz
import pytest

from pytest_torchgraph.errors import TorchGraphError
from pytest_torchgraph.graph import Graph, GraphDiff
from pytest_torchgraph.render import RenderResult, draw, render

GRAPH = Graph.from_text("""torchgraph 1

forward @ aot {
  %x = input : f32[2]
  %relu = aten.relu.default(%x) : f32[2]
  return %relu
}
""")
STARTS = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF", "dot": b"digraph"}
needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="no `dot` on the PATH")
posix = pytest.mark.skipif(os.name != "posix", reason="the fake renderers are shell scripts")


@pytest.fixture
def digraph() -> graphviz.Digraph:
    digraph = graphviz.Digraph()
    digraph.edge("aa", "bb")
    return digraph


@pytest.fixture
def no_dot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@pytest.fixture
def no_pygraphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygraphviz", None)


@pytest.fixture
def fake_dot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Replace `dot` by a shell script, called as `-Tsvg -o OUT IN`."""

    def fake_dot(script: str) -> None:
        folder = tmp_path / "fake"
        folder.mkdir()
        dot = folder / "dot"
        dot.write_text(f"#!/bin/sh\n{script}\n")
        dot.chmod(dot.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.defpath}")

    return fake_dot


def left_over(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name.startswith("."))


# -- render ----------------------------------------------------------------------------------------


@needs_dot
@pytest.mark.parametrize("suffix", ["svg", "png", "pdf", "dot", "SVG"])
def test_the_suffix_names_the_format(tmp_path, suffix):
    path = render(GRAPH, tmp_path / "new" / f"g.{suffix}")

    assert path == tmp_path / "new" / f"g.{suffix}"
    assert path.read_bytes().startswith(STARTS[suffix.lower()])
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@needs_dot
def test_render_accepts_a_graph_a_difference_and_dot(tmp_path, digraph):
    for subject, expected in (
        (GRAPH, "aten.relu"),
        (GraphDiff((), ()), "no difference"),
        (digraph, "aa"),
    ):
        assert expected in render(subject, str(tmp_path / "g.svg")).read_text()


def test_unknown_suffix_is_an_error_with_the_known_suffixes(tmp_path):
    with pytest.raises(ValueError, match=r"'g\.gif'.*\.svg, \.png, \.pdf, \.dot"):
        render(GRAPH, tmp_path / "g.gif")
    assert list(tmp_path.iterdir()) == []


def test_render_without_a_renderer_names_the_install_command(tmp_path, no_dot, no_pygraphviz):
    with pytest.raises(TorchGraphError) as caught:
        render(GRAPH, tmp_path / "g.svg")

    message = str(caught.value)
    assert "dot: not found on the PATH" in message
    assert "pygraphviz: not installed" in message
    assert "pip install 'pytest-torchgraph[render]'" in message
    assert not (tmp_path / "g.svg").exists()
    assert left_over(tmp_path) == []


def test_dot_text_needs_no_renderer(tmp_path, no_dot, no_pygraphviz):
    assert "aten.relu" in render(GRAPH, tmp_path / "g.dot").read_text()


# -- draw ------------------------------------------------------------------------------------------


@needs_dot
def test_dot_is_preferred_over_pygraphviz(tmp_path, digraph):
    drawing = draw(digraph, tmp_path / "g.svg")

    assert drawing == RenderResult(tmp_path / "g.svg", "dot", "")
    assert ">aa</text>" in drawing.path.read_text()


@pytest.mark.slow("each case starts a process", unless=["svg"])
@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_pygraphviz_draws_where_dot_is_missing(tmp_path, digraph, no_dot, suffix):
    pytest.importorskip("pygraphviz", exc_type=ImportError)

    drawing = draw(digraph, tmp_path / f"g.{suffix}", timeout=120)

    assert drawing.renderer == "pygraphviz"
    assert drawing.note == "", "a working second renderer is reported as a problem"
    assert drawing.path == tmp_path / f"g.{suffix}"
    assert drawing.path.read_bytes().startswith(STARTS[suffix])


def test_draw_without_a_renderer_writes_dot_text_with_advice(
    tmp_path, digraph, no_dot, no_pygraphviz
):
    (tmp_path / "g.svg").write_text("an older picture")

    drawing = draw(digraph, tmp_path / "g.svg")

    assert drawing.renderer is None
    assert drawing.path == tmp_path / "g.dot"
    assert "aa -> bb" in drawing.path.read_text()
    assert not (tmp_path / "g.svg").exists(), "an outdated picture is left"
    assert "install Graphviz" in drawing.note
    assert str(drawing.path) in drawing.note
    assert "\n" not in drawing.note
    assert left_over(tmp_path) == []


BROKEN = {
    "crashes": ("echo out of cheese >&2; exit 3", "dot: exit status 3: out of cheese"),
    "is killed": ("kill -9 $$", "dot: killed by signal 9"),
    "prints garbage": ("echo garbage", "dot: wrote no picture"),
    "writes garbage": ('echo garbage > "$3"', "dot: wrote a file that is not a complete SVG"),
    "writes broken XML": (
        'echo "<svg><g></svg>" > "$3"',
        "dot: wrote a file that is not a complete SVG",
    ),
    "writes half": ('echo "<svg>" > "$3"', "dot: wrote a file that is not a complete SVG"),
    "writes nothing": (': > "$3"', "dot: wrote an empty file"),
    "is no program": ("", "dot: wrote no picture"),
}


@pytest.mark.slow("further cases; a few are in every run", only=["prints garbage"])
@posix
@pytest.mark.parametrize("how", ["crashes", "prints garbage", "writes half"])
def test_broken_renderer_falls_back_to_the_next_one(tmp_path, digraph, fake_dot, how):
    pytest.importorskip("pygraphviz", exc_type=ImportError)
    fake_dot(BROKEN[how][0])

    drawing = draw(digraph, tmp_path / "g.svg", timeout=120)

    assert drawing == RenderResult(tmp_path / "g.svg", "pygraphviz")
    assert ">aa</text>" in drawing.path.read_text()


@posix
@pytest.mark.parametrize(("script", "problem"), BROKEN.values(), ids=BROKEN)
def test_broken_renderer_without_a_fallback_writes_dot_text(
    tmp_path, digraph, fake_dot, no_pygraphviz, script, problem
):
    fake_dot(script)

    drawing = draw(digraph, tmp_path / "g.svg")

    assert drawing.renderer is None
    assert problem in drawing.note
    assert "dot -Tsvg" in drawing.note
    assert "aa -> bb" in drawing.path.read_text()
    assert not (tmp_path / "g.svg").exists()
    assert left_over(tmp_path) == []


@posix
def test_hanging_renderer_is_killed_with_its_child_processes(
    tmp_path, digraph, fake_dot, no_pygraphviz
):
    fake_dot(f"sleep 600 & echo $! > {tmp_path}/child; wait")

    drawing = draw(digraph, tmp_path / "g.svg", timeout=1)

    assert drawing.renderer is None
    assert "dot: not finished after 1 s" in drawing.note
    assert f"dot -Tsvg {tmp_path}/g.dot -o {tmp_path}/g.svg" in drawing.note
    child = int((tmp_path / "child").read_text())
    for _ in range(200):
        if not _runs(child):
            break
        time.sleep(0.05)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    """Return True if a process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


@posix
@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
def test_a_renderer_has_limited_memory(tmp_path, digraph, fake_dot, no_pygraphviz):
    fake_dot(f"sleep 0.5; ulimit -v > {tmp_path}/limit; ulimit -f > {tmp_path}/size; exit 1")

    draw(digraph, tmp_path / "g.svg")

    assert (tmp_path / "limit").read_text().strip() == str((1 << 30) // 1024)
    assert (tmp_path / "size").read_text().strip() != "unlimited"


@posix
def test_unstartable_renderer_writes_dot_text(tmp_path, digraph, fake_dot, no_pygraphviz):
    fake_dot("")
    (tmp_path / "fake" / "dot").write_bytes(b"\x7fELF nonsense")

    drawing = draw(digraph, tmp_path / "g.svg")

    assert "dot: cannot be started" in drawing.note
    assert drawing.path == tmp_path / "g.dot"


def test_an_unknown_suffix_gives_dot_text(tmp_path, digraph):
    drawing = draw(digraph, tmp_path / "g.gif")

    assert drawing.path == tmp_path / "g.dot"
    assert "unknown suffix '.gif', expected one of .svg, .png, .pdf, .dot" in drawing.note
    assert "aa -> bb" in drawing.path.read_text()


def test_unwritable_path_is_not_an_error(tmp_path, digraph):
    (tmp_path / "file").write_text("in the way")

    drawing = draw(digraph, tmp_path / "file" / "g.svg")

    assert drawing.renderer is None
    assert drawing.note.startswith("no picture: ")
    assert "file" in drawing.note
    assert (tmp_path / "file").read_text() == "in the way"


@posix
def test_keyboard_interrupt_kills_the_renderer(tmp_path, digraph, fake_dot, monkeypatch):
    import subprocess

    fake_dot("sleep 600")
    started = []

    def interrupted(self: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        monkeypatch.undo()
        started.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)

    with pytest.raises(KeyboardInterrupt):
        draw(digraph, tmp_path / "g.svg")

    assert started[0].poll() is not None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fake"]


@posix
def test_dot_in_the_working_directory_does_not_run(
    tmp_path, digraph, fake_dot, no_pygraphviz, monkeypatch
):
    fake_dot(f"touch {tmp_path}/ran; exit 1")
    assert "dot: exit status 1" in draw(digraph, tmp_path / "g.svg").note
    (tmp_path / "ran").unlink()
    monkeypatch.chdir(tmp_path / "fake")

    drawing = draw(digraph, tmp_path / "g.svg")

    assert "dot: not found on the PATH" in drawing.note
    assert not (tmp_path / "ran").exists()
