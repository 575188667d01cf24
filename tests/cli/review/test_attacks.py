"""Hostile artifacts and links from another branch or CI run do not harm the checkout."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from projects import GRAPHS

from pytest_torchgraph.cli import main
from pytest_torchgraph.cli.review import prompt
from pytest_torchgraph.cli.review.waiting import read_pending
from pytest_torchgraph.graph import problem_finding
from pytest_torchgraph.snapshot.pending import place_key

posix = pytest.mark.skipif(os.name != "posix", reason="links and FIFOs need rights on Windows")
pytestmark = posix

HOME = "__snapshots__/test_a"
GOOD = f"{HOME}/test_good.tgraph"
BAD = f"{HOME}/test_bad.tgraph"
LIE = "1 edit: nothing to see here"

_GRAPHS: dict[str, Any] = {}
exec(GRAPHS, _GRAPHS)
graph_text: Callable[..., str] = _GRAPHS["text"]
RELU, GELU = graph_text("relu"), graph_text("gelu")


class Place:
    """A checkout, artifacts, and files outside both that must not change."""

    def __init__(self, home: Path):
        self.root, self.artifacts, self.outside = home / "repo", home / "art", home / "home"
        for directory in (self.root / HOME, self.artifacts, self.outside / "deep"):
            directory.mkdir(parents=True)
        (self.root / "test_a.py").write_text("def test_good(): pass\n")
        (self.root / GOOD).write_text(RELU)
        (self.outside / "notes.txt").write_text(RELU)
        (self.outside / "notes.tgraph").write_text(RELU)
        (self.root / ".git").mkdir()
        (self.root / ".git" / "config").write_text(RELU)
        self.leave("good", GOOD, RELU, GELU)

    def leave(self, name: str, target: str, old: str | None, new: str | None, **more: Any) -> Path:
        """Write an artifact in the format of version 1, with false descriptions."""
        digest = None if old is None else sha256(old.encode("utf-8", "surrogateescape")).hexdigest()
        lie = {**problem_finding(LIE).to_json(), "source": "lie.py:1"}
        data = {
            "torchgraph_update": 1,
            "test": "test_a.py::test_good",
            "target": target,
            "text": new,
            "digests": {target: digest},
            "refused": "",
            "headline": LIE,
            "details": [LIE],
            "accept": "",
            "difference": {"problem": LIE, "releases": None, "findings": [lie], "left": 0},
            **more,
        }
        file = self.artifacts / f"{name}.update.json"
        file.write_text(json.dumps(data))
        return file

    def protected(self) -> dict[str, object]:
        """Return everything outside the checkout and in its `.git`, and all links."""
        found: dict[str, object] = {}
        for top in (self.outside, self.root):
            for path in sorted(top.rglob("*")):
                name = path.relative_to(top.parent).as_posix()
                if path.is_symlink():
                    found[name] = os.readlink(path)
                elif top == self.outside or ".git" in path.parts:
                    found[name] = path.read_bytes() if path.is_file() else "directory"
        return found

    @property
    def good(self) -> str:
        return (self.root / GOOD).read_text()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path)
    monkeypatch.chdir(made.root)
    return made


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process, and return its exit code and its output."""

    def run(*words: object) -> tuple[int, str]:
        code = main([str(word) for word in words])
        return code, "".join(capsys.readouterr())

    return run


def link(place: Place, name: str, to: object) -> None:
    path = place.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(str(to).replace("HOME", str(place.outside)))


FILE_LINKS: dict[str, tuple[str, str | None]] = {
    "file": ("HOME/notes.tgraph", RELU),
    "dangling": ("HOME/new.tgraph", None),
    "file in .git": ("../../.git/config", RELU),
    "source file": ("../../test_a.py", "def test_good(): pass\n"),
}


@pytest.mark.parametrize("kind", FILE_LINKS)
def test_accept_replaces_a_link_at_the_file_itself(place: Place, run: Run, kind: str) -> None:
    to, old = FILE_LINKS[kind]
    link(place, BAD, to)
    place.leave("bad", BAD, old, GELU)
    before = place.protected()
    del before[f"repo/{BAD}"]
    code, said = run("review", "--accept", str(place.artifacts))
    assert code == 0, said
    assert (place.root / BAD).read_text() == place.good == GELU
    assert place.protected() == before
    assert (place.root / "test_a.py").read_text() == "def test_good(): pass\n"


