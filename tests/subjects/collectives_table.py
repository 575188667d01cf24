"""Print what ranks communicate by each mechanism: `collectives_table.py [--check] [ROW...]`.

`--check` compares with the kept document, `docs/collectives.md`, instead of printing.
"""

from __future__ import annotations

import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

import torch.distributed as dist  # noqa: E402
from ranks.counts import Counts, by_torch, by_us  # noqa: E402
from ranks.formulas import FLOAT, FORMULAS, MESH, RANK, parameters  # noqa: E402
from ranks.parallel_models import DIM, MLP, MODELS, ROWS, Build, rows, stages  # noqa: E402
from subjects import kept_tables  # noqa: E402
from torch import nn  # noqa: E402

from pytest_torchgraph import Capture, CaptureError, capture, capture_ranks  # noqa: E402

KEPT = "collectives.md"
HEAD = f"""\
# Collectives by mechanism

Small models that are split over ranks (`tests/ranks/parallel_models.py`), one rank of each captured
by `capture_ranks` via each mechanism. Of the forward and of the backward, which are written with a
plus, there are as many collectives of each kind as torch's `CommDebugMode` counts in an eager run
of that rank, and they move as many bytes over the group as a formula says
(`tests/ranks/formulas.py`): then a cell says "equal". Where there is no capture, or
it does not know, the reason is below the table, with the error.

`CommDebugMode` counts nothing of a pipeline: the number is the one of its schedule. The last row is
DDP with its own reducer, in a process with a real group (gloo); under torch's fake process group
the reducer does not run.

The mesh is {", ".join(f"{name}={size}" for name, size in MESH.items())}, and the rank is {RANK}.
Made by `python tests/subjects/collectives_table.py > docs/collectives.md`, in about two minutes;
`--check` compares. With torch 2.13 on a CPU.
"""
VIAS = ("dispatch", "aot", "inductor", "compiled_autograd")
Bytes = Mapping[tuple[str, str], int]


@dataclass(frozen=True)
class Row:
    """A model on one rank.

    Attributes:
        counts: gives what there has to be, in the forward and in the backward.
        bytes: by kind and group.
        captured: gives the capture via a mechanism.
    """

    counts: Callable[[], Counts]
    bytes: Bytes
    captured: Callable[[str], Capture]


def _of_ranks(
    build: Build,
    counted: Bytes,
    mesh: Mapping[str, int] = MESH,
    rank: int = RANK,
    schedule: Counts | None = None,
) -> Row:
    def captured(via: str) -> Capture:
        return capture_ranks(build, ranks=(rank,), via=via, **mesh)[0]

    return Row(lambda: schedule or by_torch(build, rank, mesh), counted, captured)


def _reducer(via: str) -> Capture:
    """DDP as it is; a group of one process waits for nobody."""
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        return capture(nn.parallel.DistributedDataParallel(MLP()), rows().detach(), via=via)
    finally:
        dist.destroy_process_group()


def _stage(rank: int) -> Row:
    last = 3
    sent: Counter[str] = Counter()
    sent.update({"recv": 1} if rank > 0 else {})
    sent.update({"send": 1} if rank < last else {})
    moved = {(kind, "dp"): ROWS * DIM * FLOAT for kind in sent}
    return _of_ranks(stages, moved, {"dp": last + 1}, rank, (sent, Counter()))


ROWS_: dict[str, Row] = {
    **{name: _of_ranks(build, FORMULAS[name]) for name, build in MODELS.items()},
    "pipeline, first stage": _stage(0),
    "pipeline, middle stage": _stage(1),
    "pipeline, last stage": _stage(3),
    "data parallel, gloo": Row(
        lambda: (Counter(), Counter(all_reduce=1)),
        {("all_reduce", "g0"): parameters() * FLOAT},
        _reducer,
    ),
}


def kept() -> dict[tuple[str, str], str]:
    """What the kept table says by row and column, reasons spelt out."""
    return kept_tables.entries((kept_tables.DOCS / KEPT).read_text())


def entries(name: str) -> Iterator[tuple[str, str, str]]:
    """For each column of a row, what it says and the reason."""
    row = ROWS_[name]
    expected = row.counts()
    yield "by torch", _shown(expected), ""
    yield "bytes", f"{sum(row.bytes.values()):,}", ""
    for via in VIAS:
        yield via, *_entry(row, expected, via)


def _entry(row: Row, expected: Counts, via: str) -> tuple[str, str]:
    try:
        made = row.captured(via)
    except (CaptureError, RuntimeError) as error:
        return "no capture", _said(error)
    try:
        found = by_us(made)
    except CaptureError as error:
        return "not known", _said(error)
    if found != expected:
        return "WRONG", f"{_shown(found)} via {via}"
    moved: Counter[tuple[str, str]] = Counter()
    for each in made.collectives:
        moved[each.kind, each.group] += each.bytes or 0
    return ("equal", "") if moved == row.bytes else ("WRONG", f"via {via} {dict(moved)}")


def _shown(counts: Counts) -> str:
    forward, backward = counts
    kinds = sorted({*forward, *backward})
    return ", ".join(f"{forward[kind]} + {backward[kind]} {kind}" for kind in kinds) or "none"


def _said(error: Exception) -> str:
    """An error without the lines that say what to do, and without paths of this machine."""
    said = " ".join(str(error).partition("\nAvoid")[0].partition("\nChange that")[0].split())
    said = re.sub(r"[^ `']*/(?=torch/|tests/)", "", said).replace("|", "/")
    said = re.sub(r", called at tests/\S+?:\d+", "", said)
    return f"{type(error).__name__}: {said}"


def make(names: list[str]) -> tuple[str, list[str]]:
    """The text for some rows, or all, and what is wrong."""
    reasons = kept_tables.Reasons()
    lines: list[list[str]] = []
    wrong: list[str] = []
    for name in names or ROWS_:
        print(f"{name} ...", file=sys.stderr, flush=True)
        found = list(entries(name))
        wrong += [f"{name}: {why}" for _, says, why in found if says == "WRONG"]
        lines.append([name, *(reasons.cell(says, why) for _, says, why in found)])
    table = kept_tables.table(["model", "by torch", "bytes", *VIAS], lines)
    return "\n".join([HEAD, *table, "", "## Reasons", "", *reasons.lines()]) + "\n", wrong


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    sys.exit(kept_tables.main(sys.argv[1:], KEPT, make))
