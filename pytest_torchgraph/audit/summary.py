"""The summary of an audit: totals, then causes, sorted by their number of tests."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..words import counted, grouped, listed

if TYPE_CHECKING:
    from .facts import Cause, CauseKind, CodePlace, LeakedSetting, TestFacts

SWITCH = "TORCHDYNAMO_DISABLE"
"""Environment variable that makes torch.compile return its argument unchanged."""

MOST = 10
"""Maximum number of listed causes, so that the summary fits on a screen; `-v` lists all."""

MOST_SETTINGS = 3
"""Maximum number of listed settings; `-v` lists all."""

REMOVED = "gone"
"""Text for the value of a deleted setting, at which torch raises AttributeError."""

GONE_WHY = "undoing monkeypatch.setattr removes the setting: use torch._dynamo.config.patch"

KINDS: dict[CauseKind, tuple[str, str]] = {
    "break": ("graph break", "graph break at "),
    "recompile": ("recompile", "recompiled: "),
    "limit": ("recompile limit", "recompile limit reached, so later calls run eagerly: "),
    "bypass": ("cache bypass", "cache bypass, so compiled in every process: "),
    "eager": ("ran eagerly", "ran eagerly: "),
    "nothing": ("nothing compiled", "nothing compiled: "),
}
"""For each kind of causes, its name and the start of a description."""


@dataclass(frozen=True)
class CauseOverTests:
    """A cause and the tests that have it.

    Attributes:
        records: the test, its facts and its own record of the cause, for each test. Code that
            compiles nothing is grouped by reason, so its cause may have several places.
    """

    records: list[tuple[str, TestFacts, Cause]]

    @property
    def cause(self) -> Cause:
        """The cause in the first of the tests."""
        return self.records[0][2]

    @property
    def tests(self) -> list[str]:
        """The ids of the tests."""
        return list(dict.fromkeys(test for test, _, _ in self.records))

    @property
    def times(self) -> int:
        """Number of occurrences in all tests."""
        return sum(cause.count for _, _, cause in self.records)

    @property
    def without_graph(self) -> int:
        """Number of the tests that compile nothing."""
        return len({test for test, facts, _ in self.records if not facts.compiles})

    @property
    def place(self) -> CodePlace:
        """Location of the cause, else of the code that its first test calls."""
        return self.records[0][1].place_of(self.cause)

    @property
    def text(self) -> str:
        """Description with the first location and the number of further locations."""
        places = {(cause.file, cause.function) for _, _, cause in self.records}
        return describe(self.cause, len(places) - 1)


def causes_over_tests(facts: Mapping[str, TestFacts]) -> list[CauseOverTests]:
    """Merge the causes of all tests, sorted by their number of tests."""
    # Code that compiles nothing is grouped by the reason alone, see `CauseOverTests`.
    groups = grouped(
        (f"nothing {cause.text}" if cause.kind == "nothing" else cause.key, (test, own, cause))
        for test, own in facts.items()
        for cause in own.causes
    )
    causes = [CauseOverTests(records) for records in groups.values()]
    causes.sort(key=lambda shared: (-len(shared.tests), -shared.times, shared.cause.key))
    # The cause with the most tests that compile nothing comes first, because these tests pass
    # without testing what they claim to test.
    first = max(causes, key=lambda shared: shared.without_graph, default=None)
    # A stable sort: `first` moves to the front if any of its tests compiles nothing.
    causes.sort(key=lambda shared: shared is not first or not shared.without_graph)
    return causes


def summary_lines(
    facts: Mapping[str, TestFacts],
    tests: int,
    *,
    verbose: bool = False,
    settings: Sequence[LeakedSetting] = (),
    isolated: bool = False,
) -> Iterator[str]:
    """Yield the lines of the summary: totals, then the causes in the order of `causes_over_tests`.

    Args:
        facts: the facts of each test that calls compiled code, by test id.
        tests: the number of tests that ran.
        verbose: if True, list all causes and settings.
        settings: the settings of torch that tests changed and did not restore.
        isolated: True if Dynamo was reset before each test.
    """
    if not facts:
        headline = f"none of {counted(tests, 'test')} uses torch.compile"
        is_disabled = os.environ.get(SWITCH) == "1"
        yield f"{headline}: it is disabled by {SWITCH}=1" if is_disabled else headline
    else:
        yield headline_of(facts, tests)
        causes = causes_over_tests(facts)
        listed_causes = causes if verbose else causes[:MOST]
        descriptions = Counter(shared.text for shared in listed_causes)
        for shared in listed_causes:
            words, cause = shared.text, shared.cause
            # One line may have several kinds of graph breaks. Distinguish them by the kind.
            if cause.code and descriptions[words] > 1:
                words = describe(replace(cause, code=f"{cause.text}: {cause.code}"))
            if shared.without_graph == len(shared.tests) and cause.kind != "nothing":
                words = f"nothing compiled: {words}"
            elif shared.without_graph < len(shared.tests) and shared.without_graph:
                words += f"; nothing compiled in {shared.without_graph} of them"
            yield line_over_tests(words, shared.tests)
        if len(causes) > len(listed_causes):
            omitted = counted(len(causes) - len(listed_causes), "more cause")
            yield f"{'':11}and {omitted} (-v lists them)"
        yield from _cost(facts)
    if isolated:
        yield "isolated: Dynamo was reset before each test"
    if settings:
        yield f"{counted(len(settings), 'setting')} of torch changed by tests, and not restored:"
    for setting in settings if verbose else settings[:MOST_SETTINGS]:
        yield f"  {setting.name}: {setting.before} -> {setting.after}  {setting.test}"
    if any(setting.after == REMOVED for setting in settings):
        yield f"  (gone: {GONE_WHY})"
    if not verbose and len(settings) > MOST_SETTINGS:
        yield f"  and {len(settings) - MOST_SETTINGS} more (-v lists them)"


SUMMED = ("calls", "eager_calls", "graphs", "ops", "backwards")
"""Numbers of `TestFacts` whose totals have the same names."""


def totals(all_facts: Iterable[TestFacts]) -> dict[str, Any]:
    """Return the totals over tests, as `report.surfaces.document` describes them."""
    tests = [*all_facts]
    times: Counter[CauseKind] = Counter()
    for facts in tests:
        for cause in facts.causes:
            times[cause.kind] += cause.count
    return {
        "nothing": sum(not facts.compiles for facts in tests),
        **{name: sum(getattr(facts, name) for facts in tests) for name in SUMMED},
        "graph_breaks": times["break"],
        # An attempt that reaches the recompile limit counts as a recompile.
        "recompiles": times["recompile"] + times["limit"],
        "cache_bypasses": times["bypass"],
        "compile_seconds": round(sum(facts.seconds for facts in tests), 6),
    }


def headline_of(facts: Mapping[str, TestFacts], tests: int) -> str:
    """Return the first line: the number of tests that use torch.compile, with totals."""
    counts = totals(facts.values())
    nothing, bypasses = counts["nothing"], counts["cache_bypasses"]
    broken = sum(any(cause.kind == "break" for cause in own.causes) for own in facts.values())
    parts = [f"{nothing} compile{'s' * (nothing == 1)} nothing"] * (nothing > 0)
    parts += [counted(counts["graphs"], "graph"), counted(counts["ops"], "op")]
    in_tests = f" in {counted(broken, 'test')}" if broken else ""
    parts.append(counted(counts["graph_breaks"], "graph break") + in_tests)
    parts += [counted(counts["recompiles"], "recompile")] * (counts["recompiles"] > 0)
    parts += [f"{bypasses:,} cache bypass{'es' * (bypasses > 1)}"] * (bypasses > 0)
    use = "uses" if len(facts) == 1 else "use"
    return f"{len(facts)} of {counted(tests, 'test')} {use} torch.compile: {', '.join(parts)}"


def frames_over_tests(facts: Mapping[str, TestFacts]) -> tuple[Counter[str], Mapping[str, float]]:
    """Return, for each function, how many tests compiled it, and the seconds that they took."""
    tests: Counter[str] = Counter()
    seconds: defaultdict[str, float] = defaultdict(float)
    for test_facts in facts.values():
        tests.update(test_facts.frames)
        # Facts in the page of a stranger may have lists of different lengths.
        for frame, frame_time in zip(test_facts.frames, test_facts.frame_seconds, strict=False):
            seconds[frame] += frame_time
    return tests, seconds


def _cost(facts: Mapping[str, TestFacts]) -> Iterator[str]:
    """Yield the lines about compile time, and about code compiled by several tests."""
    compiled, seconds = frames_over_tests(facts)
    counts = totals(facts.values())
    line = f"compiling took {counts['compile_seconds']:.1f} s"
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
    if eager := counts["eager_calls"]:
        calls = counted(counts["calls"], "call")
        yield f"{eager:,} of {calls} to compiled callables ran no compiled code"


def describe(cause: Cause, further_places: int = 0) -> str:
    """Describe a cause and its place.

    Args:
        cause: the cause.
        further_places: the number of further functions that have the cause.
    """
    place = cause.place.shown
    if further_places:
        place += f" and {counted(further_places, 'more function')}"
    detail = f"{cause.text} ({cause.code})" if cause.code else cause.text
    # The line of a graph break says more than Dynamo's class of it. A recompile has no text.
    if cause.kind == "break":
        detail = cause.code or cause.text
    elif cause.kind in ("recompile", "limit"):
        detail = cause.guard
    words = KINDS[cause.kind][1] + ": ".join(filter(None, (place, detail)))
    return " ".join(words.split())


def line_over_tests(words: str, tests: Sequence[str]) -> str:
    """Return the line of a statement about tests: their number, the statement, the first test."""
    return f"{counted(len(tests), 'test'):>9}  {words}  {listed(tests, 1)}"
