"""What the keys of `review` do, and what the screen shows; `test_terminal` presses real keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import graphviz
import pytest
from cli.review.left import COUNTS, FIRST, HOME, NEW, SECOND, Left

from pytest_torchgraph.cli.review.session import Session
from pytest_torchgraph.cli.review.view import clipped, columns, screen, wrapped
from pytest_torchgraph.cli.review.waiting import read_waiting
from pytest_torchgraph.render.output.rendering import RenderResult

OTHERS = [f"{HOME}/test_other[{k}][last].tgraph" for k in range(2)]
BOTH = [f"{HOME}/test_net[{k}].tgraph" for k in (36, 37)]


@pytest.fixture
def session(left: Left) -> Session:
    return Session(read_waiting(left.directory))


def press(session: Session, *keys: str) -> None:
    for key in keys:
        session.press(key)


def shown(session: Session, width: int = 80, height: int = 24) -> str:
    return "\n".join(line.text for line in screen(session, width, height))


@pytest.mark.parametrize("key", ["a", "y"])
def test_accepting_a_cause_writes_its_files_and_goes_on(
    left: Left, session: Session, updated: dict[str, bytes], key: str
) -> None:
    before = left.stored()
    press(session, "down", key)
    assert left.stored() == {**before, **{name: updated[name] for name in OTHERS}}
    assert session.message == f"2 graphs stored; 2 waiting for cause {FIRST} as well"
    assert session.cause.number == COUNTS
    assert "accepted, 2 left" in shown(session)


def test_a_file_with_two_causes_is_written_with_the_second_of_them(
    left: Left, session: Session, updated: dict[str, bytes]
) -> None:
    before = left.stored()
    press(session, "a")
    assert all(left.stored()[name] == before[name] for name in BOTH)
    assert session.cause.number == SECOND
    press(session, "a")
    assert all(left.stored()[name] == updated[name] for name in BOTH)
    press(session, "a", "a")
    assert left.stored() == updated
    assert session.message == "1 graph stored; nothing waits any more, q leaves"
    assert session.summary() == "41 graphs stored"


@pytest.mark.parametrize("key", ["s", "n"])
def test_skipping_writes_nothing_and_goes_on(left: Left, session: Session, key: str) -> None:
    before = left.stored()
    press(session, key)
    assert session.cause.number == SECOND
    assert "skipped" in shown(session)
    press(session, key, key, key)
    assert session.message == "that was the last one, q leaves"
    assert left.stored() == before


def test_what_was_accepted_or_skipped_last_is_undone(left: Left, session: Session) -> None:
    before = left.stored()
    press(session, "a", "s", "G", "end", "down", "down", "a")
    assert len(left.stored()) == 41
    press(session, "u")
    assert session.message == "undone, 1 file as before"
    assert session.cause.number == NEW
    assert f"{HOME}/test_new.tgraph" not in left.stored()
    press(session, "u")
    assert session.cause.number == SECOND
    press(session, "u")
    assert left.stored() == before
    assert session.summary() == "nothing was stored"
    press(session, "u")
    assert session.message == "nothing was accepted or skipped yet"


def test_undoing_leaves_a_file_alone_that_has_changed_meanwhile(
    left: Left, session: Session
) -> None:
    press(session, "down", "a")
    edited = left.root / OTHERS[0]
    edited.write_text("mine")
    press(session, "u")
    assert edited.read_text() == "mine"
    assert f"{edited} has changed meanwhile, and stays as it is" in session.message
    assert session.message.startswith("undone, 1 file as before; ")


def test_what_is_refused_is_said_and_not_decided(left: Left, session: Session) -> None:
    for name in OTHERS:
        (left.root / name).write_text("mine")
    press(session, "down", "a")
    assert session.cause.number == SECOND
    assert "0 graphs stored; 2 waiting for cause 1 as well; 2 refused: " in session.message
    assert "is no longer the one that was compared: run the test" in session.message
    assert all((left.root / name).read_text() == "mine" for name in OTHERS)


def test_the_graphs_of_a_cause_are_shown_one_by_one(session: Session) -> None:
    press(session, "down", "d")
    text = shown(session, height=40)
    assert text.startswith("Cause 2: graph 1 of 4: test_a.py::test_net[36]")
    assert "-  %layer.2/gelu" in text.replace("layer.1/gelu", "layer.2/gelu")
    assert "2 edits: aten.gelu -> aten.relu, aten.log -> aten.abs" in text
    press(session, "right", "l")
    assert "graph 3 of 4: test_a.py::test_other[0]" in shown(session)
    press(session, "h", "left", "left")
    assert session.message == "this is the first graph of this cause"
    press(session, "escape")
    assert shown(session).startswith("4 of 4 causes waiting in ")


def test_a_new_graph_is_shown_as_it_will_be_stored(session: Session) -> None:
    press(session, "down", "down", "down", "enter")
    assert "%layer.0/abs = aten.abs.default(%x) : f32[2, 16]" in shown(session)


def test_picture_is_drawn_from_the_texts_and_not_the_file_of_the_run(
    left: Left, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
    file = session.update.file
    theirs = file.with_name(file.name.replace(".update.json", ".svg"))
    theirs.write_text(script)
    sources = []

    def draw(digraph: graphviz.Digraph, path: Path) -> RenderResult:
        sources.append(digraph.source)
        return RenderResult(path, "dot", "")

    monkeypatch.setattr("pytest_torchgraph.render.output.rendering.draw", draw)
    drawn = session.press("o")
    assert drawn is not None
    assert drawn.suffix == ".svg"
    assert left.directory not in drawn.parents
    assert "relu" in sources[0]
    assert "script" not in sources[0]


def test_picture_of_a_new_graph_is_none_with_the_reason(session: Session) -> None:
    press(session, "down", "down", "down")
    assert session.cause.number == NEW
    assert session.press("p") is None
    assert session.message == "no picture: no two graphs differ"


@pytest.mark.parametrize("size", [(20, 6), (40, 12), (80, 24)])
def test_a_long_message_is_shown_whole(session: Session, size: tuple[int, int]) -> None:
    width, height = size
    session.message = f"no desktop here, the picture is {'directory/' * 6}test.py-0123.svg"
    lines = screen(session, width, height)
    assert len(lines) == height
    assert all(columns(line.text) <= width for line in lines)
    text = "".join(line.text for line in lines[1:-1])
    if height > 6:
        assert "".join(session.message.split()) in "".join(text.split())
    session.message = ""
    assert "no desktop" not in shown(session, width, height)


def test_the_keys_are_listed(session: Session) -> None:
    press(session, "?")
    assert "store the graphs of this cause, and go on" in shown(session)
    press(session, "?", "z")
    assert session.message == "z means nothing here; ? lists the keys"
    assert not session.ended
    press(session, "q")
    assert session.ended


def test_long_texts_are_scrolled_to_their_last_line_and_no_further(session: Session) -> None:
    first = shown(session)
    assert "more lines" in first
    press(session, "pagedown")
    assert shown(session) != first
    press(session, "end")
    last = shown(session)
    assert "test_net[9]" in last
    assert "more lines" not in last
    press(session, "space", "G")
    assert shown(session) == last
    press(session, "b", "g")
    assert shown(session) == first


@pytest.mark.slow("further cases; a few are in every run", only=["size4"])
@pytest.mark.parametrize("size", [(1, 1), (20, 5), (24, 8), (33, 12), (80, 24), (200, 60)])
def test_every_page_has_the_size_of_the_screen(session: Session, size: tuple[int, int]) -> None:
    width, height = size
    for keys in ("", "d", "end", "?", "?", "a", "s"):
        press(session, *([keys] if keys else []))
        lines = screen(session, width, height)
        assert len(lines) == height
        assert all(columns(line.text) <= width for line in lines)
        assert all(line.text.isprintable() for line in lines)


def test_on_a_narrow_screen_nothing_of_a_text_is_lost() -> None:
    text = "before  %layer.1/gelu = aten.gelu.default(%layer.0/sin) : f32[2, 16]"
    for width in (20, 33, 41, 60):
        pieces = wrapped(text, width)
        assert all(columns(piece) <= width for piece in pieces)
        assert "".join("".join(pieces).split()) == "".join(text.split())


def test_texts_of_a_run_cannot_speak_to_the_terminal() -> None:
    assert clipped("\x1b]0;title\x07\x9b31m", 40) == "?]0;title??31m"
    assert wrapped("\x1b[2J", 40) == ["?[2J"]
    assert clipped("層層層層", 5) == "層層~"
    assert columns("層層~") == 5


def test_nothing_is_left_of_the_cause_that_is_stored_by_somebody_else(
    left: Left, session: Session, updated: dict[str, bytes], changed: Callable[..., set[str]]
) -> None:
    for name, content in updated.items():
        Path(left.root / name).write_bytes(content)
    press(session, "a")
    assert session.message.startswith("all of it is stored already; nothing waits any more")
    assert left.stored() == updated
