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
    from .facts import Cause, CauseKind, LeakedSetting, TestFacts

SWITCH = "TORCHDYNAMO_DISABLE"
"""Environment variable that makes torch.compile return its argument unchanged."""

MOST = 10
"""Maximum number of listed causes, so that the summary fits on a screen; `-v` lists all."""

INDENT = 11
"""Width of the column before a cause, which holds its number of tests."""

MOST_SETTINGS = 3
"""Maximum number of listed settings; `-v` lists all."""

REMOVED = "gone"
"""Text for the value of a deleted setting, at which torch raises AttributeError."""

GONE_WHY = "undoing monkeypatch.setattr removes the setting: use torch._dynamo.config.patch"

_PLACE = re.compile(r"\S+:\d+\b")
"""A file and a line. Terminals turn this text into a link."""

_HAPPENED: dict[CauseKind, str] = {
    "break": "graph break at {place}: {code}",
    "recompile": "recompiled: {place}{guard}",
    "limit": "recompile limit reached, so later calls run eagerly: {place}{guard}",
    "bypass": "cache bypass, so compiled in every process: {place}{text}{line}",
    "eager": "ran eagerly: {place}{text}",
    "nothing": "nothing compiled: {place}{text}",
}


@dataclass
class CauseOverTests:
    """A cause and the tests that have it.

    Attributes:
        cause: the cause in the first of these tests.
        tests: the ids of the tests.
        places: the files and functions of the cause. Code that compiles nothing is grouped by
            reason, so its cause may have several places.
        times: the number of occurrences in all tests.
        tests_without_graph: the number of these tests that compile nothing.
    """

    cause: Cause
    tests: list[str] = field(default_factory=list)
    places: set[tuple[str, str]] = field(default_factory=set)
    times: int = 0
    tests_without_graph: int = 0

    @property
    def rank(self) -> tuple[int, int, str]:
        """Sort key: causes with the most tests come first."""
        return -len(self.tests), -self.times, self.cause.key


def causes_over_tests(facts: Mapping[str, TestFacts]) -> list[CauseOverTests]:
    """Merge the causes of all tests, sorted by their number of tests."""
    merged: dict[tuple[str, ...], CauseOverTests] = {}
    for test, test_facts in facts.items():
        for cause in test_facts.causes:
            location = cause.file, cause.function
            key = (cause.text,) if cause.kind == "nothing" else (cause.key,)
            entry = merged.setdefault((cause.kind, *key), CauseOverTests(cause))
            entry.tests.append(test)
            entry.places.add(location)
            entry.times += cause.count
            entry.tests_without_graph += not test_facts.compiles
    causes = sorted(merged.values(), key=lambda shared_cause: shared_cause.rank)
    # Move the cause with the most tests that compile nothing to the front, because these tests pass
    # without testing what they claim to test.
    first_cause = max(
        causes, key=lambda shared_cause: shared_cause.tests_without_graph, default=None
    )
    if first_cause is not None and first_cause.tests_without_graph:
        causes.remove(first_cause)
        causes.insert(0, first_cause)
    return causes


def summary_lines(
    facts: Mapping[str, TestFacts],
    tests: int,
    *,
    width: int = 80,
    verbose: bool = False,
    settings: Sequence[LeakedSetting] = (),
    isolated: bool = False,
) -> Iterator[str]:
    """Yield the lines of the summary: totals, then the causes in the order of `causes_over_tests`.

    Args:
        facts: the facts of each test that calls compiled code, by test id.
        tests: the number of tests that ran.
        width: the terminal width. Longer lines are cut, but not inside the place of a cause.
        verbose: if True, list all causes and cut no line.
        settings: the settings of torch that tests changed and did not restore.
        isolated: True if Dynamo was reset before each test.
    """
    if not facts:
        headline = f"none of {counted(tests, 'test')} uses torch.compile"
        is_disabled = os.environ.get(SWITCH) == "1"
        yield f"{headline}: it is disabled by {SWITCH}=1" if is_disabled else headline
    else:
        yield from textwrap.wrap(totals(facts, tests), width, subsequent_indent="  ")
        causes = causes_over_tests(facts)
        listed_causes = causes if verbose else causes[:MOST]
        descriptions = Counter(describe(shared_cause.cause) for shared_cause in listed_causes)
        for shared_cause in listed_causes:
            cause = shared_cause.cause
            # One line may have several kinds of graph breaks. Distinguish them by the kind.
            if cause.code and descriptions[describe(cause)] > 1:
                cause = replace(cause, code=f"{cause.text}: {cause.code}")
                shared_cause = replace(shared_cause, cause=cause)
            yield from _lines(shared_cause, width, verbose)
        if len(causes) > len(listed_causes):
            omitted = counted(len(causes) - len(listed_causes), "more cause")
            yield f"{'':{INDENT}}and {omitted} (-v lists them)"
        for line in _cost(facts):
            yield line if verbose else cut(line, width)
    if isolated:
        yield "isolated: Dynamo was reset before each test"
    yield from _settings(settings, width, verbose)