LINKS = {
    "directory": ("__snapshots__/out", "HOME", "__snapshots__/out/new.tgraph", None),
    "directory above": ("sub", "HOME", "sub/__snapshots__/new.tgraph", None),
    "to .git": ("__snapshots__/out", "../.git", "__snapshots__/out/new.tgraph", None),
}


@pytest.mark.parametrize("kind", LINKS)
def test_accept_refuses_a_link_out_of_the_root_and_stores_the_rest(
    place: Place, run: Run, kind: str
) -> None:
    name, to, target, old = LINKS[kind]
    link(place, name, to)
    file = place.leave("bad", target, old, GELU)
    before = place.protected()
    code, said = run("review", "--accept", str(place.artifacts))
    assert code == 2
    assert said.count(f"! {file}: cannot store {target}: ") == 1
    assert place.good == GELU
    assert place.protected() == before
    code, said = run("review", "--list", place.artifacts)
    assert code == 2
    assert said.count(f"!  {file}: cannot store {target}: ") == 1


@pytest.mark.parametrize(
    "target",
    [
        ".git/__snapshots__/x.tgraph",
        ".GIT/__snapshots__/x.tgraph",
        ".git./__snapshots__/x.tgraph",
        ".g\u200cit/__snapshots__/x.tgraph",
        "GIT~1/__snapshots__/x.tgraph",
        ".git::$INDEX_ALLOCATION/__snapshots__/x.tgraph",
        "sub/.git/__snapshots__/x.tgraph",
        ".hg/__snapshots__/x.tgraph",
        "__snapshots__/.git/x.tgraph",
    ],
)
def test_accept_refuses_version_control(place: Place, run: Run, target: str) -> None:
    file = place.leave("bad", target, None, GELU)
    before = place.protected()
    code, said = run("review", "--accept", str(place.artifacts))
    assert code == 2
    assert said.count(f"! {file}: cannot store") == 1
    assert "is inside a version control directory" in said
    assert place.protected() == before
    assert place.good == GELU


