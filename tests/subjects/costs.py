"""Costs of subjects by this package, beside torch's figures, with the reason for each difference.

A reason is computed: if it does not account for the whole difference, the entry is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
import torch._functorch.config
from subjects import checkpointed, costs_by_torch
from subjects.models import SUBJECTS, Subject
from subjects.subject_results import reason

from pytest_torchgraph import Aot, Capture, CaptureError, capture
from pytest_torchgraph.graph.cost.flops import total_flops

PEAK_TOLERANCE = 0.1
"""The relative error allowed for the estimate of a peak. A graph does not say how long a local
variable keeps a value alive after its last use, nor when the engine drops a gradient."""

ATTENTION = (
    "torch counts nothing for attention on the CPU; given its own formula for that, it agrees"
)


@dataclass
class Entry:
    """One subject in one column.

    Attributes:
        says: a figure, or a figure beside torch's.
        reason: why it differs from torch's or was refused; "" if it is the same.
        wrong: the errors found.
    """

    says: str
    reason: str = ""
    wrong: str = ""


@dataclass
class Row:
    """The entries of one subject, by column."""

    name: str
    entries: dict[str, Entry] = field(default_factory=dict)

    def wrong(self) -> Iterator[str]:
        """Yield the errors found, with subject and column."""
        for column, entry in self.entries.items():
            if entry.wrong:
                yield f"{self.name}, {column}: {entry.wrong}"


def flops(name: str) -> Row:
    """Compare the FLOPs of forward and backward."""
    row, make = Row(name), SUBJECTS[name]
    with torch.set_grad_enabled(make().grad):
        torchs = costs_by_torch.flops(make())
        with_attention = costs_by_torch.flops(make(), costs_by_torch.ATTENTION)
        row.entries["FLOPs by torch"] = Entry(_sum(torchs))
        for via in ("dispatch", "aot"):
            subject_capture = captured(make(), via)
            if isinstance(subject_capture, str):
                entry = Entry("refused", subject_capture)
            else:
                entry = _flops(subject_capture, torchs, with_attention)
            row.entries[f"FLOPs via {via}"] = entry
    return row


def _flops(captured: Capture, torchs: tuple[int, int], with_attention: tuple[int, int]) -> Entry:
    graphs = (
        [graph for graph in captured.program if graph.kind != "backward"],
        [graph for graph in captured.program if graph.kind == "backward"],
    )
    forward, backward = (total_flops(graph, times_run=True, unknown="ignore") for graph in graphs)
    ours = forward, backward
    try:
        _ = captured.flops
    except CaptureError as refusal:
        ops = (
            str(refusal)
            .partition(" has no formula for ")[2]
            .partition(". To count")[0]
            .partition(":")[0]
        )
        known = "all else agrees" if ours == torchs else f"of all else: {ATTENTION}"
        wrong = "" if ours in (torchs, with_attention) else f"{_sum(ours)} without {ops}"
        return Entry("refused", f"torch has no formula for {ops}; {known}", wrong)
    if ours == torchs:
        return Entry("the same")
    return Entry(_sum(ours), ATTENTION, "" if ours == with_attention else "for no known reason")


def saved(name: str) -> Row:
    """Compare saved activations with `saved_tensors_hooks`."""
    row, make = Row(name), SUBJECTS[name]
    with torch.set_grad_enabled(make().grad):
        kept = costs_by_torch.kept(make())
        row.entries["saved in eager"] = Entry(_bytes(sum(each.nbytes for each in kept)))
        row.entries["saved via dispatch"] = _saved(captured(make(), "dispatch"), kept)
        subject_capture = captured(make(), "aot")
        if isinstance(subject_capture, str):
            row.entries["saved compiled"] = row.entries["saved via aot"] = Entry(
                "refused", subject_capture
            )
            return row
        kept = costs_by_torch.after_a_run(costs_by_torch.kept, make)
        row.entries["saved compiled"] = Entry(_bytes(sum(each.nbytes for each in kept)))
        row.entries["saved via aot"] = _saved(subject_capture, kept)
    return row


def _saved(found: Capture | str, kept: list[costs_by_torch.Storage]) -> Entry:
    assert isinstance(found, Capture), found
    ours = found.saved_bytes
    unread: Counter[str] = Counter()
    for each in kept:
        unread[each.op] += 0 if each.read else each.nbytes
    if ours == sum(each.nbytes for each in kept):
        return Entry("the same")
    ops = ", ".join(f"{op} ({_bytes(size)} bytes)" for op, size in unread.items() if size)
    wrong = "" if ours == sum(each.nbytes for each in kept if each.read) else "for no known reason"
    why = f"autograd keeps results that no op of the backward reads: {ops}"
    return Entry(_bytes(ours), why, wrong)


def peak(name: str) -> Row:
    """Compare the estimate of the peak with the storages that are alive."""
    row, make = Row(name), SUBJECTS[name]
    with torch.set_grad_enabled(make().grad):
        true = costs_by_torch.peak(make())
        row.entries["peak in eager"] = Entry(_bytes(true))
        row.entries["peak via dispatch"] = _peak(captured(make(), "dispatch"), true)
        subject_capture = captured(make(), "aot")
        if isinstance(subject_capture, str):
            row.entries["peak compiled"] = row.entries["peak via aot"] = Entry(
                "refused", subject_capture
            )
            return row
        true = costs_by_torch.after_a_run(costs_by_torch.peak, make)
        row.entries["peak compiled"] = Entry(_bytes(true))
        row.entries["peak via aot"] = _peak(subject_capture, true)
    return row


def _peak(found: Capture | str, true: int) -> Entry:
    assert isinstance(found, Capture), found
    off = found.peak_bytes / true - 1
    if found.peak_bytes == true:
        return Entry("the same")
    wrong = "" if abs(off) <= PEAK_TOLERANCE else f"off by {off:+.1%}"
    return Entry(f"{off:+.1%}", wrong=wrong)


def checkpointing(policy: checkpointed.Policy) -> Row:
    """Compare FLOPs and saved bytes under a policy of checkpointing with torch's."""

    def make() -> Subject:
        return checkpointed.subject(policy)

    row = Row(policy)
    storages = costs_by_torch.storages(make())
    read = sum(each.nbytes for each in storages if each.read and not each.in_backward)
    for via in ("dispatch", "aot"):
        subject_capture = captured(make(), via)
        assert isinstance(subject_capture, Capture), subject_capture
        row.entries[f"FLOPs via {via}"] = each = Entry(_bytes(subject_capture.flops))
        if via == "dispatch" and subject_capture.flops != sum(costs_by_torch.flops(make())):
            each.wrong = "FlopCounterMode counts another number"
        kept = costs_by_torch.after_a_run(costs_by_torch.kept, make) if via == "aot" else []
        torchs = sum(each.nbytes for each in kept) if via == "aot" else read
        row.entries[f"saved via {via}"] = each = Entry(_bytes(subject_capture.saved_bytes))
        if subject_capture.saved_bytes != torchs:
            each.wrong = f"torch keeps {torchs}"
    return row


