"""The section "stored graphs" at the end of a run, with a line for each file.

Every failure imports this module, even in projects without graphs. So this module does not import
the graph modules.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..errors import OutsideRootError
from ..settings import config as settings
from ..words import counted, format_ranks, listed, one_line
from .files import remove_leftovers
from .run import RunRecord
from .stale import StaleFiles, remove

if TYPE_CHECKING:
    from ..graph.model import Detail
    from ..graph.program import Program
    from .compare import Comparison
    from .file_names import ReleaseFiles


PRUNE = "--torchgraph-prune"

ADDED = "now includes: "
"""Begin of the change of an updated file whose graphs are equal."""

UPDATE = "--torchgraph-update"

MOST = 10
"""Maximum number of replaced, renamed or unchanged files to list.

Unless the run is verbose, more files are only counted; for replaced files, the causes are listed.
"""


def summarize(reporter: pytest.TerminalReporter, run: RunRecord, stale: StaleFiles) -> None:
    """Print the section if it has lines, and remove stale files with `--torchgraph-prune`.

    An update or a prune also removes the temporary files of killed processes.
    """
    config = reporter.config
    config_settings = settings.get(config)
    lines = [*_update_lines(config, run)]
    lines += _prune(config, run, stale) if config_settings.prune else _stale_lines(config, stale)
    if config_settings.update or config_settings.prune is True:  # "check" removes nothing
        for directory in {path.parent for path in run.compared}:
            remove_leftovers(directory, root=config.rootpath)
    if any(action == "refused" for action, _, _ in run.stored):
        run.end_with()
    if lines:
        reporter.section("stored graphs")
        for line in lines:
            reporter.line(one_line(line))


def _update_lines(config: pytest.Config, run: RunRecord) -> Iterator[str]:
    """Yield a line for each file that an update wrote or kept; one line if nothing was stored."""
    if settings.get(config).update and not run.comparing and not config.option.collectonly:
        yield "nothing stored: no test compared graphs"
    changed_paths = {path for _, path, change in run.stored if change}
    # The lines by action and cause, and the number of lines of each action that may be counted.
    lines: dict[tuple[str, str | None], list[str]] = {}
    numbers: Counter[str] = Counter()
    outcomes = {(not change, path, action, change) for action, path, change in run.stored}
    for _, path, action, change in sorted(outcomes):
        # A file without a description did not change. Such files come last. If another test
        # changed the file, its line is enough.
        if not change and path in changed_paths:
            continue
        cause = _cause(run, action, path, change)
        numbers[action] += cause is not None
        shown = f"{action}  {settings.display_path(config, Path(path))}"
        lines.setdefault((action, cause), []).append(f"{shown}: {change}" if change else shown)
    listed_lines: list[str] = []
    counted_lines: list[str] = []
    for (action, cause), lines_of_cause in lines.items():
        if action == "unchanged":  # the last of all
            listed_lines, counted_lines = [*listed_lines, *counted_lines], []
        if cause is None or numbers[action] <= MOST or config.option.verbose > 0:
            listed_lines += lines_of_cause
        else:
            number = counted(len(lines_of_cause), "file")
            text = f"{number}: {cause}" if cause else number
            counted_lines.append(f"{action}  {text} (-v lists them)")
    yield from (*listed_lines, *counted_lines)


def _cause(run: RunRecord, action: str, path: str, change: str) -> str | None:
    """Return the words under which many files are counted; `None` for a file with its own line.

    The causes of replaced files are listed by `report.causes`.
    """
    if path in run.replaced or not change:
        return ""
    if action in ("renamed", "not compared") or change.startswith(ADDED):
        return change.partition(": ")[2] or change
    return None


def _stale_lines(config: pytest.Config, stale: StaleFiles) -> Iterator[str]:
    """Yield the line about stale files of a run that removes nothing."""
    if stale.files:
        yield f"stale, no test compares them: {_first(config, stale.files)} ({PRUNE} removes them)"


def _prune(config: pytest.Config, run: RunRecord, stale: StaleFiles) -> Iterator[str]:
    """Remove the stale files, or fail the run because of them.

    Yield a line for each stale file, and lines about kept files. "check" removes nothing.
    """
    is_check = settings.get(config).prune == "check"
    if stale.reason:
        yield f"nothing {'checked' if is_check else 'removed'}: {stale.reason}"
        if is_check:
            run.end_with(pytest.ExitCode.TESTS_FAILED)
        return
    if is_check and stale.files:
        run.end_with(pytest.ExitCode.TESTS_FAILED)
        yield f"stale, no test compares them ({PRUNE} removes them):"
        yield from (f"  {settings.display_path(config, path)}" for path in stale.files)
    for path, error in () if is_check else remove(stale, config.rootpath):
        if isinstance(error, OutsideRootError):
            run.end_with()
            yield f"refused  {settings.display_path(config, path)}: {error.reason}"
        else:
            yield f"removed  {settings.display_path(config, path)}" if error is None else str(error)
    if not stale.files:
        # A folder among the arguments limits the search.
        given = [path for path in config.args if path in config.invocation_params.args]
        within = f" in {', '.join(given)}" if given else ""
        yield f"no stale file{within}" if is_check else "nothing to remove"
    if stale.elsewhere:
        yield (
            f"kept {_first(config, stale.elsewhere)}: no test ran on {', '.join(stale.devices)} "
            "in this run"
        )
    if stale.others:
        yield (
            f"kept {_first(config, stale.others)}: this run does not use torch "
            f"{', '.join(stale.releases)}"
        )
    for reason, paths in stale.skipped.items():
        yield f"kept {_first(config, paths)}: {reason}"
    for file, reason in sorted(stale.kept.items()):
        yield f"kept all of {file}: {reason}"


def _first(config: pytest.Config, paths: Sequence[Path]) -> str:
    """Return the first of several paths, and the number of the rest."""
    return listed((settings.display_path(config, path) for path in paths), 1)


MOST_CHANGES = 3
"""Maximum number of findings, graphs or counts named in a line; more are counted."""

MOST_OF_MESSAGE = 200
"""Maximum number of characters of an error message, to keep it on one line."""


def describe(failed: Comparison, detail: Detail = "dataflow") -> str:
    """Describe the graphs of a new file, or the findings of a replaced file.

    Without findings, return the problem of the comparison and its first lines.

    Args:
        failed: the comparison that failed.
        detail: the level of detail of the comparison.
    """
    if failed.is_new:
        return _contents(failed.current, detail)
    try:
        lines = [*failed.details] if failed.problem or not failed.diff else []
        lines += [line for part in failed.parts if lines for line in part.details]
    except Exception:  # the headline has the reason
        lines = []
    # With detail "full", the details are lines of a text difference (`compare._full_lines`).
    lines = [" ".join(line.split()) for line in lines if line and not line.startswith(("+", "-"))]
    first = listed(dict.fromkeys(lines), MOST_CHANGES, between="; ")
    return f"{headline(failed)}: {first}" if first else headline(failed)


def headline(failed: Comparison) -> str:
    """Return a one-line summary of a failed comparison."""
    from .compare import GRAPHS_DIFFER

    if failed.problem not in ("", GRAPHS_DIFFER) and not failed.parts:
        return failed.problem
    # The problem of ranks says which of them differ, and those of their parts how.
    prefix = f"{failed.problem}: " if failed.parts else ""
    problems = dict.fromkeys(part.problem for part in failed.parts or [failed] if part.problem)
    try:
        summaries = [*problems]
        if failed.diff:
            others = (problem for problem in problems if problem != GRAPHS_DIFFER)
            summaries = [failed.diff.heading(), *others]
    except Exception as error:
        summaries = [f"the graphs differ (cannot describe the difference: {brief(error)})"]
    return prefix + ("; ".join(summaries) or "the graphs differ")


def describe_other_text(stored: str, now: Program, detail: Detail) -> tuple[str, str]:
    """Describe a stored text of equal graphs: its other names, and the facts that it lacks.

    Both are "" if only its format is old. An update does not rewrite a file for that: it would
    change every file of a project at once, and hide the real changes. A file that lacks a fact
    matches any value of it, so an update adds it.
    """
    from ..graph.equality import renamed_values
    from ..graph.program import missing_facts
    from .compare import read_stored, same_flat_text, same_ranks

    if same_flat_text(stored, now, detail):  # as an update keeps it; parsing takes much longer
        return "", ""
    old = read_stored(stored)
    facts = ", ".join(missing_facts(old, now))
    # A single capture has no ranks to pair.
    program_pairs = [
        (stored_part, current_part) for _, stored_part, current_part in same_ranks(old, now, detail)
    ] or [(old, now)]
    pairs = [
        pair
        for stored_part, current_part in program_pairs
        if stored_part.graphs
        for pair in renamed_values(stored_part.graphs, current_part.graphs)
    ]
    if not pairs:
        return "", facts
    shortest = dict.fromkeys(f"{old} -> {new}" for old, new in map(_without_common_words, pairs))
    return f"{counted(len(pairs), 'name')}: {listed(shortest, MOST_CHANGES)}", facts


def _without_common_words(pair: tuple[str, str]) -> tuple[str, str]:
    """Return two names without their common leading and trailing words."""
    old, new = (re.split(r"(?<=[./])|(?=[./])", name) for name in pair)
    # At least one word of each name remains, even if one name begins with the other.
    while old[1:] and new[1:] and old[0] == new[0]:
        del old[0], new[0]
    while old[1:] and new[1:] and old[-1] == new[-1]:
        del old[-1], new[-1]
    return "".join(old), "".join(new)


def describe_new_file(release: str, files: ReleaseFiles, change: str) -> str:
    """Return the line about a new file of a torch release that had compared with another file.

    Args:
        release: the release that the compared file belongs to.
        files: the candidate files.
        change: the difference of the graph from that file; "" if there is none.
    """
    if change:
        return f"compared with torch {release}: {change}"
    missing_note = f"; no graph is stored for torch {files.next[0]} yet" if files.next else ""
    return f"equal to the graph stored for torch {release}{missing_note}"


def _contents(program: Program, detail: Detail) -> str:
    """Describe the graphs of a new file; for ranks, those of each class of equal ranks."""
    if detail == "ops":
        return f"op counts only: {_contents(program, 'dataflow')}"
    if not program.sections:
        return _graphs(program)
    classes = program.classes(detail)
    parts = [f"{format_ranks(ranks)}: {_graphs(program_part)}" for ranks, program_part in classes]
    return listed(parts, MOST_CHANGES, between="; ")


def _graphs(program: Program) -> str:
    """Return the names and sizes of graphs, and the share of compiled ops if any ran eagerly."""
    from ..graph.text import ops_in_words

    parts = [f"{graph.name} {ops_in_words(graph)}" for graph in program.graphs]
    op_runs = [(graph.eager, graph.op_counts.total() * graph.runs) for graph in program.graphs]
    compiled = sum(count for is_eager, count in op_runs if not is_eager)
    share = f"; {100 * compiled // max(1, sum(count for _, count in op_runs))}% of the ops compiled"
    return listed(parts, MOST_CHANGES) + share * any(is_eager for is_eager, _ in op_runs)


def brief(error: Exception) -> str:
    """Return the type of an error and the first line of its message."""
    first = (str(error).splitlines() or [""])[0][:MOST_OF_MESSAGE]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