def totals(facts: Mapping[str, TestFacts], tests: int) -> str:
    """Return the first line: the number of tests that use torch.compile, with totals."""
    times: Counter[CauseKind] = Counter()
    tests_with: Counter[CauseKind] = Counter()
    for test_facts in facts.values():
        for cause in test_facts.causes:
            times[cause.kind] += 1 if cause.kind == "break" else cause.count
        tests_with.update({cause.kind for cause in test_facts.causes})
    compiles_nothing = sum(not test_facts.compiles for test_facts in facts.values())
    parts: list[str] = []
    if compiles_nothing:
        parts.append(f"{compiles_nothing} compile{'s' * (compiles_nothing == 1)} nothing")
    parts.append(counted(sum(test_facts.graphs for test_facts in facts.values()), "graph"))
    parts.append(counted(sum(test_facts.ops for test_facts in facts.values()), "op"))
    break_tests = f" in {counted(tests_with['break'], 'test')}" if tests_with["break"] else ""
    parts.append(counted(times["break"], "graph break") + break_tests)
    recompiles = times["recompile"] + times["limit"]
    parts += [counted(recompiles, "recompile")] * (recompiles > 0)
    bypasses = times["bypass"]
    parts += [f"{bypasses:,} cache bypass{'es' * (bypasses > 1)}"] * (bypasses > 0)
    use = "uses" if len(facts) == 1 else "use"
    return f"{len(facts)} of {counted(tests, 'test')} {use} torch.compile: {', '.join(parts)}"


def frames_over_tests(facts: Mapping[str, TestFacts]) -> tuple[Counter[str], Mapping[str, float]]:
    """Return, for each function, how many tests compiled it, and the seconds that they took."""
    tests: Counter[str] = Counter()
    seconds: defaultdict[str, float] = defaultdict(float)
    for test_facts in facts.values():
        tests.update(test_facts.frames)
        for frame, frame_time in zip(test_facts.frames, test_facts.frame_seconds, strict=False):
            seconds[frame] += frame_time
    return tests, seconds


def _cost(facts: Mapping[str, TestFacts]) -> Iterator[str]:
    """Yield the lines about compile time, and about code compiled by several tests."""
    compiled, seconds = frames_over_tests(facts)
    total = sum(test_facts.seconds for test_facts in facts.values())
    line = f"compiling took {total:.1f} s"
    if seconds and len(compiled) > 1:
        frame = max(seconds, key=lambda frame_name: (seconds[frame_name], frame_name))
        file, _, function = frame.partition(" ")
        line += f", {seconds[frame]:.1f} s of it for {file} in {function}"
        line += f" ({counted(compiled[frame], 'test')})"
    yield line
    repeated = [n for n in compiled.values() if n > 1]
    if repeated:
        functions = f"{counted(len(repeated), 'function')} {'is' if len(repeated) == 1 else 'are'}"
        yield f"{functions} compiled by several tests ({sum(repeated):,} compilations)"
    calls = sum(test_facts.calls for test_facts in facts.values())
    eager = sum(test_facts.eager_calls for test_facts in facts.values())
    if eager:
        yield f"{eager:,} of {counted(calls, 'call')} to compiled callables ran no compiled code"


