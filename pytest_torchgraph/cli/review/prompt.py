"""Review in a terminal, with one question per cause, and `accept`, which stores the graphs.

The review resembles `git add -p`. It uses only `input` and `print`, so it works in every terminal,
including on Windows.
"""

from __future__ import annotations

import os
import sys
import tempfile
import webbrowser
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import TorchGraphError
from ...files import write
from ...graph.diff import finding_lines, list_some
from ...snapshot.files import read_text
from ...words import counted, first_lines, one_line
from .listing import MAX_OTHERS, describe_open, notes
from .waiting import NumberedCause, PendingUpdates, Update


@dataclass(frozen=True, slots=True)
class Accepted:
    """The outcome of accepting causes.

    Attributes:
        written: the updates made (or, in a dry run, to be made), each with "created", "updated" or
            "removed".
        held: the updates that also have causes not accepted yet, with the numbers of these causes.
        refused: the updates that are impossible or could not be written, with the reason.
    """

    written: list[tuple[Update, str]] = field(default_factory=list)
    held: list[tuple[Update, list[int]]] = field(default_factory=list)
    refused: list[tuple[Update, str]] = field(default_factory=list)


def accept(
    pending: PendingUpdates,
    updates: Iterable[Update],
    causes: Collection[int] | None = None,
    *,
    dry_run: bool = False,
) -> Accepted:
    """Make the pending updates whose causes are all accepted.

    Args:
        pending: all updates of the directory.
        updates: the updates to make.
        causes: the numbers of the accepted causes; `None` for all. An update with any other cause
            is held.
        dry_run: if True, write nothing.
    """
    accepted = Accepted()
    for update in updates:
        state, reason = update.state()  # now: its file may have changed since the list was printed
        if state == "stored":
            continue
        own_causes = pending.causes_by_target[update.target]
        other_causes = own_causes - set(own_causes if causes is None else causes)
        if state == "refused":
            accepted.refused.append((update, reason))
        elif other_causes:
            accepted.held.append((update, sorted(other_causes)))
        else:
            try:
                accepted.written.append((update, _apply(update, dry_run=dry_run)))
            except TorchGraphError as error:
                accepted.refused.append((update, str(error)))
    pending.refresh()
    return accepted


def _apply(update: Update, *, dry_run: bool) -> str:
    """Make an update, unless this is a dry run; return "created", "updated" or "removed"."""
    text, is_new = update.saved.text, read_text(update.path) is None
    if not dry_run:
        write(update.path, text, root=update.root)
    if text is None:
        return "removed"
    return "created" if is_new else "updated"


def outcome(accepted: Accepted, *, dry_run: bool = False) -> Iterator[str]:
    """Yield one line for each update made, held or refused."""
    for update, written in accepted.written:
        action = f"would be {written}" if dry_run else written
        yield f"{action}  {update.target}: {update.difference.headline}"
    for update, other_causes in accepted.held:
        numbers = ", ".join(map(str, other_causes))
        yield (
            f"pending  {update.target}: this file also has cause {numbers}. Accept that cause "
            "too, or undo its edit and run the tests again"
        )
    for update, reason in accepted.refused:
        yield f"refused  {update.describe_refusal(reason)}"


QUESTION = "store the graphs that this cause changed [y,n,d,o,q,?]? "
HELP = """\
y  store the graphs that this cause changed
n  leave these graphs pending
d  show one of these graphs: findings and text difference (d again: the next graph)
o  open a picture of the difference of that graph
q  quit; the remaining graphs stay pending
A file with two causes is written once both are accepted. A file that changed after the test ran is
never written: run the test again."""
MAX_GRAPHS = 10
"""Maximum number of graphs of a cause listed before the question."""


def ask(pending: PendingUpdates) -> None:
    """Ask about each chosen pending cause, and store the graphs of accepted causes."""
    accepted: set[int] = set()
    stored: list[int] = []
    causes = pending.open_causes
    with suppress(KeyboardInterrupt, EOFError):
        for position, cause in enumerate(causes, 1):
            pending.refresh()
            if not any(map(pending.is_open, cause.updates)):
                continue  # stored with a cause accepted earlier
            _print(["", f"cause {cause.number}, {position} of {len(causes)}"])
            _print(_details(pending, cause))
            answer = _answer(cause)
            if answer == "q":
                break
            if answer == "y":
                accepted.add(cause.number)
                accepted_now = accept(pending, cause.updates, accepted)
                stored.append(len(accepted_now.written))
                _print(_outcome(accepted_now))
    # Here after the last cause, after "q", and after the end of the input (Ctrl-C or Ctrl-D).
    total = f"{counted(sum(stored), 'graph')} stored; " if any(stored) else "no graph stored; "
    if len(stored) == 1 and any(stored):
        total = ""  # printed after the answer
    left = describe_open(pending)
    closing = total + (f"left: {left}" if left else "nothing left")
    _print(["", closing, *(f"! {reason}" for reason in pending.unreadable)])


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(one_line(line))


