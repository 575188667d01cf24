"""The outcome of an audit, and the report lines about its differences from the baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..words import counted, grouped, listed
from .facts import LeakedSetting, TestFacts
from .judge import Verdict
from .summary import line_over_tests

if TYPE_CHECKING:
    from .judge import AuditChange


TIGHTEN = "pytest --torchgraph-audit=record makes this the baseline"
ACCEPT = "this fails the run. To accept it: pytest --torchgraph-audit=record"

MOST_PLACES = 3
"""Maximum number of places listed for a change whose text names no place."""


def verdict_lines(verdict: Verdict, file: str) -> Iterator[str]:
    """Yield the report lines of a comparison with the baseline.

    Args:
        verdict: the differences, and the number of comparisons.
        file: the path of the baseline, as messages show it.
    """
    compared = verdict.compared
    if verdict.worse:
        yield f"worse than {file}:"
        yield from _lines_by_text(verdict.worse)
        yield ACCEPT
    elif not compared.tests and verdict.gone:
        baseline_tests = counted(len(verdict.gone), "test")
        yield f"nothing was compared with {file}: none of its tests passed here ({baseline_tests})"
        if verdict.vacuous:  # recording keeps the entries of tests that did not run
            yield (
                f"this fails the run. If these tests were removed, delete {file}, then: pytest "
                "--torchgraph-audit=record"
            )
    else:
        compared_text = counted(compared.tests, "test")
        if compared.functions:
            compared_text += f" and {counted(compared.functions, 'function')}"
        yield f"nothing is worse than {file} ({compared_text} compared)"
    comparisons = [f"all counts of {counted(compared.whole, 'test')}"] * (compared.whole > 0)
    if compared.shared:
        sharing = counted(compared.shared, "test")
        comparisons.append(f"calls and new causes of {sharing}, which share compiled code")
    if compared.functions:
        functions = counted(compared.functions, "function")
        comparisons.append(f"ops, backend and backward of {functions}")
    if comparisons:
        yield f"compared: {'; '.join(comparisons)}"
    if verdict.better:
        yield f"better than {file}; {TIGHTEN}:"
        yield from _lines_by_text(verdict.better)
    for old, new in verdict.renamed:
        yield f"probably renamed, because both compile the same code: {old} -> {new}"
    added, missing = (len(tests) - len(verdict.renamed) for tests in (verdict.new, verdict.gone))
    counts = [f"{added} not in the baseline yet"] * (added > 0)
    counts += [f"{missing} of the baseline not run"] * (missing > 0)
    if counts:
        yield f"tests: {', '.join(counts)}"


def _lines_by_text(changes: Sequence[AuditChange]) -> Iterator[str]:
    """Yield a line for each difference, with its places and tests, that of most tests first."""
    groups = grouped((change.text, change) for change in changes)
    for text, group in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        shown = (change.place.shown for change in group if change.place.file not in text)
        places = listed(dict.fromkeys(shown), MOST_PLACES)
        # A test may use several functions with the same change.
        tests = list(dict.fromkeys(change.test for change in group))
        yield line_over_tests(f"{places}: {text}" if places else text, tests)


@dataclass
class AuditOutcome:
    """The results of an audit; complete after the session has finished.

    Attributes:
        mode: the value of `--torchgraph-audit`; "" if only another option requested the facts.
        file: the path of the baseline, as messages show it.
        isolated: True if Dynamo was reset before each test.
        tests: the number of tests that ran.
        facts: the facts of each test that calls compiled code, by test id.
        settings: the settings that tests changed and did not restore.
        passed: the ids of the tests that passed, or failed as expected.
        verdict: the differences from the baseline; `None` if there was no comparison.
        broken: the reason why the run could not be watched: an internal error, or an unsupported
            torch release; "" if there was no problem.
        said: the lines that the terminal shows after the summary.
    """

    mode: str
    file: str = ""
    isolated: bool = False
    tests: int = 0
    facts: dict[str, TestFacts] = field(default_factory=dict)
    settings: list[LeakedSetting] = field(default_factory=list)
    passed: set[str] = field(default_factory=set)
    verdict: Verdict | None = None
    broken: str = ""
    said: list[str] = field(default_factory=list)
