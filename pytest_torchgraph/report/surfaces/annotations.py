"""Annotations: the lines by which a step of GitHub Actions marks lines of code.

The form is that of GitHub's own toolkit: `::error file=net.py,line=3,title=…::text`, where `%` and
line ends are escaped, in properties `:` and `,` as well. GitHub shows ten errors and ten warnings
of a step, and says nothing of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ...audit.facts import CauseKind
from ...audit.outcome import AuditOutcome
from ...audit.summary import causes_over_tests
from ...graph.diff.joining import some
from ...words import counted
from .document import NOWHERE, CodePlace, changes_over_tests, describe_over_tests, place_of_cause
from .workspace import Workspace

Level = Literal["error", "warning"]

MOST = 10
"""How many annotations of a level GitHub shows."""
TESTS = 3
"""How many tests an annotation names."""

TITLES: dict[CauseKind, str] = {
    "break": "graph break",
    "recompile": "recompilation",
    "limit": "recompile limit",
    "eager": "ran eagerly",
    "nothing": "nothing is compiled",
}


@dataclass(frozen=True, slots=True)
class Annotation:
    """A text at a line of code, or at none.

    Attributes:
        level: how GitHub shows it.
        title: a few words.
        text: what is to be said; may have several lines.
        place: the line; of one without a file, and outside of the workspace, the text alone is
            shown.
    """

    level: Level
    title: str
    text: str
    place: CodePlace = NOWHERE

    def command(self, workspace: Workspace) -> str:
        """The line that makes the annotation."""
        path = workspace.path(self.place.file)
        properties = {"file": path, "line": str(self.place.line)} if path else {}
        properties["title"] = f"torchgraph: {self.title}"
        listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
        return f"::{self.level} {listed}::{_data(self.text)}"


def annotations_of(outcome: AuditOutcome) -> list[Annotation]:
    """What is to be said of an audit, at most `MOST`, the costliest first.

    After a check that is what is worse, or that nothing was compared. What the baseline tolerates
    is not said. In the other modes it is each cause.
    """
    found = [*_problems(outcome)]
    if outcome.mode == "check":
        found += _worse(outcome)
    else:
        found += _causes(outcome)
    if len(found) <= MOST:
        return found
    left = len(found) - MOST + 1
    text = f"and {left} more, in the step summary and in the log's section torchgraph audit (-v)"
    return [*found[: MOST - 1], Annotation(found[-1].level, f"{left} more", text)]


def _problems(outcome: AuditOutcome) -> Iterator[Annotation]:
    level: Level = "error" if outcome.mode == "check" else "warning"
    if outcome.broken:
        text = f"this run could not be watched, and nothing of it is judged: {outcome.broken}"
        yield Annotation(level, "not watched", text)
    elif outcome.mode == "check" and not outcome.verdict:
        yield Annotation(level, "not checked", "\n".join(outcome.said))
    elif outcome.verdict and outcome.verdict.vacuous:
        yield Annotation(level, "nothing was compared", outcome.said[0])


def _worse(outcome: AuditOutcome) -> Iterator[Annotation]:
    title = f"worse than {outcome.file}"
    for each in changes_over_tests(outcome.verdict.worse if outcome.verdict else ()):
        yield Annotation("error", title, _with_tests(each.text, each.place, each.tests), each.place)


def _causes(outcome: AuditOutcome) -> Iterator[Annotation]:
    for each in causes_over_tests(outcome.facts):
        place = CodePlace.parse(each.cause.guard_place)
        if not place.file:
            place = place_of_cause(each.cause, outcome.facts[each.tests[0]])
        said = "\n".join(filter(None, (describe_over_tests(each), each.cause.guard)))
        text = _with_tests(said, place, each.tests)
        yield Annotation("warning", TITLES[each.cause.kind], text, place)


def _with_tests(text: str, place: CodePlace, tests: Sequence[str]) -> str:
    if place.file and place.file not in text:
        text += f" ({place.shown})"
    return f"{text}\n{counted(len(tests), 'test')}: {some(tests, TESTS)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
