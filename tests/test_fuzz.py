"""A small run of `fuzz.py`, and what it reports."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("limits of memory and time are those of Linux", allow_module_level=True)

import fuzz
from fuzz import READERS, as_page, mutated, page_of, texts, update_of, wrong_lines

from pytest_torchgraph.graph import parse_text

SCRIPT = Path(fuzz.__file__)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True)


@pytest.mark.slow("400 mutations; test_readers_take_what_is_mutated reads the files themselves")
def test_no_mutation_makes_a_reader_fall() -> None:
    result = run("0", "400")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "0 falls" in result.stdout


@pytest.mark.parametrize("reader", READERS)
def test_readers_take_what_is_mutated(
    reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise every mutation of this file would end in the same error."""
    (tmp_path / "root").mkdir()
    monkeypatch.chdir(tmp_path / "root")
    read, _, seed_of = READERS[reader]
    seed = seed_of(fuzz.FOLDED)
    rng = random.Random(0)
    rng.sample = lambda words, _: [words[0]]  # type: ignore[method-assign]
    read(rng, seed, seed)


def test_mutations_are_often_readable_and_repeatable() -> None:
    for text in texts():
        assert parse_text(text)
    made = [mutated(random.Random(n), fuzz.FACTS, texts()) for n in range(40)]
    assert made == [mutated(random.Random(n), fuzz.FACTS, texts()) for n in range(40)]
    assert len({*made}) > 30
    assert update_of(fuzz.FACTS)
    assert "data-part" in as_page(page_of("x"))


def test_mutations_of_json_depend_only_on_their_number() -> None:
    """No mutation changes a list that a later one inserts."""
    before = repr(fuzz.VALUES)
    for number in range(2000):
        fuzz.mutated_json(random.Random(number), page_of("x"), ["x"])
    assert repr(fuzz.VALUES) == before


def test_falls_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_outside(_rng: random.Random, _old: str, _new: str) -> None:
        Path("../evil").touch()
        print("\x1b")
        raise KeyError("not documented")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(READERS, "graph", (write_outside, READERS["graph"][1], str))
    problem = fuzz.problem_of(0, ["graph"], texts()[:1], tmp_path)
    assert "KeyError: 'not documented'" in problem
    assert "output: '\\x1b'" in problem
    assert "outside the root" in problem
    assert wrong_lines("a\n ::b\n##[c]") == {"output: ' ::b'\n", "output: '##[c]'\n"}


@pytest.mark.slow("a child that is killed; test_falls_are_reported has the other falls")
def test_a_child_without_time_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(_rng: random.Random, _old: str, _new: str) -> None:
        while True:
            pass

    monkeypatch.setitem(READERS, "graph", (wait, READERS["graph"][1], str))
    monkeypatch.setattr(fuzz, "SECONDS", 1)
    (problem,) = fuzz.read_block(range(3, 4), ["graph"], texts()[:1], tmp_path)
    assert problem.startswith("3 graph: signal ")


def test_mutation_with_a_lone_surrogate_in_a_baseline_is_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = fuzz.BASELINE.replace("a.py:3 f: print", "a.py:3 f: \\ud800")
    READERS["baseline"][0](random.Random(0), fuzz.BASELINE, text)
    assert "\\ud800" in Path("o.json").read_text()
