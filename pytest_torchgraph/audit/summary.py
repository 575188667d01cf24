"""The summary of an audit: totals, then causes, sorted by their number of tests."""

from __future__ import annotations

import os
import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..words import counted

if TYPE_CHECKING:
    from .facts import Cause, CauseKind, SettingLeft, TestFacts

SWITCH = "TORCHDYNAMO_DISABLE"
"""Environment variable that makes torch.compile return its argument unchanged."""

MOST = 10
"""Maximum number of causes listed, so that the summary fits on a screen; `-v` lists all."""

INDENT = 11
"""Columns before a cause, for its number of tests."""

MOST_SETTINGS = 3
"""Maximum number of changed settings listed; `-v` lists all."""

REMOVED = "gone"
"""Value of a deleted setting: torch raises AttributeError when it reads the setting."""

GONE_WHY = (
    "monkeypatch.setattr removes the setting when it is undone; use torch._dynamo.config.patch"
)

_PLACE = re.compile(r"\S+:\d+\b")
"""A file and a line, which terminals turn into a link."""

_HAPPENED: dict[CauseKind, str] = {
    "break": "graph break at {place}: {code}",
    "recompile": "recompiled: {place}",
    "limit": "recompile limit reached, later calls run eagerly: {place}",
    "bypass": "cache bypass, compiled in every process: {place}{text}{line}",
    "eager": "ran eagerly: {place}{text}",
    "nothing": "compile nothing: {place}{text}",
}


@dataclass
class CauseOverTests:
    """A cause and the tests that have it.

    Attributes:
        cause: the cause as found in the first test.
        tests: the ids of the tests.
        places: the files and functions of the cause. Code that compiles nothing is grouped by
            reason, so its cause may have several places.
        times: the number of occurrences in all tests.
        without_graph: the number of these tests that compile nothing.
    """

    cause: Cause
    tests: list[str] = field(default_factory=list)
    places: set[tuple[str, str]] = field(default_factory=set)
    times: int = 0
    without_graph: int = 0

    @property
    def rank(self) -> tuple[int, int, str]:
        """Sort key: causes with the most tests come first."""
        return -len(self.tests), -self.times, self.cause.key


def causes_over_tests(facts: Mapping[str, TestFacts]) -> list[CauseOverTests]:
    """Merge the causes of all tests, sorted by their number of tests."""
    found: dict[tuple[str, ...], CauseOverTests] = {}
    for test, of_test in facts.items():
        for cause in of_test.causes:
            place = cause.file, cause.function
            key = (cause.text,) if cause.kind == "nothing" else (cause.key,)
            entry = found.setdefault((cause.kind, *key), CauseOverTests(cause))
            entry.tests.append(test)
            entry.places.add(place)
            entry.times += cause.count
            entry.without_graph += not of_test.compiles
    causes = sorted(found.values(), key=lambda each: each.rank)
    # First comes the cause with the most tests that compile nothing: these tests pass without
    # testing what they claim to test.
    first = max(causes, key=lambda each: each.without_graph, default=None)
    if first is not None and first.without_graph:
        causes.remove(first)
        causes.insert(0, first)
    return causes


def summary_lines(
    facts: Mapping[str, TestFacts],
    tests: int,
    *,
    width: int = 80,
    verbose: bool = False,
    settings: Sequence[SettingLeft] = (),
    isolated: bool = False,
) -> Iterator[str]:
    """Yield the lines of the summary, one per cause, with the most costly causes first.

    Args:
        facts: the facts of each test that calls compiled code, by test id.
        tests: the number of tests that ran.
        width: the terminal width. Longer lines are cut, but never the place of a cause.
        verbose: if True, list all causes and cut no line.
        settings: the settings of torch that tests left changed.
        isolated: True if Dynamo was reset before each test.
    """
    if not facts:
        none = f"none of {counted(tests, 'test')} uses torch.compile"
        off = os.environ.get(SWITCH) == "1"
        yield f"{none}: it is disabled by {SWITCH}=1" if off else none
    else:
        yield from textwrap.wrap(totals(facts, tests), width, subsequent_indent="  ")
        causes = causes_over_tests(facts)
        shown = causes if verbose else causes[:MOST]
        same = Counter(describe(each.cause) for each in shown)
        for each in shown:
            # Different kinds of graph breaks may be on the same line: add the kind.
            if each.cause.code and same[describe(each.cause)] > 1:
                cause = replace(each.cause, code=f"{each.cause.text}: {each.cause.code}")
                each = replace(each, cause=cause)
            yield from _lines(each, width, verbose)
        if len(causes) > len(shown):
            more = counted(len(causes) - len(shown), "more cause")
            yield f"{'':{INDENT}}and {more} (-v lists them)"
        for line in _cost(facts):
            yield line if verbose else cut(line, width)
    if isolated:
        yield "isolated: Dynamo was reset before each test"
    yield from _settings(settings, width, verbose)


def totals(facts: Mapping[str, TestFacts], tests: int) -> str:
    """Return the first line: the number of tests that use torch.compile, with totals."""
    times: Counter[CauseKind] = Counter()
    having: Counter[CauseKind] = Counter()
    for of_test in facts.values():
        for cause in of_test.causes:
            times[cause.kind] += 1 if cause.kind == "break" else cause.count
        having.update({cause.kind for cause in of_test.causes})
    nothing = sum(not each.compiles for each in facts.values())
    parts = [f"{nothing} compile{'s' * (nothing == 1)} nothing"] * (nothing > 0)
    parts.append(counted(sum(each.graphs for each in facts.values()), "graph"))
    parts.append(counted(sum(each.ops for each in facts.values()), "op"))
    broken = f" in {counted(having['break'], 'test')}" if having["break"] else ""
    parts.append(counted(times["break"], "graph break") + broken)
    again = times["recompile"] + times["limit"]
    parts += [counted(again, "recompile")] * (again > 0)
    bypasses = times["bypass"]
    parts += [f"{bypasses:,} cache bypass{'es' * (bypasses > 1)}"] * (bypasses > 0)
    use = "uses" if len(facts) == 1 else "use"
    return f"{len(facts)} of {counted(tests, 'test')} {use} torch.compile: {', '.join(parts)}"


