"""Findings and causes in words, as plain data that can be sent, stored as JSON and printed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..cost.cost import UNKNOWN, Cost, sum_of
from ..model import Node
from ..text.format import format_node
from .abridged import abridged
from .causes import Cause, same_edits
from .findings import Finding
from .headings import edit_name
from .identity import Identity
from .words import sides, sign_of

MAX_TEXT = 160
"""How many characters of a node or a line of code are kept."""
MAX_MODULES = 64
"""How many modules of a finding are kept."""


@dataclass(frozen=True, slots=True)
class Described:
    """A finding in words.

    Attributes:
        sign: of the kind of change, see `SIGNS`.
        what: what the edit did, `aten.gelu -> aten.relu`.
        modules: the modules that it is in, each once, the first ones; none where `what` says it.
        places: how many places it has.
        source: the line of the user's code, "" where it is not known.
        before, after: the primary node as it was and as it is, "" where there is none.
        identity: by what the same edit is known elsewhere.
        cost: what it costs.
    """

    sign: str
    what: str
    modules: tuple[str, ...]
    places: int
    source: str
    before: str
    after: str
    identity: Identity
    cost: Cost = UNKNOWN

    def data(self) -> dict[str, Any]:
        """Plain data, which `from_data` takes back."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Described:
        """What `data` gave."""
        identity = Identity(**{**data["identity"], "edits": tuple(data["identity"]["edits"])})
        modules, cost = tuple(data["modules"]), Cost(**data["cost"])
        return cls(**{**data, "modules": modules, "identity": identity, "cost": cost})


@dataclass(frozen=True, slots=True)
class CauseInWords:
    """A cause in words.

    Attributes:
        findings: what was found of it, at least one for each file.
        files: the files, or tests, that it is found in.
    """

    findings: tuple[Described, ...]
    files: tuple[str, ...]

    @property
    def first(self) -> Described:
        """The first finding."""
        return self.findings[0]

    @property
    def places(self) -> int:
        """How many places it has over all files."""
        return sum(finding.places for finding in self.findings)

    @property
    def cost(self) -> Cost:
        """What it costs over all files; a figure that one of them does not know is None."""
        return sum_of(finding.cost for finding in self.findings)

    @property
    def sources(self) -> tuple[str, ...]:
        """The lines of the user's code that are known, each once."""
        return tuple(dict.fromkeys(each.source for each in self.findings if each.source))

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that it is in, each once."""
        return tuple(dict.fromkeys(path for each in self.findings for path in each.modules))

    @property
    def where(self) -> str:
        """The modules, abridged; "" where it is in none."""
        return abridged(self.modules)

    def to_json(self) -> dict[str, Any]:
        """What a program may want to know of it."""
        return {
            "sign": self.first.sign,
            "what": self.first.what,
            "where": self.where,
            "places": self.places,
            "cost": asdict(self.cost),
            "sources": list(self.sources),
            "before": self.first.before,
            "after": self.first.after,
            "files": list(self.files),
        }


def described(finding: Finding) -> Described:
    """A finding in words, of bounded size."""
    modules = dict.fromkeys(place.module for place in finding.places if place.module)
    simple = not finding.summary
    before, after, _ = sides(finding)
    return Described(
        sign=sign_of(finding),
        what=shortened(edit_name(finding)),
        modules=tuple(modules)[:MAX_MODULES] if simple else (),
        places=len(finding.places),
        source=source_text(finding.changes[0].node),
        before=shortened(format_node(before)) if simple and before else "",
        after=shortened(format_node(after)) if simple and after else "",
        identity=finding.identity,
        cost=finding.cost,
    )


def source_text(node: Node) -> str:
    """The user's line of a node in words, of bounded size; "" if it is unknown."""
    source = node.source
    return shortened(f"{source}: {source.code.strip()}".rstrip(": ")) if source else ""


def problem_described(problem: str) -> Described:
    """A problem in words, where a comparison failed without any finding: equal ones are one."""
    problem = shortened(" ".join(problem.split()))
    return Described("!", problem, (), 1, "", "", "", Identity(edits=(f"problem {problem}",)))


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
            tuple(items[k][1] for k in group),
            tuple(dict.fromkeys(items[k][0] for k in group)),
        )
        for group in groups
    ]
    return sorted(causes, key=lambda cause: -len(cause.files))


def cause_in_words(cause: Cause) -> CauseInWords:
    """A cause in words."""
    return CauseInWords(tuple(map(described, cause.findings or (cause.finding,))), cause.files)


def shortened(text: str) -> str:
    """A text, or its beginning where it is longer than `MAX_TEXT`."""
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 2]} …"
