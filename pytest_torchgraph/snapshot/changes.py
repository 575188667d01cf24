"""One line about an update of a stored file: what is new in it.

Importing this module imports no graphs: whatever fails, in a project without any, comes by here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..words import counted, format_ranks, listed

if TYPE_CHECKING:
    from ..graph.model import Detail
    from ..graph.program import Program
    from .compare import Comparison
    from .release_files import ReleaseFiles

MOST_CHANGES = 3
"""How many findings, graphs or counts are named, so that it is one line; the others are counted."""

_CONSTANT = re.compile(r' +%\S+ = (?:constant|get_attr\[""\])\(')
"""A line with the value of a constant."""
_OPTIONS = re.compile(r' = [\w.]+\["[^"]*"(?:, ".*")?\]\(%')
"""A line with the call of a module."""

MOST_OF_MESSAGE = 200
"""How many characters of an error's message are shown, so that it is one line."""


def describe(failed: Comparison, detail: Detail = "dataflow") -> str:
    """Return the graphs of a new file, or the findings of one that is replaced.

    Without findings the problem of the comparison and its first lines; where the comparison of the
    graphs raises, the error: the file is written all the same.

    Args:
        failed: the comparison that failed.
        detail: what was compared.
    """
    if failed.is_new:
        return _contents(failed.now, detail)
    try:
        findings = failed.diff.findings
    except Exception as error:
        return f"what differs could not be found out: {brief(error)}"
    if not findings:
        said = [line for part in failed.parts for line in (part.problem, *part.details)]
        lines = [*dict.fromkeys((*failed.details, *said))]
        lines = [line for line in lines if line and not line.startswith(("+", "-"))]
        first = listed((" ".join(line.split()) for line in lines), MOST_CHANGES, between="; ")
        return f"{failed.problem}: {first}" if first else failed.problem
    from ..graph.diff.words import heading

    who = f"{_who(failed.parts)}: " if failed.parts else ""
    graphs = [finding.summary for finding in findings if finding.of_graph]
    edits = [finding for finding in findings if not finding.of_graph]
    named = listed(graphs, MOST_CHANGES)
    return who + "; ".join([*([heading(edits)] if edits else []), *([named] if named else [])])


def _who(parts: Sequence[Comparison]) -> str:
    return format_ranks(rank for part in parts for rank in part.ranks)


def renamed(stored: str, now: Program, detail: Detail) -> str:
    """The names that are new, where a stored text has equal graphs; "" where only its form is old.

    A text that is written in another way today, with the same names, is none that has to be
    stored anew: updates would change every file of a project at once, and hide what is new.
    """
    from ..graph.equality.names import renamed_values
    from .compare import read_stored, same_ranks

    old = read_stored(stored)
    both = [(ours, own) for _, ours, own in same_ranks(old, now, detail)] or [(old, now)]
    pairs = [
        pair
        for ours, own in both
        if ours.graphs
        for pair in renamed_values(ours.graphs, own.graphs)
    ]
    if not pairs:
        return ""
    shortest = dict.fromkeys(f"{old} -> {new}" for old, new in map(_apart, pairs))
    return f"{counted(len(pairs), 'name')}: {listed(shortest, MOST_CHANGES)}"


def extended(stored: str, text: str) -> str:
    """The facts that a text has and a stored one of an older version lacks; "" if there are none.

    Such a file matches any of these facts, so that an update has to add them.
    """
    from ..graph.text.format import FACTS_VERSION, GIVEN, TIMES

    first = f"torchgraph {FACTS_VERSION}\n"
    if not text.startswith(first) or stored.startswith(first):
        return ""
    lines = text.split("\n")
    facts = {
        "what the target returned": any(line.startswith("  output ") for line in lines),
        "how often graphs ran": any(
            line.endswith(" {") and f" {TIMES} " in line and not line.startswith(("eager_", " "))
            for line in lines
        ),
        "the values of constants": any(map(_CONSTANT.match, lines)),
        "the options of modules": any(map(_OPTIONS.search, lines)),
        "whose the graphs are": any(line.endswith(f" {GIVEN} {{") for line in lines),
    }
    said = [fact for fact, is_said in facts.items() if is_said]
    return f"says now: {', '.join(said)}" if said else ""


def _apart(pair: tuple[str, str]) -> tuple[str, str]:
    """Two names without the words that both begin with, and those that both end with."""
    old, new = (re.split(r"(?<=[./])|(?=[./])", name) for name in pair)
    while old[1:] and new[1:] and old[0] == new[0]:
        del old[0], new[0]
    while old[1:] and new[1:] and old[-1] == new[-1]:
        del old[-1], new[-1]
    return "".join(old), "".join(new)


def beside(release: str, files: ReleaseFiles, change: str) -> str:
    """The line about a new file of a release of torch that compared with another one's.

    Args:
        release: that of the file that was compared.
        files: the files that count.
        change: how the graph differs from it, "" for not at all.
    """
    if change:
        return f"beside torch {release}, {change}"
    waiting = f"; torch {files.next[0]} has none yet" if files.next else ""
    return f"equal to that of torch {release}{waiting}"


def _contents(program: Program, detail: Detail) -> str:
    if not program.sections:
        return _graphs(program)
    classes = program.classes(detail)
    parts = [f"{format_ranks(ranks)}: {_graphs(own)}" for ranks, own in classes]
    return listed(parts, MOST_CHANGES, between="; ")


def _graphs(program: Program) -> str:
    parts = [f"{graph.name} {counted(graph.op_counts.total(), 'op')}" for graph in program.graphs]
    ran = [(graph.eager, graph.op_counts.total() * graph.runs) for graph in program.graphs]
    compiled = sum(count for is_eager, count in ran if not is_eager)
    share = f"; {100 * compiled // max(1, sum(count for _, count in ran))}% of the ops compiled"
    return listed(parts, MOST_CHANGES) + share * any(is_eager for is_eager, _ in ran)


def brief(error: Exception) -> str:
    """The kind of an error and the first line of its message."""
    first = (str(error).splitlines() or [""])[0][:MOST_OF_MESSAGE]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