def min_cut(budget: float) -> Row:
    """As `checkpointing`, for the plain transformer split by AOTAutograd's `min_cut`."""
    row = Row(f"min_cut, budget {budget}")
    with torch._functorch.config.patch(activation_memory_budget=budget):
        subject_capture = captured(checkpointed.subject("none"), Aot(partition="min_cut"))
    assert isinstance(subject_capture, Capture), subject_capture
    row.entries["FLOPs via dispatch"] = row.entries["saved via dispatch"] = Entry("")
    row.entries["FLOPs via aot"] = Entry(_bytes(subject_capture.flops))
    row.entries["saved via aot"] = Entry(_bytes(subject_capture.saved_bytes))
    return row


BUDGETS = (1.0, 0.7, 0.5, 0.2, 0.0)
SECTIONS: dict[str, Callable[[str], Row]] = {"FLOPs": flops, "saved": saved, "peak": peak}


def captured(subject: Subject, via: str | Aot) -> Capture | str:
    """Return the capture of a subject, or the reason of the refusal."""
    try:
        return capture(subject.model, *subject.args, via=via, **subject.kwargs)
    except CaptureError as refusal:
        return reason(refusal)


def _sum(both: tuple[int, int]) -> str:
    return f"{both[0]:,} + {both[1]:,}"


def _bytes(number: int) -> str:
    return f"{number:,}"
