"""Graph breaks parsed from Dynamo's reports, each located in the user's code."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from itertools import chain, product
from pathlib import Path
from typing import NamedTuple

from ..convert.placeholders import STACK_VALUE, module_fqn
from ..convert.source_lines import (
    definition_at,
    frames_in,
    is_torch_file,
    is_user_file,
    original_name,
    relative,
)
from ..graph.events import SKIPPED, GraphBreak, StackFrame
from ..graph.model import Source
from ..settings.paths import is_below
from .compilations import Compilation
from .guard_text import IN_TORCH
from .observe import GraphBreakEvent

_HEADER = re.compile(r"Graph break in user code at (.*):(\d+)\s*$", re.MULTILINE)
_PREAMBLES = (
    re.compile(r"Encountered graph break when attempting to (?:trace|store) [^\n]*\n\s*"),
    re.compile(r"Failed to handle graph break gracefully\.[^\n]*\n\s*"),
    re.compile(r"Encountered graph break that we cannot resume from\.[^\n]*\n\s*"),
)
"""Sentences that precede the kind in some of Dynamo's reports."""
_GAVE_UP = ("Failed to handle graph break gracefully", "graph break that we cannot resume from")
"""Words in the report of a break after which Dynamo does not resume."""
_NEXT_REPORT = "*** While handling this graph break, another graph break occurred: ***"
_STACK = "User code traceback:"
_BEGIN = re.compile(r"\n+=+ most recent `torch\.compile` .*=+\n+")
"""Separator between callers and traced code, written if `torch._dynamo.config.verbose` is set."""
_UNINDENTED = re.compile(r"^(?=\S)", re.MULTILINE)
"""End of a printed stack."""
_SECTION = re.compile(r"^  (Explanation|Hint|Developer debug context): ", re.MULTILINE)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_OF_COMPILER = "Backend compiler exception"
"""Kind of a break at which the backend failed, at the end of a graph."""
_COMPILER_FAILED = re.compile(
    r"Backend compiler `(?P<name>.*?)` failed with (?P<error>.*?)\. Adding a graph break\.",
    re.DOTALL,
)
_FAILED_WORDS = r"\g<name> failed on the graph that ends here: \g<error>"
_NO_HINT = ("Report an issue to the backend compiler repo.",)
"""Dynamo's hints that do not help the user."""
_LINK = re.compile(r"\n\s*For more details about this graph break, please visit:.*", re.DOTALL)
_RUNNERS = ("_pytest", "pluggy", "pytest", "xdist", "execnet")
"""Packages that run the tests."""
_GENERATED = re.compile(r"(?<=^<eval_with_key>)\.\d+$")
"""Number in the file name of torch.fx's generated code; it differs from run to run."""
_FILE = re.compile(r'File "([^"]+)"')
_ASKED_FOR = "Call to `torch._dynamo.graph_break()`"
_REWRITTEN = (
    "pytest rewrote this assert, and the new code branches on tensor data: compile a function of "
    "another module, use torch._assert_async, or run with --assert=plain"
)


_Frame = tuple[str, int, str, str]
"""A frame as Dynamo reports it: file, line, function and code."""


class BreakReport(NamedTuple):
    """A parsed graph break report of Dynamo.

    Attributes:
        kind, reason, hint, module: as in `GraphBreak`, the kind without `SKIPPED`.
        skipped: True if Dynamo could not resume after the break.
        frames: the stack, outermost first, empty if the report has none.
        context: details for Dynamo's developers. The reason ends with them, in brackets.
    """

    kind: str
    reason: str
    hint: str
    skipped: bool
    frames: list[_Frame]
    module: str = ""
    context: str = ""

    @property
    def of_compiler(self) -> bool:
        """True if the backend failed. The reported stack is then not that of the compiled code."""
        return self.kind == _OF_COMPILER


def breaks_of(compiled: Iterable[Compilation]) -> tuple[GraphBreak, ...]:
    """Return the graph breaks of compilations, one per file, line and kind."""
    breaks: dict[tuple[str, int, str], GraphBreak] = {}
    for current in (_graph_break(report, c) for c in compiled for report in reports_of(c)):
        key = (current.path, current.line, current.kind.removeprefix(SKIPPED))
        earlier = breaks.get(key)
        if earlier is None:
            breaks[key] = current
            continue
        # A break from which Dynamo could not resume in one compilation is skipped in the result.
        breaks[key] = replace(
            earlier,
            kind=max(earlier.kind, current.kind, key=lambda kind: kind.startswith(SKIPPED)),
            module=earlier.module or current.module,
            occurrences=earlier.occurrences + 1,
        )
    return tuple(breaks.values())


