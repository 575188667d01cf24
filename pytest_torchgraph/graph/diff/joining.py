"""Merge findings of several comparisons, and convert a finding to plain data.

An edit that occurs in forty files, or on eight ranks, is one finding with the names of these files
or ranks. Findings are merged by their `identity`. They may come from this process, or from the
plain data of another process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ...words import counted, first_lines, format_ranks, grouped, listed
from ..cost import sum_of
from ..model import Source
from .findings import Change, Finding, GraphDiff, Identity, digest
from .forms import form_of
from .paths import abridged
from .union_find import UnionFind
from .words import cost_lines, edit_name, sign_of, why_lines

MAX_TEXT = 160
"""Maximum number of characters of a node or a line of code."""
MAX_OPS = 16
"""Maximum number of further added and removed ops in the data of a finding."""
MAX_MODULES = 64
"""Maximum number of modules in the data of a finding."""
MAX_CAUSES = 10
"""Maximum number of findings to list. Further findings are only counted."""
MAX_FORMS = 4
"""Maximum number of forms of a finding to list, and of further ops of a form."""
MAX_FILES = 3
"""Maximum number of files, or tests, to name for a finding."""


def finding_data(finding: Finding, *, cut: bool = True) -> dict[str, Any]:
    """Return the plain data of a finding; see `Finding.to_json`.

    Args:
        finding: the finding.
        cut: True for data of bounded size.
    """
    source = source_text(finding.source)
    modules = dict.fromkeys(place.module for place in finding.places if place.module)
    form = form_of(finding)
    if cut:
        form |= {word: shorten(form[word]) for word in ("before", "after")}
        form["with"] = [*map(shorten, first_lines(form["with"], MAX_OPS))]
    return _complete_data(
        sign=sign_of(finding),
        what=shorten(edit_name(finding)),
        modules=[*modules][:MAX_MODULES] if not finding.summary or finding.graph_break else [],
        places=len(finding.places),
        cost={"flops": finding.cost.flops, "saved_bytes": finding.cost.saved_bytes},
        sources=[source] if source else [],
        files=[*finding.files],
        ranks=None if finding.ranks is None else [*finding.ranks],
        identity=asdict(finding.identity),
        reasons=[*finding.reasons],
        **form,
        **({"recomputed": [*map(list, finding.recomputed)]} if finding.recomputed else {}),
    )


def whole(finding: Finding) -> Finding:
    """Return a finding whose data are not cut, and without its graphs, which need much memory."""

    def free(changes: Iterable[Change]) -> tuple[Change, ...]:
        return tuple(replace(change, within=()) for change in changes)

    if not finding.places:  # a problem
        return finding
    places = tuple(
        replace(place, changes=free(place.changes), consequences=free(place.consequences))
        for place in finding.places
    )
    return replace(finding, places=places, data=finding_data(finding, cut=False))


def source_text(source: Source | None) -> str:
    """Return a line of the user's code as text of bounded size; "" if unknown."""
    return shorten(f"{source}: {source.code.strip()}".rstrip(": ")) if source else ""


def _complete_data(**data: Any) -> dict[str, Any]:
    """Return the data of a finding with `where` added.

    The edits in `data["identity"]` become a list, as in JSON, in place.
    """
    data["identity"]["edits"] = [*data["identity"]["edits"]]
    return {**data, "where": abridged(data["modules"])}