TEXTS = {
    "no graph at all": "torchgraph 1\nanything at all\n",
    "cut off": GELU[:-10],
    "a conflict": f"<<<<<<< ours\n{GELU}",
    "of a later version": GELU.replace("torchgraph 1", "torchgraph 99"),
    "a lone surrogate": GELU.replace("gelu", "ge\ud800lu"),
    "a null character": GELU.replace("gelu", "ge\0lu"),
    "an unknown value": GELU.replace("(%x)", "(%y)"),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_incomplete_document_is_never_stored(place: Place, run: Run, kind: str) -> None:
    place.leave("bad", BAD, None, TEXTS[kind])
    worse = BAD.replace("bad", "worse")
    place.leave("worse", worse, RELU, TEXTS[kind], refused="an obsolete file")
    for words in (["--list"], ["--format=markdown"], ["--format=json"], ["--accept"]):
        code, said = run("review", *words, place.artifacts)
        assert code == 2
        assert "bad.update.json" in said
        assert "worse.update.json" in said
        assert "aten.gelu" in said
    assert place.good == GELU
    assert not (place.root / BAD).exists()


def _fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _link_to(target: str) -> Callable[[Path], None]:
    def make(file: Path) -> None:
        file.unlink()
        file.symlink_to(target)

    return make


def _socket(file: Path) -> None:
    file.unlink()
    here = Path.cwd()
    os.chdir(file.parent)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(file.name)
    os.chdir(here)


def _huge(file: Path) -> None:
    os.truncate(file, 2**40)


def _directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _bytes(content: bytes) -> Callable[[Path], None]:
    def make(file: Path) -> None:
        file.write_bytes(content)

    return make


def _with(old: str, new: str) -> Callable[[Path], None]:
    def make(file: Path) -> None:
        file.write_text(file.read_text().replace(old, new))

    return make


FILES: dict[str, Callable[[Path], None]] = {
    "deep lists": _bytes(b"[" * 200_000),
    "deep findings": _with('"details": [', f'"details": {"[" * 100_000}'),
    "FIFO": _fifo,
    "link to /dev/zero": _link_to("/dev/zero"),
    "socket": _socket,
    "huge": _huge,
    "directory": _directory,
    "not UTF-8": _bytes(b"\xff\xfe{}"),
    "a list": _bytes(b'["torchgraph_update"]'),
    "a large number": _with('"refused": ""', f'"refused": {"9" * 10_000}'),
    "surrogate in the target": _with("test_bad.tgraph", "\\ud800.tgraph"),
    "surrogate in the old text": _with('"refused"', '"stored": "\\ud800", "refused"'),
    "a null character in the target": _with("test_bad.tgraph", "a\\u0000.tgraph"),
}


@pytest.mark.parametrize("kind", FILES)
def test_unreadable_file_is_refused_and_the_rest_is_stored(
    place: Place, run: Run, kind: str
) -> None:
    file = place.leave("bad", BAD, None, GELU)
    FILES[kind](file)
    code, said = run("review", "--list", place.artifacts)
    assert code == 2
    assert sum(str(file) in line for line in said.splitlines()) == 1
    assert "aten.relu -> aten.gelu" in said
    code, said = run("review", "--accept", str(place.artifacts))
    assert code == 2
    assert sum(str(file) in line for line in said.splitlines()) == 1
    assert place.good == GELU
    assert not (place.root / BAD).exists()


def test_every_bad_file_is_reported(place: Place, run: Run) -> None:
    bad = [*place.artifacts.glob("good*"), place.leave("bad", BAD, None, GELU)]
    for file in bad:
        file.write_bytes(b"\xff")
    for words in (["review", "--accept"], ["review", "--list"], ["review"]):
        code, said = run(*words, place.artifacts)
        assert code == 2
        assert all(said.count(str(file)) == 1 for file in bad)
        assert "stored already" not in said


def _stored_fifo(path: Path) -> None:
    os.mkfifo(path)


def _stored_huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


def _stored_zero(path: Path) -> None:
    path.parent.joinpath("zero.tgraph").symlink_to("/dev/zero")
    os.mkfifo(path)


@pytest.mark.parametrize("make", [_stored_fifo, _stored_huge, _stored_zero, Path.mkdir])
def test_unreadable_stored_file_is_refused_and_kept(
    place: Place, run: Run, make: Callable[[Path], None]
) -> None:
    path = place.root / BAD
    make(path)
    file = place.leave("bad", BAD, RELU, GELU)
    before = path.lstat()[:7]  # not the time of the last access
    code, said = run("review", "--accept", str(place.artifacts))
    assert code == 2
    assert said.count(f"! {file}: cannot store {BAD}: cannot read the stored graph") == 1
    assert place.good == GELU
    assert path.lstat()[:7] == before
    for words in (["--list"], ["--format=markdown"], ["--format=json"]):
        code, said = run("review", *words, place.artifacts)
        assert code == 2
        assert str(file) in said


def test_artifact_descriptions_are_not_shown(
    place: Place, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place.leave("bad", BAD, None, GELU)
    for suffix in (".txt", ".diff", ".svg"):
        (place.artifacts / f"good{suffix}").write_text(f"{LIE}\n" * 5)
    for words in (
        ["review", "--list"],
        ["review", "--format=markdown"],
        ["review", "--format=json"],
        ["review", "--accept", "--dry-run"],
    ):
        _, said = run(*words, place.artifacts)
        assert LIE not in said
        assert "lie.py" not in said
        assert "aten.relu -> aten.gelu" in said
        assert "no graph is stored" in said
    answers = iter("ddondq")
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    monkeypatch.setattr(prompt, "_draw", lambda _: place.artifacts / "drawn.svg")
    monkeypatch.setattr("webbrowser.open", lambda _: False)
    prompt.ask(read_pending(place.artifacts))
    said = capsys.readouterr().out
    assert LIE not in said
    assert "lie.py" not in said
    assert "-  %layer.0/relu = aten.relu.default(%x) : f32[2, 16]" in said


def test_text_with_equal_graphs_is_reported_as_equal(place: Place, run: Run) -> None:
    place.leave("good", GOOD, RELU, RELU.replace("layer.0/relu", "layer.0/r"))
    code, said = run("review", "--accept", str(place.artifacts))
    assert code == 0
    assert f"updated  {GOOD}: only names, line order" in said


def test_removal_is_reported_as_a_removal(place: Place, run: Run) -> None:
    other = BAD.replace(".tgraph", "@torch-2.15.tgraph")
    for name in (BAD, other):
        (place.root / name).write_text(RELU)
    digest = sha256(RELU.encode()).hexdigest()
    place.leave("bad", BAD, RELU, None, digests={BAD: digest, other: digest})
    removes = f"removes the stored graph {BAD}, which {other} replaces"
    assert removes in run("review", "--list", place.artifacts)[1].replace("\n", " ")
    code, said = run("review", "--accept", str(place.artifacts))
    assert code == 0
    assert f"removed  {BAD}: {removes}: only names, line order" in said
    assert not (place.root / BAD).exists()
    assert (place.root / other).read_text() == RELU


def test_link_created_during_a_review_is_refused(place: Place) -> None:
    place.leave("bad", BAD, None, GELU)
    waiting = read_pending(place.artifacts)
    directory = place.root / HOME
    directory.rename(place.root / "was")
    directory.symlink_to(place.outside)
    (place.outside / "test_good.tgraph").write_text(RELU)
    before = place.protected()
    done = prompt.accept(waiting, waiting.updates)
    assert not done.written
    assert len(done.refused) == 2
    assert place.protected() == before


def test_root_that_is_a_link_does_not_widen_the_root(
    place: Place, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "linked").symlink_to(place.root)
    code, _ = run("review", "--accept", str(place.artifacts), f"--root={tmp_path / 'linked'}")
    assert code == 0
    assert place.good == GELU


@pytest.mark.parametrize("test", ["", "/etc/passwd", "x" * 5000])
def test_artifact_cannot_choose_the_root_or_stop_the_others(
    place: Place, run: Run, monkeypatch: pytest.MonkeyPatch, test: str
) -> None:
    file = place.leave("bad", BAD, None, GELU, test=f"{test}::test_x")
    below = place.root / "sub"
    below.mkdir()
    (place.root / "pytest.ini").touch()
    monkeypatch.chdir(below)
    for words in (["--list"], ["--accept"]):
        code, said = run("review", *words, str(place.artifacts))
        assert code == 2
        assert said.count(f"{file}: cannot store {BAD}: ") == 1
    assert not (place.root / BAD).exists()
    assert f"updated  {GOOD}: 1 edit: aten.relu -> aten.gelu" in said
    assert place.good == GELU
    assert not (below / "__snapshots__").exists()


@pytest.fixture
def voters(place: Place) -> Place:
    """Add updates whose names exist in the parent of the checkout, and none below the checkout."""
    place.leave("bad", "home/__snapshots__/x.tgraph", None, GELU, test="repo/test_a.py::test_x")
    for name in ("art", "home"):
        place.leave(name, name, None, None, test=f"{name}::t", digests={}, refused="obsolete")
    return place


@pytest.mark.parametrize("ini", ["repo/pytest.ini", "pytest.ini", ""])
def test_root_is_that_of_pytest_and_not_above_the_work_tree(
    voters: Place, run: Run, ini: str
) -> None:
    if ini:
        (voters.root.parent / ini).touch()
    before = voters.protected()
    code, said = run("review", "--accept", voters.artifacts)
    assert code == 2
    assert f"{voters.root} has no test file 'repo/test_a.py'" in said
    assert voters.good == GELU
    assert voters.protected() == before


def test_root_without_a_work_tree_is_that_of_pytest(voters: Place, run: Run) -> None:
    (voters.root / ".git").rename(voters.root.parent / "git")
    (voters.root.parent / "pytest.ini").touch()
    (voters.artifacts / "good.update.json").unlink()
    code, _ = run("review", "--accept", voters.artifacts)
    assert code == 2  # the refused updates
    assert (voters.outside / "__snapshots__/x.tgraph").read_text() == GELU


def test_explicit_root_is_not_limited(voters: Place, run: Run) -> None:
    run("review", "--accept", voters.artifacts, f"--root={voters.root.parent}")
    assert (voters.outside / "__snapshots__/x.tgraph").read_text() == GELU


def test_unreadable_artifact_is_reported_with_an_escaped_name(place: Place, run: Run) -> None:
    (place.artifacts / "good.update.json").rename(place.artifacts / "\x1b[2J\x07.update.json")
    os.truncate(place.artifacts / "\x1b[2J\x07.update.json", 3)
    for words in (["review", "--accept"], ["review", "--list"], ["review"]):
        code, said = run(*words, place.artifacts)
        assert code == 2
        assert "\x1b" not in said
        assert "\x07" not in said


def source_of(place: Place, new: str) -> dict[str, str]:
    """Return the sources of an artifact that changes RELU to `new`, with a hostile line."""
    place.leave("good", GOOD, RELU, new)
    (update,) = read_pending(place.artifacts).updates
    assert update.difference.comparison is not None
    (finding,) = update.difference.comparison.diff.findings
    return {place_key(finding, finding.places[0]): "model.py:1: x = y\x1b[2J|`<b>\n# accepted"}


@pytest.mark.parametrize("same", [True, False])
def test_artifact_source_line_is_shown_only_for_the_same_change(
    same: bool, place: Place, run: Run
) -> None:
    sources = source_of(place, GELU if same else graph_text("abs"))
    place.leave("good", GOOD, RELU, GELU, torchgraph_update=2, stored=RELU, sources=sources)
    code, said = run("review", place.artifacts, "--list")
    assert code == 1
    assert ("model.py:1: x = y?[2J|`<b> # accepted (recorded by the run)" in said) is same
    assert ("model.py" in said) is same
    assert "aten.relu -> aten.gelu" in said
    _, said = run("review", place.artifacts, "--format=markdown")
    assert len([line for line in said.splitlines() if line.startswith("| 1 |")]) == 1
    assert "\x1b" not in said
    assert ("(recorded by the run)" in said) is same


@pytest.mark.parametrize(
    "sources",
    [
        [],
        {"a": 1},
        {"a": "\ud800"},
    ],
)
def test_artifact_with_invalid_sources_is_refused(sources: Any, place: Place, run: Run) -> None:
    place.leave("good", GOOD, RELU, GELU, torchgraph_update=2, stored=RELU, sources=sources)
    code, said = run("review", place.artifacts, "--list")
    assert code == 2
    assert "good.update.json is incomplete, or was not written by pytest-torchgraph" in said


def test_artifact_cannot_hide_a_change_behind_another_on_the_same_line(
    place: Place, run: Run
) -> None:
    other = graph_text("abs")
    lines = {key: "one" for new in (GELU, other) for key in source_of(place, new)}
    for name, target, new in (("good", GOOD, GELU), ("bad", BAD, other)):
        place.leave(name, target, RELU, new, torchgraph_update=2, stored=RELU, lines=lines)
    _, said = run("review", place.artifacts, "--list")
    assert said.startswith("2 causes in 2 stored graphs")


@pytest.mark.parametrize("test", ["test_a.py", "test_a.py::test_good"])
@pytest.mark.parametrize(
    "target",
    [
        "b/__snapshots__/test_b/test_b.tgraph",
        "__snapshots__/test_a/test_b.tgraph",
        "__snapshots__/test_a/test_goods.tgraph",
    ],
)
def test_update_that_names_another_test_is_not_chosen_by_it(
    place: Place,
    run: Run,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: Any,
    target: str,
    test: str,
) -> None:
    """Otherwise `--test` stores a graph of another test, and the question names only the test."""
    file = place.root / target
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(RELU)
    place.leave("bad", target, RELU, GELU)
    run("review", "--accept", str(place.artifacts), f"--test={test}")
    assert file.read_text() == RELU
    monkeypatch.setattr("builtins.input", lambda _: "n")
    capsys.readouterr()
    prompt.ask(read_pending(place.artifacts))
    assert f"  test_a.py::test_good: {target}" in capsys.readouterr().out


def test_update_with_many_digests_is_refused(place: Place) -> None:
    """Each is a file to read."""
    digests = {f"{'./' * n}{BAD}": "0" * 64 for n in range(1, 100)} | {BAD: None}
    place.leave("bad", BAD, None, GELU, digests=digests)
    pending = read_pending(place.artifacts)
    assert any("it has digests of 100 files" in line for line in pending.unreadable)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("pytest.ini", b"\xff"),
        ("setup.cfg", b"[pytest]\n"),
        ("pyproject.toml", b"a=" + b"[" * 100_000),
    ],
)
def test_ini_file_that_pytest_cannot_read_is_one_line(
    place: Place, run: Run, name: str, content: bytes
) -> None:
    for each in ("pytest.ini", "pyproject.toml", "setup.cfg", "tox.ini"):
        (place.root / each).unlink(missing_ok=True)
    (place.root / name).write_bytes(content)
    code, said = run("review", "--list", str(place.artifacts))
    assert code == 2
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("test", "name", "shown"),
    [
        ("test_a", "test_a", False),
        ("TestNet::test_a", "TestNet.test_a", False),
        ("test_a[cpu]", "test_a[cpu]", False),
        ("test_a[cpu]", "test_a[cuda]", True),
        ("test_a", "test_a[forward]", True),
        ("test_a[Ä]", "test_a[-]-0123456789", True),
        ("test_a::é", "test_b", True),
    ],
)
def test_question_names_the_file_unless_the_test_does(
    place: Place, run: Run, capsys: Any, monkeypatch: Any, test: str, name: str, shown: bool
) -> None:
    target = f"__snapshots__/test_a/{name}.tgraph"
    place.leave("one", target, None, GELU, test=f"test_a.py::{test}")
    monkeypatch.setattr("builtins.input", lambda _: "n")
    prompt.ask(read_pending(place.artifacts))
    output = capsys.readouterr().out
    assert f"  test_a.py::{test}\n" in output or shown
    assert (f": {target}\n" in output) == shown
    code, _ = run("review", "--accept", str(place.artifacts), f"--test=test_a.py::{test}")
    assert (code == 0) == (name.partition("[")[0] in ("test_a", "TestNet.test_a"))


