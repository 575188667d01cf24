"""The comparisons that failed in a run as plain data, and their causes. Knows no pytest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..snapshot.changes import brief
from ..words import counted

if TYPE_CHECKING:
    from ..graph.diff.described import CauseInWords, Described
    from ..snapshot.compare import Mismatch

Data = dict[str, Any]

NOT_STORED = "no graph is stored"
"""What the problem begins with where there is nothing to compare with."""
MAX_FINDINGS = 50
"""How many findings of one comparison a report brings; the others are counted."""


def difference_data(mismatch: Mismatch) -> Data:
    """The plain data of a failed comparison, of bounded size.

    Args:
        mismatch: the comparison.
    """
    from ..graph.diff.described import described

    findings = mismatch.findings
    return {
        "problem": mismatch.problem or "the graphs differ",
        "releases": mismatch.releases,
        "findings": [described(each).data() for each in findings[:MAX_FINDINGS]],
        "left": max(0, len(findings) - MAX_FINDINGS),
    }


def unknown_difference(mismatch: Mismatch) -> Data:
    """The same where finding out what differs failed."""
    problem = mismatch.problem or "what differs could not be found out"
    return {"problem": problem, "releases": mismatch.releases, "findings": [], "left": 0}


def headline(mismatch: Mismatch) -> str:
    """What is wrong with a comparison, in one line."""
    if mismatch.problem and not mismatch.parts:
        return mismatch.problem
    who = f"{mismatch.problem}: " if mismatch.parts else ""
    try:
        if mismatch.parts:
            return f"{who}{_what_of_ranks(mismatch)}"
        return mismatch.diff.heading() if mismatch.diff else "the graphs differ"
    except Exception as error:
        return f"{who}the graphs differ (finding out how failed: {brief(error)})"


def _what_of_ranks(mismatch: Mismatch) -> str:
    """What differs in any rank, in one line."""
    from ..graph.diff.headings import heading

    problems = dict.fromkeys(part.problem for part in mismatch.parts if part.problem)
    return "; ".join([*([heading(mismatch.findings)] if mismatch.findings else []), *problems])


def findings_of(data: Mapping[str, Any]) -> Iterator[Described]:
    """The findings in what `difference_data` gave; where there are none, the problem."""
    from ..graph.diff.described import Described, problem_described

    for finding in data["findings"]:
        yield Described.from_data(finding)
    if not data["findings"]:
        yield problem_described(data["problem"])


class Comparisons:
    """The comparisons that failed.

    Attributes:
        tests: the data of a test's failed comparisons, by its id.
    """

    def __init__(self, tests: Mapping[str, list[Data]] | None = None):
        self.tests: dict[str, list[Data]] = dict(tests or {})
        self._every_cause: list[CauseInWords] | None = None

    @property
    def causes(self) -> list[CauseInWords]:
        """The causes, those of most tests first; none where at most one comparison failed."""
        return self.every_cause if sum(map(len, self.tests.values())) > 1 else []

    @property
    def every_cause(self) -> list[CauseInWords]:
        """The same, also where one comparison failed."""
        if self._every_cause is None:
            from ..graph.diff.described import causes_in_words

            upgraded = [
                test for test, every in self.tests.items() if any(e["releases"] for e in every)
            ]
            self._every_cause = causes_in_words([*self._items()], upgraded=upgraded)
        return self._every_cause

    def _items(self) -> Iterator[tuple[str, Described]]:
        for test, every in sorted(self.tests.items()):
            for data in every:
                yield from ((test, finding) for finding in findings_of(data))

    @property
    def are_new(self) -> bool:
        """Whether all failed for the reason that there is nothing to compare with."""
        every = [data for of_test in self.tests.values() for data in of_test]
        return bool(every) and all(data["problem"].startswith(NOT_STORED) for data in every)

    def heading(self) -> str:
        """How many causes there are in how many tests."""
        left = sum(data["left"] for every in self.tests.values() for data in every)
        more = f", {counted(left, 'further finding')} not listed" if left else ""
        size = f"{counted(len(self.causes), 'cause')} in {counted(len(self.tests), 'test')}"
        return f"{size}{more}"

    def releases(self) -> list[str]:
        """The releases of torch that were compared where they differ, as `2.13.0 -> 2.15.0`."""
        pairs = (
            data["releases"] for every in self.tests.values() for data in every if data["releases"]
        )
        return [*dict.fromkeys(f"{old} -> {new}" for old, new in pairs)]