def reports_of(compiled: Compilation) -> list[BreakReport]:
    """Return the graph breaks of a compilation and the failure that ended it, with stacks."""
    reports = [_read_event(event) for event in compiled.breaks if not event.hand_over]
    if compiled.failure and not compiled.limit_hit:
        if compiled.breaks and not compiled.breaks[-1].hand_over:
            # The exception ended the frame at its last graph break.
            reports[-1] = reports[-1]._replace(skipped=True)
        elif not compiled.breaks:
            # Dynamo reported no graph break, so the exception is the only report.
            last = read_report(compiled.reason)
            begin = compiled.file, compiled.line
            file, line = compiled.failed_at if all(compiled.failed_at) else begin
            frame = (file, line, definition_at(file, line)[0] or compiled.function, "")
            reports.append(last._replace(skipped=True, frames=last.frames or [frame]))
    begin_frame = (compiled.file, compiled.line, compiled.function, "")
    return [report._replace(frames=report.frames or [begin_frame]) for report in reports]


def functions_of(compiled: Iterable[Compilation]) -> frozenset[tuple[str, str]]:
    """Return the file and name of each function of which a frame was compiled."""
    return frozenset((relative(c.file), original_name(c.function)) for c in compiled)


def cause_of(
    stack: Sequence[Source],
    breaks: Sequence[GraphBreak],
    functions: Container[tuple[str, str]],
) -> GraphBreak | None:
    """Return the graph break or skipped frame that made code run eagerly, `None` if there is none.

    Args:
        stack: the user's running lines, innermost first.
        breaks: all graph breaks.
        functions: see `functions_of`.
    """
    pairs = [*product(stack, breaks)]
    # A graph break at the running line.
    at_line = (b for frame, b in pairs if (b.file, b.line) == (frame.file, frame.line))
    # A skipped frame: its function, or the rest of it, runs eagerly.
    skips = (pair for pair in pairs if pair[1].kind.startswith(SKIPPED))
    skipped = (b for frame, b in skips if (b.file, b.function) == (frame.file, frame.function))
    # A graph break in the running function or in one of its callees. The stack of a break also has
    # the callers of the compiled frame, whose code nobody compiles.
    depths = [n for n, frame in enumerate(stack, 1) if (frame.file, frame.function) in functions]
    in_callee = (
        graph_break
        for frame, graph_break in product(stack[: max(depths, default=0)], breaks)
        for callee in graph_break.stack
        if (callee.file, callee.function) == (frame.file, frame.function)
    )
    return next(chain(at_line, skipped, in_callee), None)


def is_in_function(frame: Source, graph_break: GraphBreak) -> bool:
    """Return True if a line is in the function of a graph break."""
    path = graph_break.path or graph_break.file
    return frame.file == graph_break.file and (
        definition_at(path, frame.line) == definition_at(path, graph_break.line)
    )


def _read_event(event: GraphBreakEvent) -> BreakReport:
    """Parse an observed graph break: its report, module and stack."""
    # A module that was on the stack at an earlier graph break has no path.
    module = "" if STACK_VALUE in event.module else module_fqn(event.module)
    report = read_report(event.report)._replace(module=module)
    # The observed stack is complete, but not at a failure of the backend: see `of_compiler`.
    if not event.stack or (report.of_compiler and report.frames):
        return report
    return report._replace(frames=_merge_resumed(event.stack))


def _merge_resumed(stack: Iterable[_Frame]) -> list[_Frame]:
    """Merge each resume function (the code after a graph break) into the frame that it resumes."""
    frames: list[_Frame] = []
    for file, line, function, code in stack:
        name = original_name(function)
        if name != function and frames and frames[-1][0] == file and frames[-1][2] == name:
            frames.pop()
        frames.append((file, line, name, code))
    return frames