def _settings(settings: Sequence[LeakedSetting], width: int, verbose: bool) -> Iterator[str]:
    """Yield the lines about settings left changed, which affect how later tests compile."""
    if settings:
        yield f"{counted(len(settings), 'setting')} of torch changed by tests, and not restored:"
    for setting in settings if verbose else settings[:MOST_SETTINGS]:
        line = f"  {setting.name}: {setting.before} -> {setting.after}"
        test = f"  {setting.test}"
        yield from [line + test] if len(line + test) <= width else [line, f"  {test}"]
    if any(setting.after == REMOVED for setting in settings):
        yield f"  (gone: {GONE_WHY})"
    if not verbose and len(settings) > MOST_SETTINGS:
        yield f"  and {len(settings) - MOST_SETTINGS} more (-v lists them)"


def _lines(shared_cause: CauseOverTests, width: int, verbose: bool) -> list[str]:
    """Return the line of a cause, or two lines if code compiles nothing and one is too short."""
    cause, further_places = shared_cause.cause, len(shared_cause.places) - 1
    words = describe(cause, further_places)
    if cause.kind == "nothing":
        location = _place(cause, further_places)
        line = f"{_number(shared_cause.tests)}  {words}"
        if location and not verbose and len(line) > width:
            reason = f"{_number(shared_cause.tests)}  nothing compiled: {cause.text}"
            return [cut(reason, width), cut(f"{'':{INDENT}}{location}", width)]
    elif shared_cause.tests_without_graph == len(shared_cause.tests):
        words = f"nothing compiled: {words}"
    elif shared_cause.tests_without_graph:
        words += f"; nothing compiled in {shared_cause.tests_without_graph} of them"
    return lines_over_tests(words, shared_cause.tests, width, whole=verbose)


def describe(cause: Cause, further_places: int = 0) -> str:
    """Describe a cause and its place.

    Args:
        cause: the cause.
        further_places: the number of further functions that have the cause.
    """
    location = _place(cause, further_places)
    text = (f": {cause.text}" if location else cause.text) if cause.text else ""
    line = f" ({cause.code})" if cause.code else ""
    words = _HAPPENED[cause.kind].format(
        place=location,
        code=cause.code or cause.text,
        text=text,
        line=line,
        guard=f": {cause.guard}" if cause.guard else "",
    )
    return " ".join(words.split())


def _place(cause: Cause, further_places: int) -> str:
    location = f"{cause.file}:{cause.line} in {cause.function}" if cause.file else cause.function
    return location + (f" and {counted(further_places, 'more function')}" if further_places else "")


def lines_over_tests(
    words: str, tests: Sequence[str], width: int, *, whole: bool = False
) -> list[str]:
    """Return the lines of a statement about tests, with the number of tests and the first test.

    Args:
        words: the statement.
        tests: the ids of the tests.
        width: the terminal width.
        whole: if True, cut nothing. Otherwise, return one line. It names the test if there is room,
            by its full id, by its file and name, or only by its name. Without room, and if the
            statement does not name a place, return two lines.
    """
    first = f"{_number(tests)}  {words}"
    further_tests = f" and {len(tests) - 1:,} more" if len(tests) > 1 else ""
    if whole:
        line = f"{first}  {tests[0]}{further_tests}"
        return [line] if len(line) <= width else [first, f"{'':{INDENT}}{tests[0]}{further_tests}"]
    for name in (tests[0], tests[0].rpartition("/")[2], tests[0].rpartition("::")[2]):
        if len(f"{first}  {name}{further_tests}") <= width:
            return [f"{first}  {name}{further_tests}"]
    if _PLACE.search(words):
        return [cut(first, width)]
    return [cut(first, width), cut(f"{'':{INDENT}}{tests[0]}{further_tests}", width)]


def _number(tests: Sequence[str]) -> str:
    return f"{counted(len(tests), 'test'):>{INDENT - 2}}"


def cut(line: str, width: int) -> str:
    """Cut a line to the terminal width, but never inside the first place that it names."""
    if len(line) <= width:
        return line
    place_match = _PLACE.search(line)
    return line[: max(width - 1, place_match.end() if place_match else 0)].rstrip() + "…"