@pytest.mark.parametrize("name", ["test_good@torch-2.15", "test_good.other"])
def test_new_file_is_not_compared_with_another_graph(place: Place, run: Run, name: str) -> None:
    """Otherwise a decoy of the branch makes any new graph one without a difference."""
    decoy = "b/__snapshots__/test_b/decoy.tgraph"
    for other in (decoy, BAD):
        (place.root / other).parent.mkdir(parents=True, exist_ok=True)
        (place.root / other).write_text(GELU)
        digests = {f"{HOME}/{name}.tgraph": None, other: sha256(GELU.encode()).hexdigest()}
        place.leave("new", f"{HOME}/{name}.tgraph", None, GELU, digests=digests, stored=GELU)
        code, said = run("review", place.artifacts, "--list")
        assert code == 2
        assert f"{other!r} stores another graph than" in said
        assert "equal" not in said


def test_comparison_with_another_release_is_named(place: Place, run: Run) -> None:
    old, new = (f"{HOME}/test_good@torch-2.{minor}.tgraph" for minor in (14, 15))
    (place.root / old).write_text(GELU)
    digests = {new: None, old: sha256(GELU.encode()).hexdigest()}
    place.leave("good", new, None, GELU, torchgraph_update=2, digests=digests, stored=GELU)
    _, said = run("review", place.artifacts, "--list")
    assert f"so the graphs are equal; compared with {old}" in said
    _, said = run("review", place.artifacts, "--accept")
    assert f"so the graphs are equal; compared with {old}" in said


