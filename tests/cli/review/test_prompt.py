"""The prompts and actions of `review` in a terminal. One review runs in a pseudo-terminal."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import graphviz
import pytest
from cli.review.left import FIRST, HOME, Left

from pytest_torchgraph.cli import main, review
from pytest_torchgraph.render import RenderResult

OTHERS = [f"{HOME}/test_other[{k}][last].tgraph" for k in range(2)]
BOTH = [f"{HOME}/test_net[{k}].tgraph" for k in (12, 13)]
Answer = Callable[..., str]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Answer:
    """Review a directory with these answers, then end of input, and return the output."""

    def answer(left: Left, *answers: str, code: int = 1, words: tuple[str, ...] = ()) -> str:
        waiting = iter(answers)

        def ask(question: str) -> str:
            print(question, end="")
            try:
                return next(waiting)
            except StopIteration:
                raise EOFError from None

        monkeypatch.setattr("builtins.input", ask)
        monkeypatch.setattr(review, "_in_terminal", lambda: True)
        assert main(["review", str(left.directory), *words]) == code
        return capsys.readouterr().out

    return answer


def test_review_stores_the_cause_that_is_accepted(
    left: Left, answer: Answer, updated: dict[str, bytes]
) -> None:
    before = left.stored()
    output = answer(left, "n", "y", "q")
    assert left.stored() == {**before, **{name: updated[name] for name in OTHERS}}
    assert "cause 1, 1 of 4\n~ aten.gelu -> aten.relu in " in output
    assert f"2 graphs stored\n2 graphs pending until you also accept cause {FIRST}\n" in output
    assert output.endswith("\nleft: 4 causes in 15 stored graphs\n")
    assert output.count("2 graphs stored") == 1


def test_review_stores_a_file_with_two_causes_with_the_second(
    left: Left, answer: Answer, updated: dict[str, bytes]
) -> None:
    before = left.stored()
    answer(left, "y")
    assert all(left.stored()[name] == before[name] for name in BOTH)
    output = answer(left, "y", "y", "Yes", "y", code=0)
    assert left.stored() == updated
    assert output.endswith("\n6 graphs stored; nothing left\n")


def test_review_reports_refused_files_and_keeps_them(left: Left, answer: Answer) -> None:
    for name in OTHERS:
        (left.root / name).write_text("mine")
    output = answer(left, "n", "y")
    assert "0 graphs stored\n2 graphs pending until you also accept cause 1\n" in output
    assert output.count("changed after the comparison: run the test again\n") >= 2
    assert output.count("refused  ") == 2
    assert "no graph stored; left: 4 causes in 17 stored graphs, 2 cannot be accepted\n" in output
    assert all((left.root / name).read_text() == "mine" for name in OTHERS)


def test_review_shows_the_graphs_of_a_cause_one_by_one(left: Left, answer: Answer) -> None:
    output = answer(left, "d", "d", "d", "d", "d", words=("--cause=2",))
    _, first, second, third, fourth, again = output.split("]? graph ")
    assert first.partition("\n")[2] in again
    assert fourth.startswith("4 of 4")
    assert "2 edits: aten.gelu -> aten.relu, aten.log -> aten.abs" in first
    assert "-  %layer.1/gelu" in first
    assert second.startswith("2 of 4\ntest    test_a.py::test_net[13]")
    assert third.startswith("3 of 4\ntest    test_a.py::test_other[0]")


def test_review_shows_a_new_graph_as_it_will_be_stored(left: Left, answer: Answer) -> None:
    output = answer(left, "d", words=("--cause=4",))
    assert "%layer.0/abs = aten.abs.default(%x) : f32[2, 16]" in output
    assert "cause 4, 1 of 1\n" in output


@pytest.mark.parametrize("answers", [(), ("?",), ("what",)])
def test_review_explains_its_answers_and_keeps_everything(
    few: Left, answer: Answer, answers: tuple[str, ...]
) -> None:
    before = few.stored()
    output = answer(few, *answers)
    assert "store the graphs that this cause changed [y,n,d,o,q,?]? " in output
    assert ("q  quit; the remaining graphs stay pending" in output) == bool(answers)
    assert "\nno graph stored; left: 2 causes in 3 stored graphs\n" in output
    assert few.stored() == before


def test_picture_is_drawn_from_the_texts(
    few: Left, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
    for file in few.directory.glob("*.update.json"):
        file.with_name(file.name.replace(".update.json", ".svg")).write_text(script)
    drawn: dict[Path, str] = {}
    opened: list[str] = []

    def draw(digraph: graphviz.Digraph, path: Path) -> RenderResult:
        drawn[path] = digraph.source
        return RenderResult(path, "dot", "")

    monkeypatch.setattr("pytest_torchgraph.render.output.draw", draw)
    monkeypatch.setattr("webbrowser.open", lambda address: not opened.append(address))
    monkeypatch.setenv("BROWSER", "true")
    output = answer(few, "o")
    [(path, source)] = drawn.items()
    assert f"opened {path}\n" in output
    assert opened == [path.resolve().as_uri()]
    assert path.suffix == ".svg"
    assert few.directory not in path.parents
    assert "abs" in source
    assert "script" not in source
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert "no desktop was found: open " in answer(few, "o")
    assert "no picture: no graph differs\n" in answer(few, "n", "o")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
@pytest.mark.parametrize("end", [b"\x04", b"\x03"], ids=["control-d", "control-c"])
def test_review_runs_in_a_pseudo_terminal(few: Left, updated: dict[str, bytes], end: bytes) -> None:
    import pty

    process, terminal = pty.fork()
    if not process:
        # A shell starts background jobs with SIGINT ignored, which a child inherits.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        command = [sys.executable, "-m", "pytest_torchgraph", "review", str(few.directory)]
        os.execve(sys.executable, command, {**os.environ, "TERM": "dumb"})
    seen = b""
    answers = [b"y\n", end]
    while True:
        # A signal between the question and the `read` in `input` interrupts nothing.
        while not answers and end == b"\x03" and not select.select([terminal], [], [], 1)[0]:
            os.write(terminal, end)
        try:
            read = os.read(terminal, 4096)
        except OSError:  # Linux raises at the end of the process
            read = b""
        if not read:
            break
        seen += read
        if answers and seen.count(b"[y,n,d,o,q,?]? ") > 2 - len(answers):
            os.write(terminal, answers.pop(0))
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 1, seen
    assert b"2 graphs stored\r\n" in seen
    assert seen.endswith(b"\r\nleft: 1 cause in 1 stored graph\r\n")
    assert {name: few.stored()[name] for name in OTHERS} == {n: updated[n] for n in OTHERS}
