"""The comparisons that failed in a run as plain data, and their causes. Knows no pytest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..snapshot.changes import brief
from ..words import counted

if TYPE_CHECKING:
    from ..graph.diff.findings import Finding
    from ..snapshot.compare import Comparison

Data = dict[str, Any]

NOT_STORED = "no graph is stored"
"""What the problem begins with where there is nothing to compare with."""
MAX_FINDINGS = 50
"""How many findings of one comparison a report brings; the others are counted."""


def data_of(failed: Comparison) -> Data:
    """Return the plain data of a failed comparison, of bounded size.

    `problem` is what is wrong, in one line; `releases` of torch, if they differ; `difference`, what
    `GraphDiff.to_json` gives, `None` if the graphs have no finding.
    """
    problem, difference = failed.problem or "the graphs differ", None
    try:
        difference = failed.diff.to_json(MAX_FINDINGS) if failed.diff else None
    except Exception:  # the section says why
        problem = failed.problem or "what differs could not be found out"
    return {"problem": problem, "releases": failed.releases, "difference": difference}


def headline(failed: Comparison) -> str:
    """What is wrong with a comparison, in one line."""
    if failed.problem and not failed.parts:
        return failed.problem
    who = f"{failed.problem}: " if failed.parts else ""
    problems = dict.fromkeys(part.problem for part in failed.parts if part.problem)
    try:
        said = [*([failed.diff.heading()] if failed.diff else []), *problems]
    except Exception as error:
        said = [f"the graphs differ (finding out how failed: {brief(error)})"]
    return who + ("; ".join(said) or "the graphs differ")


def findings_of(data: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the findings in what `data_of` gave; if there are none, the problem."""
    from ..graph.diff.findings import Finding
    from ..graph.diff.joining import problem_found

    if data["difference"] is None:
        yield problem_found(data["problem"])
        return
    yield from map(Finding.from_json, data["difference"]["findings"])


def left_out(data: Mapping[str, Any]) -> int:
    """Return the number of findings that `data_of` left out."""
    return data["difference"]["left"] if data["difference"] else 0


class Comparisons:
    """The comparisons that failed.

    Attributes:
        tests: the data of a test's failed comparisons, by its id.
    """

    def __init__(self, tests: Mapping[str, list[Data]] | None = None):
        self.tests: dict[str, list[Data]] = dict(tests or {})
        self._every_cause: Sequence[Finding] | None = None

    @property
    def causes(self) -> Sequence[Finding]:
        """The causes, those of most tests first; none where at most one comparison failed."""
        return self.every_cause if sum(map(len, self.tests.values())) > 1 else []

    @property
    def every_cause(self) -> Sequence[Finding]:
        """The same, also where one comparison failed."""
        if self._every_cause is None:
            from ..graph.diff.joining import join

            upgraded = [
                test for test, every in self.tests.items() if any(e["releases"] for e in every)
            ]
            self._every_cause = join([*self._items()], upgraded=upgraded)
        return self._every_cause

    def _items(self) -> Iterator[tuple[str, Finding]]:
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
        left = sum(left_out(data) for every in self.tests.values() for data in every)
        more = f", {counted(left, 'further finding')} not listed" if left else ""
        size = f"{counted(len(self.causes), 'cause')} in {counted(len(self.tests), 'test')}"
        return f"{size}{more}"

    def releases(self) -> list[str]:
        """The releases of torch that were compared where they differ, as `2.13.0 -> 2.15.0`."""
        pairs = (
            data["releases"] for every in self.tests.values() for data in every if data["releases"]
        )
        return [*dict.fromkeys(f"{old} -> {new}" for old, new in pairs)]