@pytest.mark.parametrize("length", [150, 238])
def test_long_name_of_another_release_is_of_the_same_graph(place: Place, length: int) -> None:
    """A name of 255 bytes is cut to make room for the release, and ends with a digest."""
    stems = "x" * length, f"{'x' * (length - 12)}-0123456789@torch-2.15"
    old, new = (f"{HOME}/{stem}.tgraph" for stem in stems)
    (place.root / old).write_text(RELU)
    place.leave("good", new, None, GELU, digests={new: None, old: "0" * 64})
    assert (read_pending(place.artifacts).unreadable == ()) == (length == 238)


@pytest.mark.parametrize("ends", ["aa bb", "-0123456789 -0123456780"])
def test_file_of_another_test_with_a_long_name_is_not_compared(place: Place, ends: str) -> None:
    old, new = (f"{HOME}/{'x' * 200}{end}.tgraph" for end in ends.split())
    (place.root / old).write_text(GELU)
    digests = {new: None, old: sha256(GELU.encode()).hexdigest()}
    place.leave("new", new, None, GELU, digests=digests)
    (problem,) = read_pending(place.artifacts).unreadable
    assert "stores another graph than" in problem


@pytest.mark.parametrize("target", [f"./{GOOD}", GOOD.replace("/", "//")])
def test_file_has_one_spelling(place: Place, run: Run, target: str) -> None:
    """Otherwise two updates of one file are no conflict, and the first is stored."""
    place.leave("another", target, RELU, RELU)
    code, said = run("review", "--accept", place.artifacts)
    assert f"{target!r} is not the path of a stored graph" in said
    assert (code, place.good) == (2, GELU)


