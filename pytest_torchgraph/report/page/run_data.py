"""The data of a whole page, of one run or of several whose pages are put together.

Knows no pytest: `merging` makes a page of pages where no test runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...words import counted
from ..comparisons import Comparisons
from .parts import FORMAT, Data, Parts

RED = ("failed", "error", "crashed")
"""Outcomes of tests that failed."""


@dataclass
class RunData:
    """What a run tells of, all but the details of its tests.

    Attributes:
        versions: of torch, pytest and Python, by their names; "" where it is not known.
        others: how many tests did not use graphs.
        crashed: how many workers crashed.
        tests: the summaries of the tests that used graphs, in the order of the page.
        words: what the search looks into, of each of these, by its id.
        failures: what these say that failed, by id; not those of which a comparison failed.
        comparisons: those that failed.
        accept: the command that stores what they captured, "" where there is none.
        audit: what an audit found, see `surfaces.document`; None where there is none.
        facts: what it is made of, by the ids of the tests.
        shards: the pages that it is made of; none where it is one run.
    """

    versions: dict[str, str]
    others: int = 0
    crashed: int = 0
    tests: list[Data] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    comparisons: Comparisons = field(default_factory=Comparisons)
    accept: str = ""
    audit: Data | None = None
    facts: dict[str, Data] = field(default_factory=dict)
    shards: Sequence[str] = ()

    def data(self, parts: Parts) -> Data:
        """The data of the page.

        Args:
            parts: with the details of the tests; what else is large is added.
        """
        causes = self._causes()
        return {
            "format": FORMAT,
            "about": self._about(),
            "warning": self._warning(),
            "audit": self.audit,
            "causes": causes,
            "failures": self._failures(with_causes=causes is not None),
            "tests": self.tests,
            "search": parts.add([self.words[test["id"]] for test in self.tests]),
            "run": parts.add(
                {
                    "versions": self.versions,
                    "others": self.others,
                    "crashed": self.crashed,
                    "failures": self.failures,
                    "comparisons": self.comparisons.tests,
                    "accept": self.accept,
                    "facts": self.facts,
                    "shards": list(self.shards),
                }
            ),
        }

    @classmethod
    def of_page(cls, data: Mapping[str, Any], parts: Parts) -> RunData:
        """What the data of a page were made of."""
        run: Data = parts.get(data["run"])
        texts = parts.get(data["search"])
        words = {test["id"]: text for test, text in zip(data["tests"], texts, strict=True)}
        comparisons = Comparisons(run.pop("comparisons"))
        return cls(
            **run, comparisons=comparisons, tests=data["tests"], words=words, audit=data["audit"]
        )

    def _about(self) -> str:
        about = ", ".join(f"{name} {version}" for name, version in self.versions.items() if version)
        if self.others:
            about += f"; {counted(self.others, 'further test')} without graphs"
        if self.shards:
            about += f"; {counted(len(self.shards), 'page')} put together"
        return about

    def _warning(self) -> str:
        workers = "a worker" if self.crashed == 1 else f"{self.crashed} workers"
        return f"{workers} crashed" if self.crashed else ""

    def _causes(self) -> Data | None:
        """The causes of the failed comparisons; None where at most one failed.

        None as well where they are not known, which the end of the run says.
        """
        from ...graph.diff.words import cost_text

        try:
            found = self.comparisons.causes
        except Exception:
            return None
        if not found:
            return None
        return {
            "heading": self.comparisons.heading(),
            "releases": self.comparisons.releases(),
            "accept": self.accept,
            "list": [{**cause.to_json(), "costs": cost_text(cause.cost)} for cause in found],
        }

    def _failures(self, *, with_causes: bool) -> list[Data]:
        """What failed but for comparisons, equal headlines once; none where one test failed."""
        red = sum(test["outcome"] in RED for test in self.tests)
        if red < 2 and not with_causes:
            return []
        groups: dict[str, list[str]] = {}
        for test, headline in sorted(self.failures.items()):
            groups.setdefault(headline, []).append(test)
        found = sorted(groups.items(), key=lambda each: (-len(each[1]), each[0]))
        return [{"headline": headline, "tests": tests} for headline, tests in found]
