"""Pending causes, with the numbers for `--cause`, as text, Markdown or JSON."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ...graph.diff import Finding, finding_lines, merge_findings
from ...words import counted, markdown_code
from ..formats import markdown_table
from .waiting import NumberedCause, State, Waiting

ACCEPT = "python -m pytest_torchgraph review --accept"


def listing(waiting: Waiting) -> Iterator[str]:
    """Yield a few lines for each pending cause, and the commands to accept causes."""
    states = waiting.states()
    yield heading(waiting, states)
    for cause in open_causes(waiting, states):
        head, *rest = finding_lines([_left(cause, states)])
        yield f"{cause.number:>3}  {head}"
        yield from (f"   {line}" for line in rest)
        if note := notes(waiting, cause, states):
            yield f"       {note}"
    for update in waiting.chosen:
        state, why = states[update.target]
        if state == "refused":
            yield f"!  {update.said(why)}"
    yield from (f"!  {problem}" for problem in waiting.unreadable)
    refused = any(state == "refused" for state, _ in states.values())
    if refused and waiting.is_default:
        yield "discard the changes of earlier runs:  pytest --cache-clear"
    if waits(states):
        yield f"accept one:  {accept_command(waiting, '--cause=N')}"
        yield f"accept all:  {accept_command(waiting)}"


def markdown(waiting: Waiting) -> Iterator[str]:
    """Yield the pending causes as a Markdown table."""
    states = waiting.states()
    yield f"**{heading(waiting, states)}**"
    table = markdown_table([_left(cause, states) for cause in open_causes(waiting, states)])
    if table:
        head, rule, *rows = table
        numbers = [cause.number for cause in open_causes(waiting, states)]
        yield from ("", f"| cause {head}", f"|---:{rule}")
        yield from (f"| {number} {row}" for number, row in zip(numbers, rows, strict=True))
    refused = [(name, why) for name, (state, why) in states.items() if state == "refused"]
    problems = [f"{name}: {why}" for name, why in refused] + list(waiting.unreadable)
    if problems:
        yield from ("", *(f"- {markdown_code(problem)}" for problem in problems))


def data(waiting: Waiting) -> dict[str, Any]:
    """Return the chosen causes and updates as JSON values, including accepted causes."""
    states = waiting.states()
    return {
        "directory": waiting.directory,
        "causes": [
            {
                "number": cause.number,
                **cause.words.to_json(),
                "waiting": [name for name in cause.words.files if states[name][0] != "stored"],
            }
            for cause in waiting.causes
            if waiting.numbers is None or cause.number in waiting.numbers
        ],
        "updates": [
            {
                "test": update.saved.test,
                "file": update.target,
                "headline": update.difference.headline,
                "state": states[update.target][0],
                "why": states[update.target][1],
                "causes": sorted(waiting.causes_by_target[update.target]),
            }
            for update in waiting.chosen
        ],
        "unreadable": list(waiting.unreadable),
    }


def heading(waiting: Waiting, states: dict[str, tuple[State, str]]) -> str:
    """Return the number of pending causes and stored graphs, in one line."""
    kinds = [state for state, _ in states.values()]
    stored = f"; {counted(kinds.count('stored'), 'other graph')} already accepted"
    stored *= "stored" in kinds
    refused = kinds.count("refused")
    cannot = f", {refused} cannot be accepted" if refused else ""
    open_files = len(kinds) - kinds.count("stored")
    if not open_files:
        return f"no pending changes{stored}"
    causes = counted(len(open_causes(waiting, states)), "cause")
    return f"{causes} in {counted(open_files, 'stored graph')}{cannot}{stored}"


def _left(cause: NumberedCause, states: dict[str, tuple[State, str]]) -> Finding:
    """Return a cause without the places and files already accepted."""
    return merge_findings([item for item in cause.items if states[item[0]][0] != "stored"])


def notes(waiting: Waiting, cause: NumberedCause, states: dict[str, tuple[State, str]]) -> str:
    """Describe the accepted files of a cause, and other causes of the remaining files; or ""."""
    parts = []
    names = [update.target for update in cause.updates]
    if stored := sum(states[name][0] == "stored" for name in names):
        parts.append(f"{stored} of {counted(len(names), 'file')} already accepted")
    left = [name for name in names if states[name][0] != "stored"]
    others = Counter(k for name in left for k in waiting.causes_by_target[name] - {cause.number})
    for number, files in sorted(others.items()):
        verb = "has" if files == 1 else "have"
        parts.append(f"{counted(files, 'file')} also {verb} cause {number}")
    return "; ".join(parts)


def waits(states: dict[str, tuple[State, str]]) -> bool:
    """Return True if any update is pending, including refused updates."""
    return any(state != "stored" for state, _ in states.values())


def open_causes(waiting: Waiting, states: dict[str, tuple[State, str]]) -> list[NumberedCause]:
    """Return the chosen causes with at least one file not stored yet."""
    return [
        cause
        for cause in waiting.causes
        if waiting.numbers is None or cause.number in waiting.numbers
        if any(states[update.target][0] != "stored" for update in cause.updates)
    ]


def accept_command(waiting: Waiting, *options: str) -> str:
    """Return the command that stores graphs without asking."""
    return f"{ACCEPT} {shlex.join([*map(str, waiting.directories), *options])}"