@pytest.mark.parametrize(
    "more",
    [
        {"refused": "nothing to see here"},
        {"test": "test_a.py::other"},
        {"test": "test_a.py::test_good[other]"},
    ],
)
def test_equal_update_of_a_stranger_does_not_speak_for_the_other(
    place: Place, run: Run, more: dict[str, str]
) -> None:
    place.leave("a", GOOD, RELU, GELU, **more)
    _, said = run("review", place.artifacts, "--list")
    assert "nothing to see" not in said
    code, _ = run("review", "--accept", place.artifacts, "--test=test_a.py::test_good")
    assert code == 0
    assert place.good == GELU


def test_equal_update_does_not_take_the_name_of_a_test(place: Place, run: Run) -> None:
    """No name of the two tests is that of the file."""
    target = f"{HOME}/test_good[-]-0123456789.tgraph"
    (place.root / target).write_text(RELU)
    for name, test in (("a", "[ö]"), ("b", "[ä]")):
        place.leave(name, target, RELU, GELU, test=f"test_a.py::test_good{test}")
    code, _ = run("review", "--accept", place.artifacts, "--test=test_a.py::test_good[ä]")
    assert code == 0


def test_update_of_a_changed_file_does_not_speak_for_the_others(place: Place, run: Run) -> None:
    """Both updates have the same text, and say that the same text was stored."""
    (place.root / BAD).write_text("changed")
    digests = {BAD: sha256(RELU.encode()).hexdigest()}
    place.leave("a", BAD, None, GELU, digests=digests)
    place.leave("good", GOOD, RELU, GELU)
    _, said = run("review", place.artifacts, "--list")
    assert f"{BAD} changed after the comparison" in said
    assert "aten.relu -> aten.gelu" in said