def _answer(cause: NumberedCause) -> str:
    """Ask until the answer is y, n or q, and return it; handle d, o and ?.

    Each d shows the next graph, and after the last the first again. An o draws the graph that was
    shown last; before the first d, the first graph.
    """
    shown_count = 0
    while True:
        answer = input(QUESTION).strip().lower()[:1]
        if answer in ("y", "n", "q"):
            return answer
        if answer == "d":
            number = shown_count % len(cause.updates)
            _print([f"graph {number + 1} of {len(cause.updates)}"])
            _print(_update_details(cause.updates[number]))
            shown_count += 1
        elif answer == "o":
            _print([_open_picture(cause.updates[max(shown_count - 1, 0) % len(cause.updates)])])
        else:
            print(HELP)


def _details(pending: PendingUpdates, cause: NumberedCause) -> Iterator[str]:
    """Describe a cause, its cost, and its graphs."""
    yield from finding_lines([cause.words])
    if note := notes(pending, cause):
        yield f"    note    {note}"
    yield f"{counted(len(cause.updates), 'graph')}:"
    graphs = []
    for update in cause.updates:
        state, reason = pending.states[update.target]
        other_causes = sorted(pending.causes_by_target[update.target] - {cause.number})
        # A graph that is stored or refused is so marked, whatever other causes it has.
        mark = f" ({state}{': ' if reason else ''}{reason})" if state != "waits" else ""
        if other_causes and not mark:
            mark = f" (also has cause {list_some([*map(str, other_causes)], MAX_OTHERS)})"
        # The id of a test is shorter, but does not say which file a stranger's update replaces.
        file = "" if update.saved.is_named_after_its_test else f": {update.target}"
        graphs.append(f"  {update.saved.test}{file}{mark}")
    yield from first_lines(graphs, MAX_GRAPHS, "graph")


def _update_details(update: Update) -> Iterator[str]:
    """Describe one stored graph: the problem, all changed nodes, and the text difference."""
    difference = update.difference
    yield from (f"test    {update.saved.test}", f"file    {update.target}", difference.headline)
    yield from (*difference.details, "")
    comparison = difference.comparison
    for finding in comparison.diff.findings if comparison is not None else ():
        yield from (*finding.to_text(limit=sys.maxsize).splitlines(), "")
    yield from difference.text_lines()


def _outcome(accepted: Accepted) -> Iterator[str]:
    """Yield what the answer "y" did, shorter than `outcome`: the graphs were listed before."""
    yield f"{counted(len(accepted.written), 'graph')} stored"
    if accepted.held:
        other_causes = sorted({number for _, numbers in accepted.held for number in numbers})
        held = counted(len(accepted.held), "graph")
        yield f"{held} pending until you also accept cause {', '.join(map(str, other_causes))}"
    for update, reason in accepted.refused:
        yield f"refused  {update.describe_refusal(reason)}"


def _open_picture(update: Update) -> str:
    """Open a picture in the browser; return a line with its path, or the reason for a failure."""
    try:
        picture = _draw(update)
    except (TorchGraphError, OSError) as error:
        return f"no picture: {error}"
    # Without a desktop, `webbrowser` may start a browser in this terminal.
    desktop = os.environ.keys() & {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"}
    if not desktop and sys.platform not in ("darwin", "win32"):
        return f"no desktop was found: open {picture} yourself"
    is_opened = webbrowser.open(picture.resolve().as_uri())
    return f"opened {picture}" if is_opened else f"no browser was found: open {picture} yourself"


def _draw(update: Update) -> Path:
    """Draw the difference of an update into a new directory, and return the SVG file.

    The picture is drawn from the texts that were read. A picture in the artifacts is untrusted, and
    a browser would run its scripts.

    Raises:
        TorchGraphError: if the update has no difference of graphs, or no renderer is available.
    """
    from ...render.difference import drawing
    from ...render.output import draw

    comparison = update.difference.comparison
    # Of several classes of ranks that differ, only the first is drawn.
    parts = () if comparison is None else comparison.parts or (comparison,)
    diff = next(filter(None, (part.diff for part in parts)), None)
    if diff is None:
        raise TorchGraphError("no graph differs")
    path = Path(tempfile.mkdtemp(prefix="torchgraph-")) / "difference.svg"
    rendered = draw(drawing(diff).digraph, path)
    if rendered.renderer is None:
        raise TorchGraphError(rendered.note)
    return rendered.path