def _cost(facts: Mapping[str, TestFacts]) -> Iterator[str]:
    """Yield the lines about compile time, and about code compiled by several tests."""
    compiled: Counter[str] = Counter()
    seconds: defaultdict[str, float] = defaultdict(float)
    for of_test in facts.values():
        compiled.update(of_test.frames)
        for frame, taken in zip(of_test.frames, of_test.frame_seconds, strict=False):
            seconds[frame] += taken
    total = sum(each.seconds for each in facts.values())
    line = f"compiling took {total:.1f} s"
    if seconds and len(compiled) > 1:
        frame = max(seconds, key=lambda each: (seconds[each], each))
        file, _, function = frame.partition(" ")
        line += f", {seconds[frame]:.1f} s of it for {file} in {function}"
        line += f" ({counted(compiled[frame], 'test')})"
    yield line
    again = [n for n in compiled.values() if n > 1]
    if again:
        functions = f"{counted(len(again), 'function')} {'is' if len(again) == 1 else 'are'}"
        yield f"{functions} compiled by several tests ({sum(again):,} times)"
    calls = sum(each.calls for each in facts.values())
    eager = sum(each.eager_calls for each in facts.values())
    if eager:
        yield f"{eager:,} of {counted(calls, 'call')} of compiled callables ran no compiled code"


def _settings(settings: Sequence[SettingLeft], width: int, verbose: bool) -> Iterator[str]:
    """Yield the lines about settings left changed, which affect how later tests compile."""
    if settings:
        yield f"{counted(len(settings), 'setting')} of torch changed by tests, and not restored:"
    for each in settings if verbose else settings[:MOST_SETTINGS]:
        line = f"  {each.name}: {each.before} -> {each.after}"
        test = f"  {each.test}"
        yield from [line + test] if len(line + test) <= width else [line, f"  {test}"]
    if any(each.after == REMOVED for each in settings):
        yield f"  (gone: {GONE_WHY})"
    if not verbose and len(settings) > MOST_SETTINGS:
        yield f"  and {len(settings) - MOST_SETTINGS} more (-v lists them)"


def _lines(each: CauseOverTests, width: int, verbose: bool) -> list[str]:
    """Return the line of a cause, or two if code compiles nothing and one line is too short."""
    cause, more = each.cause, len(each.places) - 1
    words = describe(cause, more)
    if cause.kind == "nothing":
        place = _place(cause, more)
        line = f"{_number(each.tests)}  {words}"
        if place and not verbose and len(line) > width:
            reason = f"{_number(each.tests)}  compile nothing: {cause.text}"
            return [cut(reason, width), cut(f"{'':{INDENT}}{place}", width)]
    elif each.without_graph == len(each.tests):
        words = f"compile nothing: {words}"
    elif each.without_graph:
        words += f"; {each.without_graph} of them compile nothing"
    return over_tests(words, each.tests, width, whole=verbose)


def describe(cause: Cause, more: int = 0) -> str:
    """Describe a cause and its place.

    Args:
        cause: the cause.
        more: the number of further functions that have it.
    """
    place = _place(cause, more)
    text = (f": {cause.text}" if place else cause.text) if cause.text else ""
    line = f" ({cause.code})" if cause.code else ""
    words = _HAPPENED[cause.kind].format(
        place=place, code=cause.code or cause.text, text=text, line=line
    )
    return " ".join(words.split())


def _place(cause: Cause, more: int) -> str:
    place = f"{cause.file}:{cause.line} in {cause.function}" if cause.file else cause.function
    return place + (f" and {counted(more, 'more function')}" if more else "")


def over_tests(words: str, tests: Sequence[str], width: int, *, whole: bool = False) -> list[str]:
    """Return the lines of a statement about tests, with their number and the first test.

    Args:
        words: the statement.
        tests: the ids of the tests.
        width: the terminal width.
        whole: if True, cut nothing. Otherwise return one line, naming the test if there is room,
            by its file and name or by its name only; or two lines if the statement names no place.
    """
    first = f"{_number(tests)}  {words}"
    more = f" and {len(tests) - 1:,} more" if len(tests) > 1 else ""
    if whole:
        line = f"{first}  {tests[0]}{more}"
        return [line] if len(line) <= width else [first, f"{'':{INDENT}}{tests[0]}{more}"]
    for name in (tests[0], tests[0].rpartition("/")[2], tests[0].rpartition("::")[2]):
        if len(f"{first}  {name}{more}") <= width:
            return [f"{first}  {name}{more}"]
    if _PLACE.search(words):
        return [cut(first, width)]
    return [cut(first, width), cut(f"{'':{INDENT}}{tests[0]}{more}", width)]


def _number(tests: Sequence[str]) -> str:
    return f"{counted(len(tests), 'test'):>{INDENT - 2}}"


def cut(line: str, width: int) -> str:
    """Cut a line to the terminal width, but never inside the first place that it names."""
    if len(line) <= width:
        return line
    place = _PLACE.search(line)
    return line[: max(width - 1, place.end() if place else 0)].rstrip() + "…"
