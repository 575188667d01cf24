"""Compare a captured program with a stored program, at a level of detail.

    same_text     the quick test: equal texts
    compare       the graphs; for ranks, pair by pair of classes
    Comparison    a failed comparison with its difference, for the report

    stored_difference, difference_lines    a difference that is itself stored and compared

The module handles graphs and texts, and is independent of pytest and syrupy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from functools import cached_property
from itertools import pairwise
from typing import get_args

from ..errors import CaptureError, GraphFormatError
from ..graph import Graph, GraphDiff
from ..graph.diff import LAYOUTS_DIFFER, layout_lines
from ..graph.digits import only_floats_differ
from ..graph.equality import equal_programs, strict
from ..graph.model import Detail
from ..graph.program import Program, count_lines
from ..graph.step import needs_links
from ..graph.text import EAGER_KINDS, format_document, format_mesh, parse_text, runs_in_words
from ..words import format_ranks

DETAILS: tuple[Detail, ...] = get_args(Detail)
"""Levels of detail, from the coarsest to the finest."""

MOST_WORK = 100_000_000
"""Maximum estimated work for the difference of two texts, a few seconds."""
MOVED_SECTIONS = 10
"""Number of places assumed besides those that are found."""


_HEADER = re.compile(
    r"torchgraph [1-4]\n"
    r"(?:(?=\w)(?:via [^\s,]+)?(?:(?:^|, )torch [^\s,]+)?(?:(?:^|, )detail (?P<detail>\w+))?"
    r"(?:(?:^|, )digits (?P<digits>\d+))?\n)?"
    r"(?P<mesh>mesh .*\n)?\n",
    re.MULTILINE,
)
"""Header of a document: version, origin (via, torch release), detail, digits, and the mesh of
ranks."""
ONLY_FLOATS = (
    "only float constants differ: if they are random, set a seed before the model is created "
    "(torch.manual_seed(0)), or compare fewer digits: graph_snapshot(digits=3)"
)


GRAPHS_DIFFER = "captured graphs differ from the stored graphs"
"""`Comparison.problem` of graphs with other names or kinds; their difference says more."""


@dataclass(frozen=True)
class Comparison:
    """A failed comparison, which computes its difference on first use.

    Attributes:
        current: the captured program.
        stored: the program in the file; `None` if there is no file or it cannot be read.
        problem: the problem in one line; "" if the difference of the graphs states it.
        details: further lines about the problem.
        parts: for ranks, one comparison per class that differs; empty if the sets of ranks
            differ, and for a single capture.
        ranks: for a part, its ranks in ascending order.
        name: the name of the stored file, without suffix.
        path: the path of the stored file, as messages show it.
        is_new: True if there is no file yet.
        origin: the reason for comparing with another torch release's file; "" if the file belongs
            to the running release.
        writes: the file that an update writes, as messages show it; "" if it is `path`.
        refused: the reason why an update writes nothing; "" if it writes a file.
    """

    current: Program
    stored: Program | None = None
    # `_compare_program` returns these two, so they follow one another.
    problem: str = ""
    details: tuple[str, ...] = ()
    parts: tuple[Comparison, ...] = ()
    ranks: tuple[int, ...] = ()
    name: str = ""
    path: str = ""
    is_new: bool = False
    origin: str = ""
    writes: str = ""
    refused: str = ""

    @property
    def releases(self) -> tuple[str, str] | None:
        """Torch releases of the stored graphs and of this run; `None` if equal or unknown."""
        old = self.stored.header.torch if self.stored else ""
        new = self.current.header.torch
        return (old, new) if old and new and old != new else None

    @property
    def stored_text(self) -> str:
        """Stored graphs as text, in the form that an update writes; "" if no graph is stored."""
        stored = self.stored
        if stored is None or not stored.graphs:
            return ""
        return stored.to_text(stored.header.detail)

    @cached_property
    def text_diff(self) -> list[str]:
        """Unified diff of the texts as stored; empty if no graph is stored.

        If the texts with one line per node differ in fewer lines, the diff is that of these: an
        edit can move a module from a block of many into lines of its own.
        """
        stored, now = self.stored, self.current
        if stored is None or not stored.graphs or not now.graphs:
            return []
        detail = stored.header.detail
        differences = [
            text_difference(stored.to_text(detail, fold=fold), now.to_text(detail, fold=fold))
            for fold in (True, False)
        ]
        # A difference that is too long for its lines is one line.
        return min(differences, key=lambda lines: (len(lines) == 1, len(lines)))

    @cached_property
    def diff(self) -> GraphDiff:
        """Difference of the graphs; empty if no graph is stored, only op counts or nothing."""
        from ..graph.diff import diff_graphs, merge_ranks

        if self.parts:
            return merge_ranks((part.ranks, part.diff) for part in self.parts)
        old, new = self.stored, self.current
        # A file with detail "ops" has counts in place of graphs.
        if old is None or not (old.graphs and new.graphs) or old.sections or new.sections:
            return GraphDiff(())
        return diff_graphs(old.graphs, new.graphs)


def text_difference(stored: str, now: str, context: int = 3) -> list[str]:
    """Return the unified diff of two texts; one line that says why there is none if it is large."""
    old, new = stored.splitlines(), now.splitlines()
    if old == new:
        return []
    # Pairs of neighbours that only the old text has: about two for each place that differs.
    places = sum((Counter(pairwise(old)) - Counter(pairwise(new))).values())
    counts = Counter(new)
    # In each place that differs, difflib compares the lines with all equal ones. Of sections in
    # another order, few such places are found.
    if (places + MOVED_SECTIONS) * (
        len(old) + len(new) + sum(counts[line] for line in old)
    ) > MOST_WORK:
        what = f"up to {places:,} lines differ" if places else "many lines are in another order"
        return [f"{what}, too many for a difference of the texts"]
    return list(unified_diff(old, new, "stored", "now", n=context, lineterm=""))


def same_text(stored: str, text: str) -> bool:
    """Return True if two documents have equal texts, ignoring the version, via and torch release.

    Documents with different texts may still have equal graphs: `compare` decides.
    """
    old, new = _HEADER.match(stored), _HEADER.match(text)
    return (
        old is not None
        and new is not None
        and old.groups() == new.groups()
        and stored[old.end() :] == text[new.end() :]
    )


def read_stored(stored: str) -> Program:
    """Parse a stored text.

    Raises:
        GraphFormatError: if the text is malformed, with the position.
    """
    _check_encoding(stored)
    return parse_text(stored)


def storable(text: str) -> str:
    """Return a text that is about to be stored.

    Raises:
        CaptureError: if it cannot be read again, because it exceeds a limit of the format.
    """
    try:
        read_stored(text)
    except GraphFormatError as error:
        raise CaptureError(f"the graph cannot be stored: {error.problem}") from None
    return text


def parse_stored(stored: str, path: str, update: str = "--torchgraph-update") -> Program:
    """Parse a stored text for a test, whose user reads the error.

    Args:
        stored: the text.
        path: the path of the file, for the error.
        update: the command that stores the graph again.

    Raises:
        GraphFormatError: if the text is malformed, with the path, the position and the remedy.
    """
    try:
        return read_stored(stored)
    except GraphFormatError as error:
        problem = error.problem
        # Some problems name their own remedy, by the option alone.
        if "--torchgraph-update" not in problem:
            problem += (
                ": restore the file from version control, or store the graph again with "
                "--torchgraph-update"
            )
        problem = problem.replace("--torchgraph-update", update)
        raise GraphFormatError(problem, error.line, error.column, path) from None


def _check_encoding(stored: str) -> None:
    """Refuse bytes that are not UTF-8, which `files.read_text` decodes to surrogates."""
    try:
        stored.encode()
    except UnicodeEncodeError as error:
        before = stored[: error.start]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise GraphFormatError("a byte that is not UTF-8", line, column) from None


def same_flat_text(stored: str, now: Program, detail: Detail) -> bool:
    """Return True if a stored text equals the unfolded text of a program.

    An update keeps such a file, although it would write a folded text. The check is many times
    faster than parsing the file and comparing its graphs.
    """
    return same_text(stored, now.to_text(detail, fold=False))


def is_stored(stored: str, now: Program, detail: Detail) -> bool:
    """Return True if a text holds these graphs with exactly this detail; False if malformed."""
    # Texts first: reading a file and comparing its graphs takes many times as long.
    if same_text(stored, now.to_text(detail)) or same_flat_text(stored, now, detail):
        return True
    try:
        program = read_stored(stored)
    except GraphFormatError:
        return False
    return program.header.detail == detail and compare(program, now, detail) is None


def compare(stored: Program, now: Program, detail: Detail) -> Comparison | None:
    """Compare a captured program with a stored one.

    Args:
        stored: the stored program, with at least the detail of the comparison.
        now: the captured program, in canonical form.
        detail: "ops", "dataflow" or "full", see `graph_snapshot`.

    Returns:
        the failed comparison; `None` for a match.
    """
    if bool(stored.sections) != bool(now.sections):
        problem = "cannot compare a single capture with ranks"
        return Comparison(now, stored, problem, _describe_both(stored, now))
    # A file with more detail than asked for can be compared at the coarser level.
    if DETAILS.index(stored.header.detail) < DETAILS.index(detail):
        stored_detail = stored.header.detail
        return Comparison(
            now,
            stored,
            f"the stored file has only detail {stored_detail!r}, but the comparison needs "
            f"{detail!r}",
            (f"compare with graph_snapshot(detail={stored_detail!r}), or store the graph again",),
        )
    if now.sections:
        return _compare_ranks(stored, now, detail)
    mismatch = _compare_program(stored, now, detail)
    return None if mismatch is None else Comparison(now, stored, *mismatch)


def _describe_both(stored: Program, now: Program) -> tuple[str, str]:
    """Return `details` about what each side has: its ranks and mesh, or a single capture."""
    old, new = (
        f"{format_ranks(program.ranks)} of {format_mesh(program.mesh)}"
        if program.sections
        else "single capture"
        for program in (stored, now)
    )
    return f"stored:  {old}", f"now:     {new}"


def _compare_ranks(stored: Program, now: Program, detail: Detail) -> Comparison | None:
    """Compare ranks. Ranks that were equal, and still are, form one part of the comparison.

    If one of eight equal ranks changes, this rank forms another part.
    """
    # As lists: the order of the dimensions decides which ranks share a group.
    if [*stored.mesh.items()] != [*now.mesh.items()]:
        problem = "the captured mesh differs from the stored mesh"
        return Comparison(now, stored, problem, _describe_both(stored, now))
    if stored.ranks != now.ranks:
        problem = "captured ranks differ from the stored ranks"
        return Comparison(now, stored, problem, _describe_both(stored, now))
    parts = tuple(
        Comparison(current, before, *mismatch, ranks=ranks)
        for ranks, before, current in same_ranks(stored, now, detail)
        if (mismatch := _compare_program(before, current, detail)) is not None
    )
    if not parts:
        return None
    differ = [rank for part in parts for rank in part.ranks]
    verb = "differs" if len(differ) == 1 else "differ"
    equal_ranks = sorted({*stored.ranks} - {*differ})
    equal_text = f" ({format_ranks(equal_ranks)} equal)" if equal_ranks else ""
    problem = f"{format_ranks(differ)} {verb} from the stored graphs{equal_text}"
    return Comparison(now, stored, problem, parts=parts)


def same_ranks(
    stored: Program, now: Program, detail: Detail
) -> Iterator[tuple[tuple[int, ...], Program, Program]]:
    """Yield each set of ranks that were equal and still are, with its stored and captured program.

    Args:
        stored: the stored program.
        now: the captured program.
        detail: the level of detail at which captured ranks are equal.
    """
    for ranks, before in stored.sections:
        for current_ranks, current in now.classes(detail):
            if shared := {*ranks}.intersection(current_ranks):
                yield tuple(sorted(shared)), before, current


def _compare_program(
    stored: Program, now: Program, detail: Detail
) -> tuple[str, tuple[str, ...]] | None:
    """Return `problem` and `details` of the `Comparison` of one capture; `None` for a match."""
    if detail == "ops":
        return _compare_counts(stored, now)
    before, after = stored.canonical().graphs, now.graphs
    if _titles(before) != _titles(after):
        return GRAPHS_DIFFER, (f"stored:  {_listing(before)}", f"now:     {_listing(after)}")
    # `Graph.__eq__` compares the dataflow; `strict` adds strides and devices.
    # Equal graphs can be linked otherwise, and graphs that differ can be an equal step.
    linked = needs_links(before) or needs_links(after)
    equal = all(old == new for old, new in zip(before, after, strict=True))
    # `problem` is "": the difference of the graphs states it.
    if not equal and not (linked and equal_programs(before, after)):
        is_rounded = stored.digits is not None
        floats = (ONLY_FLOATS,) if only_floats_differ(before, after, is_rounded) else ()
        return "", (*floats, *(layout_lines(before, after) if detail == "full" else ()))
    if detail == "full" and any(
        strict(old) != strict(new) for old, new in zip(before, after, strict=True)
    ):
        return f"only {LAYOUTS_DIFFER}", _full_lines(before, after)
    runs = _compare_runs(stored, now)
    # If the graphs differ, `equal_programs` has found above that the steps are equal.
    is_same = runs is None and (not linked or not equal or equal_programs(before, after))
    return None if is_same else runs or ("", ())


def _compare_runs(stored: Program, now: Program) -> tuple[str, tuple[str, ...]] | None:
    """Compare the run counts of graphs that are otherwise equal, including their names.

    Return `problem` and `details`, as `_compare_program`.
    """
    # A file of an older version has no run counts. Facts that a file lacks are not compared.
    differing = [
        graph
        for graph in now.graphs
        if graph.name in now.runs and stored.runs.get(graph.name, graph.runs) != graph.runs
    ]
    lines = [
        f"{graph.name} {runs_in_words(graph.runs)}, stored: {stored.runs[graph.name]}"
        for graph in differing
    ]
    if len(lines) < 2:
        return (lines[0], ()) if lines else None
    noun = "eager graphs" if all(graph.eager for graph in differing) else "graphs"
    return f"{len(lines)} {noun} changed their run count", tuple(lines)


def _titles(graphs: tuple[Graph, ...]) -> list[tuple[str, str, bool]]:
    """Return name, kind and `eager` of each graph."""
    return [(graph.name, graph.kind, graph.eager) for graph in graphs]


def _listing(graphs: tuple[Graph, ...]) -> str:
    """Return the names of graphs, each with its kind unless the name or the default says it."""
    return ", ".join(
        name if name == kind or (eager and kind == EAGER_KINDS[0]) else f"{name} ({kind})"
        for name, kind, eager in _titles(graphs)
    )


def _compare_counts(stored: Program, now: Program) -> tuple[str, tuple[str, ...]] | None:
    """Compare the op counts of graphs; see `_compare_program`."""
    before = stored.canonical().op_counts
    after = now.op_counts  # canonical already, see `compare`
    names, new_names = [name for name, _ in before], [name for name, _ in after]
    if names != new_names:
        return GRAPHS_DIFFER, (f"stored:  {', '.join(names)}", f"now:     {', '.join(new_names)}")
    lines = count_lines(before, after)
    noun = "op count differs" if len(lines) == 1 else "op counts differ"
    return (f"{len(lines)} {noun}", tuple(lines)) if lines else _compare_runs(stored, now)


def _full_lines(before: tuple[Graph, ...], after: tuple[Graph, ...]) -> tuple[str, ...]:
    """Return the differing lines of the texts with strides and devices, marked `-` or `+`."""
    old, new = (format_document(g, detail="full", fold=False) for g in (before, after))
    lines = [line.rstrip() for line in text_difference(old, new, context=0)]
    return tuple(line for line in lines if not line.startswith(("---", "+++", "@@")))


def stored_difference(difference: GraphDiff) -> str:
    """Return the text to store for `assert diff(before, after) == graph_snapshot`.

    It is small, and shows what a compiler pass does. It has no source lines, which would change
    with every edit above them.

    Raises:
        AssertionError: if there is no difference.
    """
    if not difference:
        raise AssertionError(
            "nothing to compare, because there is no difference: check with "
            "`assert not diff(before, after)`, or check_pass(..., changes={})"
        )
    text = difference.to_text(limit=None)
    # Remove where the code of each finding is: a part of its line, or a line of its own.
    for finding in difference.findings:
        if (cut := finding.graph_break) is not None:
            text = text.replace(f" at {cut.file}:{cut.line}", "")
        if finding.source is not None:
            line = f"  {finding.source}: {finding.source.code}".rstrip(": ")  # code may be ""
            text = text.replace(f"{line}\n", "\n").removesuffix(line)
    return text + "\n"


def difference_lines(stored: str | None, text: str, path: str, remedy: str) -> list[str]:
    """Return the message of a failed comparison of differences."""
    if stored is None:
        problem = f"no difference is stored for this comparison yet ({path}):"
        return [problem, *text.splitlines(), remedy]
    problem = f"the difference is not the stored one ({path}):"
    return [problem, *text_difference(stored, text), remedy]
