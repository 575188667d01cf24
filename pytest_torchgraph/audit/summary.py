"""The summary of an audit: totals, then the causes, those of most tests first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..words import counted

if TYPE_CHECKING:
    from .facts import Cause, CauseKind, TestFacts

MOST = 10
"""How many causes are listed, so that the summary fits on a screen; `-v` lists all."""

INDENT = 11
"""How many columns stand before a cause, for the number of its tests."""

_HAPPENED: dict[CauseKind, str] = {
    "break": "graph break at {place}: {code}",
    "recompile": "compiled again: {place}",
    "limit": "runs eagerly from the recompile limit on: {place}",
    "eager": "ran eagerly: {place}{text}",
    "nothing": "compile nothing: {place}{text}",
}


@dataclass
class CauseOverTests:
    """A cause and the tests that have it.

    Attributes:
        cause: as it is in the first of them.
        tests: the ids of the tests.
        times: how often it happened in all of them.
        without_graph: how many of them compile nothing.
    """

    cause: Cause
    tests: list[str] = field(default_factory=list)
    times: int = 0
    without_graph: int = 0

    @property
    def rank(self) -> tuple[int, int, int, str]:
        """What comes first: tests that compile nothing, then what most tests have."""
        return -self.without_graph, -len(self.tests), -self.times, self.cause.key


def causes_over_tests(facts: Mapping[str, TestFacts]) -> list[CauseOverTests]:
    """The causes of all tests, each once, those of most tests first."""
    found: dict[str, CauseOverTests] = {}
    for test, of_test in facts.items():
        for cause in of_test.causes:
            entry = found.setdefault(cause.key, CauseOverTests(cause))
            entry.tests.append(test)
            entry.times += cause.count
            entry.without_graph += not of_test.compiles
    return sorted(found.values(), key=lambda each: each.rank)


def summary_lines(
    facts: Mapping[str, TestFacts], tests: int, *, width: int = 80, verbose: bool = False
) -> Iterator[str]:
    """The lines of the summary.

    Args:
        facts: of each test that calls compiled code, by its id.
        tests: how many tests ran.
        width: of the terminal; where a cause does not fit beside its tests, they are on a line of
            their own.
        verbose: whether all causes are listed.
    """
    if not facts:
        yield f"none of {counted(tests, 'test')} calls anything that was given to torch.compile"
        return
    yield _totals(facts, tests)
    causes = causes_over_tests(facts)
    shown = causes if verbose else causes[:MOST]
    for each in shown:
        yield from over_tests(_described(each), each.tests, width)
    if len(causes) > len(shown):
        more = counted(len(causes) - len(shown), "more cause")
        yield f"{'':{INDENT}}and {more} (-v lists them)"
    yield _cost(facts)


def _totals(facts: Mapping[str, TestFacts], tests: int) -> str:
    kinds: Counter[CauseKind] = Counter()
    for of_test in facts.values():
        for cause in of_test.causes:
            kinds[cause.kind] += cause.count
    graphs = sum(each.graphs for each in facts.values())
    ops = sum(each.ops for each in facts.values())
    nothing = sum(not each.compiles for each in facts.values())
    parts = [counted(graphs, "graph"), counted(ops, "op"), counted(kinds["break"], "graph break")]
    parts.append(counted(kinds["recompile"] + kinds["limit"], "recompile"))
    calls = "calls" if len(facts) == 1 else "call"
    line = f"{len(facts)} of {counted(tests, 'test')} {calls} compiled code: {', '.join(parts)}"
    return line + (f"; {nothing} compile{'s' * (nothing == 1)} nothing" if nothing else "")


def _cost(facts: Mapping[str, TestFacts]) -> str:
    compiled: defaultdict[str, int] = defaultdict(int)
    for of_test in facts.values():
        for frame in of_test.frames:
            compiled[frame] += 1
    again = [n for n in compiled.values() if n > 1]
    line = f"compiling took {sum(each.seconds for each in facts.values()):.1f} s"
    if again:
        line += (
            f"; {counted(len(again), 'function')} {'is' if len(again) == 1 else 'are'} compiled by "
            f"several tests ({sum(again)} times)"
        )
    return line


def describe(cause: Cause) -> str:
    """A cause in words, with its place."""
    place = f"{cause.file}:{cause.line} in {cause.function}" if cause.file else cause.function
    text = (f": {cause.text}" if place else cause.text) if cause.text else ""
    words = _HAPPENED[cause.kind].format(place=place, code=cause.code or cause.text, text=text)
    return " ".join(words.split())


def _described(each: CauseOverTests) -> str:
    words = describe(each.cause)
    if each.without_graph and each.cause.kind != "nothing":
        words += "; nothing is compiled"
        words += f" in {each.without_graph} of them" if len(each.tests) > 1 else ""
    return words


def over_tests(words: str, tests: Sequence[str], width: int) -> list[str]:
    """What holds for some tests, with their number and the first one: one line, or two."""
    first = f"{counted(len(tests), 'test'):>{INDENT - 2}}  {words}"
    named = _tests(tests)
    one_line = f"{first}  {named}"
    return [one_line] if len(one_line) <= width else [first, " " * INDENT + named]


def _tests(tests: Sequence[str]) -> str:
    return tests[0] + (f" and {len(tests) - 1} more" if len(tests) > 1 else "")
