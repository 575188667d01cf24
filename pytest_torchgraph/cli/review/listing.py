"""Pending causes, with the numbers for `--cause`, as text, Markdown or JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from ...graph.diff import Finding, finding_lines, merge_findings
from ...words import counted, markdown_code
from ..formats import markdown_table
from .waiting import NumberedCause, PendingUpdates

MAX_OTHERS = 3
"""Maximum number of causes to name that a cause shares files with."""
ACCEPT = "pytest-torchgraph review --accept"


def listing(pending: PendingUpdates) -> Iterator[str]:
    """Yield a few lines for each pending cause, and the commands to accept causes."""
    yield heading(pending)
    for cause in pending.open_causes:
        head, *further_lines = finding_lines([_without_accepted(pending, cause)])
        yield f"{cause.number:>3}  {head}"
        yield from (f"   {line}" for line in further_lines)
        if note := notes(pending, cause):
            yield f"       {note}"
    changed = False
    for update in pending.chosen:
        state, reason = pending.states[update.target]
        if state == "refused":
            yield f"!  {update.describe_refusal(reason)}"
            # Unless the run refused it, the usual reason is that the file has changed since.
            changed |= not update.saved.refused
    yield from (f"!  {problem}" for problem in pending.unreadable)
    if changed and pending.is_default:
        yield "discard the changes of earlier runs:  pytest --cache-clear"
    if any(state == "waits" for state, _ in pending.states.values()):
        yield f"accept one:  {accept_command(pending, '--cause=N')}"
        yield f"accept all:  {accept_command(pending)}"


def markdown(pending: PendingUpdates) -> Iterator[str]:
    """Yield the pending causes as a Markdown table."""
    yield f"**{heading(pending)}**"
    if causes := pending.open_causes:
        head, rule, *rows = markdown_table([_without_accepted(pending, cause) for cause in causes])
        yield from ("", f"| cause {head}", f"|---:{rule}")
        yield from (f"| {cause.number} {row}" for cause, row in zip(causes, rows, strict=True))
    refused = [
        (name, reason) for name, (state, reason) in pending.states.items() if state == "refused"
    ]
    problems = [f"{name}: {reason}" for name, reason in refused] + list(pending.unreadable)
    if problems:
        yield from ("", *(f"- {markdown_code(problem)}" for problem in problems))


def data(pending: PendingUpdates) -> dict[str, Any]:
    """Return the chosen causes and updates as JSON values, including accepted causes."""
    # Only these can be accepted. The key "waiting" of a cause also has refused files.
    waiting = {name for name, (state, _) in pending.states.items() if state == "waits"}
    return {
        "directory": pending.directory,
        "causes": [
            {
                "number": cause.number,
                **cause.words.to_json(),
                "waiting": [
                    name for name in cause.words.files if pending.states[name][0] != "stored"
                ],
                "accept": accept_command(pending, f"--cause={cause.number}")
                if waiting.intersection(cause.words.files)
                else "",
            }
            for cause in pending.causes
            if pending.numbers is None or cause.number in pending.numbers
        ],
        "updates": [
            {
                "test": update.saved.test,
                "file": update.target,
                "headline": update.difference.headline,
                "state": pending.states[update.target][0],
                "why": pending.states[update.target][1],
                "causes": sorted(pending.causes_by_target[update.target]),
            }
            for update in pending.chosen
        ],
        "unreadable": list(pending.unreadable),
        "accept": accept_command(pending) if waiting else "",
    }


def heading(pending: PendingUpdates) -> str:
    """Return the number of pending causes and stored graphs, in one line."""
    accepted = sum(state == "stored" for state, _ in pending.states.values())
    accepted_text = f"; {counted(accepted, 'other graph')} already accepted" if accepted else ""
    return f"{describe_open(pending) or 'no pending changes'}{accepted_text}"


def describe_open(pending: PendingUpdates) -> str:
    """Count the pending causes and their stored graphs; "" if nothing is pending."""
    kinds = [state for state, _ in pending.states.values()]
    open_files = len(kinds) - kinds.count("stored")
    if not open_files:
        return ""
    refused = kinds.count("refused")
    refused_text = f", {refused} cannot be accepted" if refused else ""
    causes = counted(len(pending.open_causes), "cause")
    return f"{causes} in {counted(open_files, 'stored graph')}{refused_text}"


def _without_accepted(pending: PendingUpdates, cause: NumberedCause) -> Finding:
    """Return a cause without the places and files already accepted."""
    items = [item for item in cause.items if pending.states[item[0]][0] != "stored"]
    return merge_findings(items)


def notes(pending: PendingUpdates, cause: NumberedCause) -> str:
    """Count the accepted files of a cause, and its files with other causes; "" if none."""
    open_names = [update.target for update in cause.updates if pending.is_open(update)]
    stored = len(cause.updates) - len(open_names)
    files = counted(len(cause.updates), "file")
    accepted = f"{stored} of {files} already accepted" if stored else ""
    causes = pending.count_causes(tuple(open_names))
    # One more than listed, because the cause itself is among them.
    others = [
        f"{counted(files, 'file')} also {'has' if files == 1 else 'have'} cause {number}"
        for number, files in causes[: MAX_OTHERS + 1]
        if number != cause.number
    ][:MAX_OTHERS]
    more = len(causes) - 1 - len(others)
    others_text = ", ".join(others) + f" and {more:,} more" * (more > 0)
    return "; ".join(filter(None, (accepted, others_text)))


def accept_command(pending: PendingUpdates, *options: str) -> str:
    """Return the command that stores graphs without asking."""
    root = [f"--root={pending.root}"] if pending.root else []
    return f"{ACCEPT} {shlex.join([*map(str, pending.directories), *root, *options])}"
