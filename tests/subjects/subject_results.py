"""What a mechanism makes of a subject, captured or refused and why, and whether that is right."""

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
from subjects import counting
from subjects.models import SUBJECTS, Subject

from pytest_torchgraph import Capture, CaptureError, capture

MECHANISMS = ("dispatch", "fx", "dynamo", "aot", "compiled_autograd", "export", "inductor")


@dataclass
class Found:
    """One entry of the table.

    Attributes:
        says: `2 graphs, 47 ops`, or the reason why it was refused.
        wrong: what does not hold of what was captured.
    """

    says: str
    refused: bool = False
    wrong: list[str] = field(default_factory=list)


def look(name: str, via: str) -> Found:
    """Capture, count by torch's own means and compare, run eagerly and compare."""
    subject = SUBJECTS[name]()
    with torch.set_grad_enabled(subject.grad):
        try:
            with counting.post_grad() as counts:
                captured = capture(subject.model, *subject.args, via=via, **subject.kwargs)
        except CaptureError as refusal:
            return Found(reason(refusal), refused=True)
        if via != "inductor":
            counts = counting.COUNTED[via](SUBJECTS[name]())
        ops = sum(sum(graph.op_counts.values()) for graph in captured.graphs)
        number = len(captured.graphs)
        says = f"{number} graph{'s' if number > 1 else ''}, {ops} ops"
        return Found(says, wrong=[*miscounted(captured, counts), *unlike_eager(captured)])


def reason(refusal: CaptureError) -> str:
    """The first line, without what names the mechanism and without line numbers."""
    line = re.sub(r"^nothing was captured via '\w+': ", "", str(refusal)).partition("\n")[0]
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
    """How many graphs torch's trace printed, and what their text says differently.

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
