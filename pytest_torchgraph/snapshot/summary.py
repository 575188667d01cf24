"""The section "stored graphs" at the end of a run: files that were written, stale or removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ..errors import OutsideRootError
from ..settings import config as settings
from ..words import counted, listed
from .files import remove_leftovers
from .run import RunRecord
from .stale import Stale, remove

PRUNE = "--torchgraph-prune"

BY_CAUSE = ("renamed", "extended")
"""What an update did to a file whose graphs are equal: many of them are counted by the cause."""

MOST = 10
"""How many files are listed of those that were replaced, renamed or left unchanged.

More are only counted, unless the run is verbose; of those that were replaced the causes are listed.
"""


def summarize(reporter: pytest.TerminalReporter, run: RunRecord, stale: Stale) -> None:
    """Print the section, where it has lines, and remove stale files with `--torchgraph-prune`.

    An update or a prune also removes the temporary files of processes that were killed.
    """
    config = reporter.config
    chosen = settings.get(config)
    lines = [*_stored(config, run)]
    lines += _pruned(config, run, stale) if chosen.prune else _stale(config, stale)
    if chosen.update or chosen.prune:
        for directory in {path.parent for path in run.compared}:
            remove_leftovers(directory, root=config.rootpath)
    if any(how == "refused" for how, _, _ in run.stored):
        run.end_with_trouble()
    if lines:
        reporter.section("stored graphs")
        for line in lines:
            reporter.line(line)


def _stored(config: pytest.Config, run: RunRecord) -> Iterator[str]:
    """A line for each file that an update wrote or left unchanged, or that it had none to write."""
    if settings.get(config).update and not run.comparing and not config.option.collectonly:
        yield "nothing stored: no test that ran compared graphs"
    written = sorted({(path, how, what) for how, path, what in run.stored if what})
    numbers = Counter(how for path, how, _ in written if how in BY_CAUSE or path in run.replaced)
    many = {how: n for how, n in numbers.items() if n > MOST and config.option.verbose <= 0}
    for path, how, what in written:
        if how not in many or (how not in BY_CAUSE and path not in run.replaced):
            yield f"{how}  {settings.shown(config, Path(path))}: {what}"
    for how, number in many.items():
        if how in BY_CAUSE:
            causes = Counter(what.partition(": ")[2] for _, other, what in written if other == how)
            yield from (
                f"{how}  {counted(n, 'file')}: {what} (-v lists them)" for what, n in causes.items()
            )
        else:
            yield f"{how}  {counted(number, 'file')} (-v lists them)"
    paths = {path for path, _, _ in written}
    same = sorted({path for _, path, _ in run.stored} - paths)
    if len(same) > MOST and config.option.verbose <= 0:
        yield f"unchanged  {counted(len(same), 'file')} (-v lists them)"
    else:
        yield from (f"unchanged  {settings.shown(config, Path(path))}" for path in same)


def _stale(config: pytest.Config, stale: Stale) -> Iterator[str]:
    """The line of a run that removes nothing."""
    if stale.files:
        yield f"stale, no test compares them: {_first(config, stale.files)} ({PRUNE} removes them)"


def _pruned(config: pytest.Config, run: RunRecord, stale: Stale) -> Iterator[str]:
    """Remove the stale files; a line for each of them, and for what was kept."""
    if stale.reason:
        yield f"nothing removed: {stale.reason}"
        return
    for path, error in remove(stale, config.rootpath):
        if isinstance(error, OutsideRootError):
            run.end_with_trouble()
            yield f"refused  {settings.shown(config, path)}: {error.reason}"
        else:
            yield f"removed  {settings.shown(config, path)}" if error is None else str(error)
    if not stale.files:
        yield "nothing to remove"
    if stale.elsewhere:
        yield (
            f"kept {_first(config, stale.elsewhere)}: no test compares "
            f"{'it' if len(stale.elsewhere) == 1 else 'them'} here, and none ran on "
            f"{', '.join(stale.devices)}"
        )
    if stale.others:
        yield (
            f"kept {_first(config, stale.others)}: no test compares "
            f"{'it' if len(stale.others) == 1 else 'them'} here, and this run is not of torch "
            f"{', '.join(stale.releases)}"
        )
    for reason, paths in stale.skipped.items():
        yield f"kept {_first(config, paths)}: {reason}"
    for file, reason in sorted(stale.kept.items()):
        yield f"kept all of {file}: {reason}"


def _first(config: pytest.Config, paths: Sequence[Path]) -> str:
    return listed((settings.shown(config, path) for path in paths), 1)
