"""Findings and causes in words, as plain data that can be sent, stored as JSON and printed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..text.format import format_node
from .causes import Cause, same_edits
from .findings import SIGNS, Finding
from .headings import edit_name
from .identity import Identity
from .words import TOP, places_text

MAX_TEXT = 300
"""How many characters of a node, a line of code or a list of modules are kept."""


@dataclass(frozen=True, slots=True)
class Described:
    """A finding in words.

    Attributes:
        sign: of the kind of change, see `SIGNS`.
        what: what the edit did, `aten.gelu -> aten.relu`.
        where: the modules that it is in, abridged; "" where it is in none, or `what` says it.
        places: how many places it has.
        source: the line of the user's code, "" where it is not known.
        before, after: the primary node as it was and as it is, "" where there is none.
        identity: by what the same edit is known elsewhere.
    """

    sign: str
    what: str
    where: str
    places: int
    source: str
    before: str
    after: str
    identity: Identity

    def data(self) -> dict[str, Any]:
        """Plain data, which `from_data` takes back."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Described:
        """What `data` gave."""
        return cls(**{**data, "identity": Identity(**data["identity"])})


@dataclass(frozen=True, slots=True)
class CauseInWords:
    """A cause in words.

    Attributes:
        first: its first finding.
        files: the files, or tests, that it is found in.
        where: the modules that it is in, each list of modules once.
        places: how many places it has over all files.
    """

    first: Described
    files: tuple[str, ...]
    where: tuple[str, ...]
    places: int

    def to_json(self) -> dict[str, Any]:
        """What a program may want to know of it."""
        return {
            "sign": self.first.sign,
            "what": self.first.what,
            "where": list(self.where),
            "places": self.places,
            "source": self.first.source,
            "before": self.first.before,
            "after": self.first.after,
            "files": list(self.files),
        }


def described(finding: Finding) -> Described:
    """A finding in words, of bounded size."""
    where = "" if finding.summary else places_text(finding)
    source = finding.source
    simple = not finding.summary
    return Described(
        sign=SIGNS[finding.kind],
        what=_cut(edit_name(finding)),
        where="" if where == TOP else _cut(where),
        places=len(finding.places),
        source=_cut(f"{source}: {source.code.strip()}".rstrip(": ")) if source else "",
        before=_cut(format_node(finding.before)) if simple and finding.before else "",
        after=_cut(format_node(finding.after)) if simple and finding.after else "",
        identity=finding.identity,
    )


def causes_in_words(
    items: Sequence[tuple[str, Described]], *, upgraded: Collection[str] = ()
) -> list[CauseInWords]:
    """As `causes_of`, of findings that are known in words alone, those in most files first.

    Args:
        items: of each finding the label of its comparison, and the finding.
        upgraded: see `causes_of`.
    """
    groups = same_edits([(label, each.identity) for label, each in items], upgraded=upgraded)
    causes = [
        CauseInWords(
            items[group[0]][1],
            tuple(dict.fromkeys(items[k][0] for k in group)),
            tuple(dict.fromkeys(items[k][1].where for k in group)),
            sum(items[k][1].places for k in group),
        )
        for group in groups
    ]
    return sorted(causes, key=lambda cause: -len(cause.files))


def cause_in_words(cause: Cause) -> CauseInWords:
    """A cause in words."""
    every = [described(finding) for finding in cause.findings]
    where = tuple(dict.fromkeys(each.where for each in every))
    return CauseInWords(every[0], cause.files, where, cause.places)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 2]} …"
