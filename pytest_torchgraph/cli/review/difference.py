"""How the text of an update differs from what is stored, computed from both texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import unified_diff

from ...errors import GraphFormatError, TorchGraphError
from ...graph.diff.findings import Finding
from ...graph.diff.joining import problem_found, shortened
from ...report.comparisons import NOT_STORED, headline
from ...snapshot.compare import Comparison, compare, read_stored
from ...snapshot.pending import SavedUpdate, digest, place_key

SAME_GRAPHS = "equal graphs, in a text with other names, lines, strides or devices"


@dataclass(frozen=True)
class Difference:
    """How an update differs from what is stored.

    Attributes:
        headline: the difference in one line.
        details: further lines about it.
        findings: the differences in words; at least one.
        comparison: the comparison; `None` if one of the texts is unknown or cannot be read.
        texts: the stored text and the new one, `None` for one that is unknown.
    """

    headline: str
    details: tuple[str, ...]
    findings: tuple[Finding, ...]
    comparison: Comparison | None = None
    texts: tuple[str | None, str | None] = (None, None)

    @property
    def is_upgrade(self) -> bool:
        """Whether another release of torch made the new text."""
        return self.comparison is not None and self.comparison.releases is not None

    def text_lines(self) -> list[str]:
        """The difference of the texts with one line a node, if both have graphs."""
        if self.comparison is not None and (lines := self.comparison.text_diff):
            return lines
        stored, now = (text.splitlines() if text else [] for text in self.texts)
        if not stored:
            return now
        return list(unified_diff(stored, now, "stored", "now", lineterm=""))


def difference_of(saved: SavedUpdate, read: Callable[[str], str | None]) -> Difference:
    """Compare the text of an update with the stored one.

    Args:
        saved: the update.
        read: the text of a stored file by its name, `None` if there is none that may be read.
    """
    if saved.text is None and saved.refused:
        return _without_graphs(saved.refused)
    stored, new = _stored(saved, read), saved.text
    if new is not None:
        return _compared(saved, stored, new)
    # No test left the graph that it captured: it is that of the file that takes the place.
    name = saved.successor or ""
    new = _verified(saved, name, read(name))
    removed = f"removes the stored graph {saved.target}, so that {name} takes its place"
    if stored is None or new is None:
        return _without_graphs(removed)
    made = _compared(saved, stored, new)
    return replace(
        made, headline=f"{removed}: {made.headline}", findings=(_problem(removed), *made.findings)
    )


def _stored(saved: SavedUpdate, read: Callable[[str], str | None]) -> str | None:
    """The text that was compared with, known by its digest; `None` if it is not known."""
    name = saved.compared
    if name is None:
        return None
    if saved.stored is not None and digest(saved.stored) == saved.digests[name]:
        return saved.stored
    return _verified(saved, name, read(name))


def _verified(saved: SavedUpdate, name: str, text: str | None) -> str | None:
    return text if text is not None and digest(text) == saved.digests.get(name) else None


def _compared(saved: SavedUpdate, stored: str | None, new: str) -> Difference:
    program = read_stored(new).canonical()
    detail = program.header.detail
    made = Comparison(program, path=saved.target)
    known = saved.compared is not None
    details: tuple[str, ...] = ()
    if not known:
        made = replace(made, problem=f"{NOT_STORED} for this comparison yet", is_new=True)
    elif stored is None:
        return _without_graphs(f"{saved.compared} is no longer the one that was compared")
    else:
        try:
            old = read_stored(stored)
        except GraphFormatError as error:
            problem = (
                f"the old file could not be read ({error.line}:{error.column}: {error.problem})"
            )
            made = replace(made, problem=problem)
        else:
            made = compare(old, program, detail) or replace(made, problem=SAME_GRAPHS)
            details = made.details
            if old.header.detail != detail:
                details = (f"detail {detail!r}, was {old.header.detail!r}", *details)
    try:
        findings = tuple(_with_source(finding, saved) for finding in made.diff.findings)
    except TorchGraphError as error:
        findings, details = (), (*details, f"what differs could not be found out: {error}")
    # Equal problems may be of different edits: op counts are in the details alone.
    words = "; ".join([made.problem or "the graphs differ", *details])
    return Difference(
        "; ".join([headline(made), *(line for line in details if line.startswith("detail "))]),
        details,
        findings or (_problem(words),),
        made,
        (stored, new),
    )


def _with_source(finding: Finding, saved: SavedUpdate) -> Finding:
    """Return a finding with the line of code that the run gave for the same change."""
    source = " ".join(saved.sources.get(place_key(finding.places[0]), "").split())
    shown = [f"{shortened(source)} (says the run)"] if source else []
    return replace(finding, data={**finding.to_json(), "sources": shown})


def _without_graphs(problem: str) -> Difference:
    return Difference(problem, (), (_problem(problem),))


def _problem(text: str) -> Finding:
    """A problem in words, which is known again by all of its text."""
    return problem_found(text, limit=None)
