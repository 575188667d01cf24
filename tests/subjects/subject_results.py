"""The result of a mechanism for a subject, captured or refused with a reason, and its check."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from convert.printed.compare import differences
from convert.printed.live_and_printed import compiled, post_grad, read_all
from convert.printed.subjects import Subject as Compiled
from mechanisms.islands.account import everything, unlike
from subjects import counting
from subjects.models import SUBJECTS, Subject, on

from pytest_torchgraph import Capture, CaptureError, capture

MECHANISMS = ("dispatch", "fx", "dynamo", "aot", "compiled_autograd", "export", "inductor")


@dataclass
class Found:
    """One entry of the table.

    Attributes:
        says: `2 graphs, 47 ops`, or the reason of the refusal.
        eager: for a capture via aot, the ops that ran eagerly: `13 in 3 graphs, 2 by the engine`
            or `0`.
        wrong: the errors found.
    """

    says: str
    eager: str = ""
    refused: bool = False
    wrong: list[str] = field(default_factory=list)


def look(name: str, via: str, device: torch.device | str = "cpu") -> Found:
    """Capture, compare with a count by torch only, and compare with an eager run."""
    subject = on(SUBJECTS[name](), device)
    with torch.set_grad_enabled(subject.grad):
        try:
            with counting.post_grad() as counts:
                captured = capture(subject.model, *subject.args, via=via, **subject.kwargs)
        except CaptureError as refusal:
            return Found(reason(refusal), refused=True)
        if via != "inductor":
            counts = counting.COUNTED[via](on(SUBJECTS[name](), device))
        ops = sum(sum(graph.op_counts.values()) for graph in captured.graphs)
        number = len(captured.graphs)
        found = Found(f"{graphs(number)}, {ops} ops")
        found.wrong += [*miscounted(captured, counts), *unlike_eager(captured)]
        if via == "aot":
            found.eager = eager(captured)
            found.wrong += unaccounted(captured, on(SUBJECTS[name](), device))
        return found


def graphs(number: int) -> str:
    return f"{number} graph{'s' if number > 1 else ''}"


def eager(captured: Capture) -> str:
    """Return the number of ops that ran eagerly, of eager graphs, and of the engine's ops."""
    ops = captured.eager_ops
    if not ops:
        return "0"
    by_engine = sum(each.by_engine for each in ops)
    of_them = f", {by_engine} by the engine" if by_engine else ""
    return f"{len(ops)} in {graphs(len(captured.eager))}{of_them}"


def unaccounted(captured: Capture, subject: Subject) -> list[str]:
    """List differences between all graphs, compiled and eager, and the account of what ran."""
    with torch.random.fork_rng():
        account = everything(subject.model, subject.args, subject.kwargs)
    return unlike(captured, account)


def reason(refusal: CaptureError) -> str:
    """Return the first line, and the next one if it has the reason, without line numbers."""
    first, *others = re.sub(r"^nothing was captured via '\w+': ", "", str(refusal)).splitlines()
    line = " ".join([first, *others[:1]]) if "Graph break at" in first else first
    return re.sub(r"(\.py):\d+", r"\1", line)


def miscounted(captured: Capture, counts: counting.Counts) -> list[str]:
    ours = [Counter(dict(graph.op_counts)) for graph in captured.graphs]
    if len(ours) != len(counts):
        return [f"{len(ours)} graphs, torch made {len(counts)}"]
    return [
        f"{graph.name}: too many {dict(own - torchs)}, too few {dict(torchs - own)}"
        for graph, own, torchs in zip(captured.graphs, ours, counts, strict=True)
        if own != torchs
    ]


def unlike_eager(captured: Capture) -> list[str]:
    try:
        captured.assert_matches_eager()
    except AssertionError as problem:
        return [str(problem).partition("\n")[0]]
    return []


RUNS: dict[str, tuple[Any, bool]] = {"inductor": (post_grad, False), "engine": ("aot_eager", True)}


def misread(name: str, run: str) -> tuple[int, list[str]]:
    """Return the number of graphs that torch's trace printed, and differences in their text.

    Args:
        run: "inductor" for dynamo, joint, forward, backward, inference and post-grad graphs;
            "engine" for those of compiled autograd.
    """
    backend, autograd = RUNS[run]
    subject: Subject = SUBJECTS[name]()
    target: Callable[..., Any] = subject.model
    with torch.set_grad_enabled(subject.grad):
        made = Compiled(target, subject.args, subject.kwargs)
        pairs = read_all(compiled(made, backend, autograd=autograd))
    wrong = [line for pair, graph in pairs for line in differences(pair.live, graph, pair.artifact)]
    return len(pairs), wrong