def _forms(
    group: Iterable[tuple[str, Finding]], entries: Iterable[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the nodes of each form of a cause, with the first file that has it.

    Args:
        group: see `merge_findings`.
        entries: the data of these findings.
    """
    forms: dict[Hashable, dict[str, Any]] = {}
    for (file, _), entry in zip(group, entries, strict=True):
        nodes = {word: entry[word] for word in ("before", "after", "with")}
        # A stranger's page may have the digest of another change.
        text = _VARYING.sub("", "\n".join([nodes["before"], nodes["after"], *nodes["with"]]))
        forms.setdefault((entry.get("form"), text), {**nodes, "file": file})
    return [*forms.values()]


_VARYING = re.compile(r"%[^\s,()[\]]+|(?<=\w)\[[^\]]*\]")
"""Names and sizes in a line of a node, which depend on the code around an edit."""


def problem_finding(problem: str) -> Finding:
    """Return a finding for a comparison that failed without findings. Equal problems merge."""
    problem = " ".join(problem.split())
    tokens = Identity(edits=(digest("problem", problem),))
    data = _complete_data(
        sign="!",
        what=shorten(problem),
        modules=[],
        places=1,
        cost={"flops": None, "saved_bytes": None},
        sources=[],
        before="",
        after="",
        files=[],
        ranks=None,
        identity=asdict(tokens),
        reasons=[],
        **{"with": []},
    )
    return Finding.from_json(data)


def merge_findings(group: Sequence[tuple[str, Finding]]) -> Finding:
    """Merge the findings of one edit into one finding with all their places.

    Args:
        group: at least one pair of a comparison's label (a file, a test) and its finding.
    """
    # The first finding stands for all: its sign, nodes and identity stay. Lists are united, and
    # numbers are added up.
    findings = [finding for _, finding in group]
    data_of_findings = [finding.to_json() for finding in findings]
    files = [*dict.fromkeys(label for label, _ in group)]
    ranks = sorted({rank for finding in findings for rank in finding.ranks or ()})
    cost = sum_of(finding.cost for finding in findings)
    are_of_ranks = any(finding.ranks is not None for finding in findings)
    data = {
        **data_of_findings[0],
        "places": sum(entry["places"] for entry in data_of_findings),
        "cost": {"flops": cost.flops, "saved_bytes": cost.saved_bytes},
        "files": files,
        "ranks": ranks if are_of_ranks else None,
    }
    for key in ("modules", "sources", "reasons"):
        values = (value for entry in data_of_findings for value in entry.get(key) or ())
        data[key] = [*dict.fromkeys(values)]
    forms = _forms(group, data_of_findings)
    if len(forms) > 1:
        data["forms"] = forms
    return replace(
        findings[0],
        places=tuple(place for finding in findings for place in finding.places),
        modules=tuple(path for finding in findings for path in finding.modules),
        files=tuple(files),
        ranks=tuple(ranks) if are_of_ranks else None,
        costs=lambda: cost,
        data=_complete_data(**data),
    )


def merge_edits(
    items: Sequence[tuple[str, Finding]], *, upgraded: Collection[str] = ()
) -> tuple[Finding, ...]:
    """Return each edit of several comparisons once, the most frequent edits first.

    Two findings merge if any of these holds:

    - They are the same edit of the same code, or add and remove the same ops on the same line, with
      the same constants.
    - They replace nodes of the same names with the same ops, and no file has two such findings.
    - They replace all uses of the same ops with the same ops, and these findings are not all in
      exactly the same files.

    Args:
        items: pairs of a comparison's label (a file, a test) and a finding.
        upgraded: labels of comparisons between different releases of torch. In these, findings with
            the same added and removed ops merge regardless of their modules, because a release
            rewrites an op wherever it occurs.
    """
    merged = [
        merge_findings([items[k] for k in group])
        for group in group_same_edits(items, upgraded=upgraded)
    ]
    return tuple(sorted(merged, key=lambda finding: -len(finding.files)))


def group_same_edits(
    items: Sequence[tuple[str, Finding]], *, upgraded: Collection[str]
) -> list[list[int]]:
    """Return groups of numbers of items that are one edit, in the order of their first items.

    Args:
        items, upgraded: see `merge_edits`.
    """
    edits = UnionFind[int]()
    first: dict[str, int] = {}
    rewrites: dict[str, list[int]] = {}
    by_old_nodes: dict[str, list[int]] = {}
    upgraded = frozenset(upgraded)
    for k, (label, finding) in enumerate(items):
        identity = finding.identity
        line = identity.line and f"{identity.line} {identity.op}"  # "" without a line
        for token in filter(None, (*identity.edits, line)):
            edits.join(k, first.setdefault(token, k))
        # A new release of torch changed a fifth of the stored graphs for only three reasons. So
        # between releases, only the ops matter, not the modules.
        if token := identity.release if label in upgraded else identity.rewrite:
            rewrites.setdefault(token, []).append(k)
        if identity.where:
            by_old_nodes.setdefault(identity.where, []).append(k)
    for members in rewrites.values():
        # These edits make the same rewrite. If all of them occur in exactly the same files, they
        # may be independent, so keep them apart. If their files differ, assume one cause.
        files: dict[int, set[str]] = {}
        for k in members:
            files.setdefault(edits.find(k), set()).add(items[k][0])
        if len(set(map(frozenset, files.values()))) > 1:
            for k in members:
                edits.join(k, members[0])
    for members in by_old_nodes.values():
        # If a file has two findings with these names, it is unclear which of the two is the edit of
        # the other files.
        if len({items[k][0] for k in members}) == len(members):
            for k in members:
                edits.join(k, members[0])
    # Groups are in the order of their first items, whichever item represents a group.
    groups = grouped((edits.find(k), k) for k in range(len(items)))
    return [*groups.values()]


def merge_ranks(diffs: Iterable[tuple[Sequence[int], GraphDiff | None]]) -> GraphDiff:
    """Return the difference of several ranks: each edit once, with the ranks that have it.

    Args:
        diffs: pairs of ranks with equal graphs on both sides, and their difference; `None` if a
            side has only op counts.
    """
    parts = [(tuple(sorted(ranks)), diff) for ranks, diff in diffs if diff]
    findings: dict[str, tuple[Finding, list[int]]] = {}
    for ranks, diff in parts:
        for finding in diff.findings:
            # All data counts, not only the identity. If an edit costs more on one rank, this rank
            # has its own finding.
            key = json.dumps(finding.to_json())
            findings.setdefault(key, (finding, []))[1].extend(ranks)
    return GraphDiff(
        tuple(replace(finding, ranks=tuple(sorted(ranks))) for finding, ranks in findings.values()),
        tuple(pair for _, diff in parts for pair in diff.graphs),
        parts=tuple(parts),
    )


def finding_lines(
    findings: Sequence[Finding],
    noun: str = "file",
    limit: int | None = MAX_CAUSES,
    *,
    why: bool = False,
) -> Iterator[str]:
    """Yield a few lines for each finding of several files.

    Args:
        findings: the findings, most frequent first.
        noun: the noun for a file, as in "40 files".
        limit: maximum number of findings to list. The number of files of each finding is limited,
            too. `None` lists everything.
        why: see `Finding.to_text`.
    """
    for finding in findings[:limit]:
        data = finding.to_json()
        yield finding_heading(finding, noun)
        if data["sources"] and not _line_in_heading(data):
            yield f"    {list_some(data['sources'], None if limit is None else 1)}"
        # Without a limit, the forms have none, either.
        yield from (f"    {line}" for line in form_lines(data, limit and MAX_FORMS))
        yield from cost_lines(finding, " in all" if len(finding.files) > 1 else "")
        yield from why_lines(finding) if why else ()
        yield f"    in {list_some(finding.files, None if limit is None else MAX_FILES)}"
    if limit is not None and len(findings) > limit:
        unlisted = findings[limit:]
        files = len({file for finding in unlisted for file in finding.files})
        yield f"... and {counted(len(unlisted), 'more cause')} in {counted(files, noun)}"


def form_lines(data: Mapping[str, Any], limit: int | None = MAX_FORMS) -> Iterator[str]:
    """Yield the lines of the forms of a finding: of each, its nodes, and the file that has it.

    Args:
        data: the plain data of the finding.
        limit: maximum number of forms, and of further nodes of each; `None` for all, whole.
    """
    forms = data.get("forms") or [data]
    for number, form in enumerate(forms[:limit], 1):
        # Texts are shortened where they differ from another form: the first form from the second,
        # each later form from the first.
        other = forms[number == 1 < len(forms)]
        if number > 1:
            yield f"form {number}  in {form['file']}"
        known = {_VARYING.sub("", line): line for line in other["with"]}
        alike = [(known.get(_VARYING.sub("", line), ""), line) for line in form["with"]]
        # Lines that differ come first, then those that differ only in names, then equal lines.
        alike.sort(key=lambda pair: (pair[0] != "") + (pair[1] in other["with"]))
        lines = [
            ("before", other["before"], form["before"]),
            ("after", other["after"], form["after"]),
            *(("with", *pair) for pair in alike),
        ]
        texts = [
            f"{word:<8}{line if limit is None else shorten(line, same)}"
            for word, same, line in lines
            if line
        ]
        # The limit is that of the further nodes, after two lines for `before` and `after`.
        yield from texts if limit is None else first_lines(texts, limit + 2)
    if limit is not None and len(forms) > limit:
        yield f"... and {counted(len(forms) - limit, 'more form')}"


def finding_heading(finding: Finding, noun: str) -> str:
    """Return one line: `~ aten.gelu -> aten.relu in h.{0 … 11}.act  (480 places, 40 files)`.

    If no module is known, as in graphs that torch printed, the line has the user's line of code.
    """
    data = finding.to_json()
    forms = f", {len(data['forms'])} forms" if "forms" in data else ""
    size = counted(len(finding.files), noun)
    if data["places"] != len(finding.files):  # one place in each of them otherwise
        size = f"{counted(data['places'], 'place')}, {size}"
    location = f" in {data['where']}" if data["where"] else ""
    if line := _line_in_heading(data):
        location = f" at {line}"
    ranks = f", {format_ranks(finding.ranks)}" if finding.ranks else ""
    return f"{data['sign']} {data['what']}{location}  ({size}{ranks}{forms})"


def _line_in_heading(data: Mapping[str, Any]) -> str:
    """Return the user's line of a finding in no known module, if there is one; "" otherwise."""
    sources = data["sources"]
    return sources[0] if len(sources) == 1 and not data["where"] else ""


def list_some(items: Sequence[str], limit: int | None) -> str:
    """Return the first texts, shortened if long, and the number of remaining texts."""
    return listed(items if limit is None else map(shorten, items), limit)


def shorten(text: str, other: str = "") -> str:
    """Return a text, or its beginning if it is longer than `MAX_TEXT`.

    If another text has the same beginning, the result has the first difference.
    """
    if len(text) <= MAX_TEXT:
        return text
    pairs = enumerate(zip(text, other, strict=False))
    start = next((k for k, (letter, same) in pairs if letter != same), 0)
    if start < MAX_TEXT - 2:
        return f"{text[: MAX_TEXT - 2]} …"
    # Otherwise the beginning, and the text around the difference: again about `MAX_TEXT` in all.
    return f"{text[:40]} … {text[start - 20 : start + 90]} …"