def _graph_break(report: BreakReport, compiled: Compilation) -> GraphBreak:
    """Locate a report in the user's code, or, without the user's frames, in torch's."""
    frames = report.frames
    users = _user_frames(frames)
    file, line, function, code = (users or frames)[-1]
    code = code or linecache.getline(file, line).strip()
    hint = report.hint
    if users and frames[-1] is not users[-1] and is_torch_file(frames[-1][0]):
        # If torch's own code called `graph_break()`, the hint is useless to the user.
        was_requested = report.kind.startswith(_ASKED_FOR)
        torch_file, torch_line, torch_function, _ = frames[-1]
        torch_file = relative(torch_file).removeprefix("torch/")
        note = f"{IN_TORCH}{torch_file}:{torch_line} in {original_name(torch_function)}"
        hint = "\n".join(filter(None, [note, "" if was_requested else hint]))
    if code.startswith("assert") and _is_rewritten(file):
        hint = "\n".join(filter(None, [_REWRITTEN, hint]))
    return GraphBreak(
        kind=(SKIPPED if report.skipped else "") + report.kind,
        reason=report.reason,
        hint=hint,
        file=_GENERATED.sub("", relative(file)),
        line=line,
        code=code,
        function=original_name(function),
        stack=tuple(StackFrame(relative(f), n, original_name(name), c) for f, n, name, c in users),
        module=report.module,
        compile_id=str(compiled.id or ""),
        path=file,
    )


def _user_frames(frames: list[_Frame]) -> list[_Frame]:
    """Return the user's frames; if pytest called a test, only from the test on.

    The stack begins anew at each frame that pytest called, so it leaves out hooks of the user's
    around the test.
    """
    modules = [sys.modules.get(name) for name in _RUNNERS]
    homes = [str(Path(module.__file__).parent) for module in modules if module and module.__file__]
    users: list[_Frame] = []
    called_by_pytest = False
    for frame in frames:
        if is_below(frame[0], *homes):
            called_by_pytest = True
        elif is_user_file(frame[0]):
            users = [frame] if called_by_pytest else [*users, frame]
            called_by_pytest = False
    return users


def read_report(text: str) -> BreakReport:
    """Parse a report into kind, explanation, hints and stack."""
    header = _HEADER.search(text)
    # The reason, which some reports introduce, and then the stack, which some reports lack.
    body, _, stack = text.partition(_STACK)
    body = body.partition("Stack variable source attribution:")[0]
    body = body.partition("Graph Break Reason:")[2] or body
    skipped = any(words in body for words in _GAVE_UP)
    stack = _BEGIN.sub("\n", stack).lstrip("\n")
    frames = frames_in(_UNINDENTED.split(stack, maxsplit=1)[0])
    if header is not None and not frames:
        frames = [(header[1], int(header[2]), "", "")]
    # Dynamo may try to handle a graph break, and meet another one. The first one is the user's.
    first, *nested_reports = (_LINK.sub("", part).strip() for part in body.split(_NEXT_REPORT))
    for preamble in _PREAMBLES:
        first = preamble.sub("", first, count=1)
    kind, reason, hint, context = _split_sections(first)
    if kind == _OF_COMPILER:
        frames = _merge_resumed(frames_in(first))
    for nested_report in nested_reports:
        reason = f"{reason} ({_split_sections(nested_report)[0]})"
    return BreakReport(kind, reason, hint, skipped, frames, context=context)


def _split_sections(text: str) -> tuple[str, str, str, str]:
    """Return kind, explanation, hints and context of one report.

    The first line is the kind. Further lines before the first section belong to the explanation.
    """
    head, *names_and_contents = _SECTION.split(text)
    sections: dict[str, list[str]] = {}
    for name, content in zip(names_and_contents[::2], names_and_contents[1::2], strict=True):
        content = _FILE.sub(lambda match: f'File "{relative(match[1])}"', content)
        sections.setdefault(name, []).append(" ".join(_ADDRESS.sub("", content).split()))
    kind, *rest_lines = head.strip().splitlines() or ["unknown"]
    kind = _ADDRESS.sub("", kind).rstrip(":")
    rest = " ".join(" ".join(rest_lines).split())
    reason = " ".join(filter(None, [rest, *sections.get("Explanation", [])]))
    context = "; ".join(filter(None, sections.get("Developer debug context", [])))
    hints = [hint for hint in sections.get("Hint", []) if hint not in _NO_HINT]
    if kind == _OF_COMPILER:  # the context only repeats the reason
        context, reason = "", _COMPILER_FAILED.sub(_FAILED_WORDS, reason)
    if context:
        reason = f"{reason} [{context}]"
    return kind, reason.strip(), "\n".join(hints), context


def _is_rewritten(file: str) -> bool:
    """Return True if pytest's assertion rewriting compiled the file."""
    return any(
        "@pytest_ar" in vars(module)
        for module in list(sys.modules.values())
        if getattr(module, "__file__", None) == file
    )