def test_source_lines_of_equal_changes_are_each_shown(place: Place, run: Run) -> None:
    (key,) = source_of(place, GELU)
    (place.root / BAD).write_text(RELU)
    more = {"torchgraph_update": 2, "stored": RELU}
    for name, target, line in (("a", BAD, "a.py:1: harmless"), ("b", GOOD, "b.py:2: evil")):
        place.leave(name, target, RELU, GELU, sources={key: line}, **more)
    place.leave("good", GOOD, RELU, GELU, sources={key: "c.py:3: third"}, **more)
    _, said = run("review", place.artifacts, "--format=json")
    (cause,) = json.loads(said)["causes"]
    lines = ("a.py:1: harmless", "b.py:2: evil", "c.py:3: third")
    assert cause["sources"] == [f"{line} (recorded by the run)" for line in lines]


def test_stored_file_that_becomes_unreadable_does_not_stop_the_others(place: Place) -> None:
    """A link to /proc/kmsg can be read once."""
    (place.root / BAD).write_text(RELU)
    place.leave("bad", BAD, RELU, GELU)
    pending = read_pending(place.artifacts)
    (place.root / BAD).unlink()
    _stored_fifo(place.root / BAD)
    states = pending.states
    assert states[GOOD][0] == "waits"
    assert states[BAD][0] == "refused"
    assert "not a regular file" in states[BAD][1]
