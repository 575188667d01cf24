"""Measure how well the search finds planted faults.

`PYTHONPATH=tests python -m divergence.measure visible` reads the faults of one kind, and
`python -m divergence.measure controls FILE` compares fault-free models.
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys
import time
from typing import Any

import torch

from pytest_torchgraph import Aot, capture
from pytest_torchgraph.divergence.sides import CompiledSide, eager_side
from pytest_torchgraph.divergence.values import Budget, NotFollowedError
from pytest_torchgraph.divergence.walk import walk
from pytest_torchgraph.graph import Divergence, Node, headline
from pytest_torchgraph.torch_private import get

from .faults import HELD, MODELS, VISIBLE, Fault


@dataclasses.dataclass(frozen=True)
class Answer:
    """The result for one fault.

    Attributes:
        stage: True if the stage is correct.
        holds: True if the region contains the planted op, and has at most 8 nodes or is the
            decomposition of one op.
        headline: True if the planted op is the last node that the message names.
        first: the first difference.
    """

    stage: bool
    holds: bool
    headline: bool
    first: Divergence | None


def is_planted(fault: Fault, node: Node, first: Divergence, *, eager: bool) -> bool:
    """Return True for a node of the planted op, or only for the planted node if identified."""
    op, module = fault.eagerly
    if eager and op == node.op and node.module.endswith(module):
        return True
    for op, number in fault.planted:
        if node.op != op:
            continue
        if number == -1 or eager or fault.stage == "passes":
            return True
        graph_nodes = () if first.drawn is None else first.drawn.nodes
        if [other.name for other in graph_nodes if other.op == op][number] == node.name:
            return True
    return False


def answer(fault: Fault) -> Answer:
    """Plant a fault and search for it."""
    target, args, kwargs = MODELS[fault.model]()
    torch.manual_seed(1)
    with fault.plant() as mechanism:
        first = capture(target, *args, via=mechanism, **kwargs).first_difference()
    if first is None:
        return Answer(False, False, False, None)
    kind = "backward" if fault.backward else "forward"
    is_in_graph = first.graph.startswith(kind) or first.graph == "inference"
    is_small = len(first.nodes) <= 8 or len(first.eager_nodes) == 1
    holds, is_named = (
        any(is_planted(fault, n, first, eager=False) for n in nodes)
        or any(is_planted(fault, n, first, eager=True) for n in eager_nodes)
        for eager_nodes, nodes in (
            (first.eager_nodes, first.nodes),
            [side[-1:] for side in headline(first.eager_nodes, first.nodes)],
        )
    )
    right_stage = first.stage == fault.stage
    return Answer(right_stage, holds and is_small and is_in_graph, is_named and is_in_graph, first)


def walked(case: Any) -> tuple[list[str], str]:
    """Compare the decompositions of a fault-free model with eager, although both agree.

    Args:
        case: has a target (or model), args and kwargs.

    Returns:
        The differences found, and the reason if the model could not be compared, else "".
    """
    target = getattr(case, "target", None) or case.model
    with torch.set_grad_enabled(getattr(case, "grad", True)):
        kept = capture(target, *case.args, via="aot", **case.kwargs)._comparison
        eager_run = kept.search.args[0]
        budget = Budget(None)
        with get("inductor_config").patch(fallback_random=True):
            try:
                eager = eager_side(eager_run, kept.eager(), budget)
                side = CompiledSide(eager_run, Aot(decompositions="inductor"), budget)
            except NotFollowedError as error:
                return [], str(error)
        outcome = walk(eager, side.step, budget)
    found = [f"{v.kind} {v.key[1]} {v.ratio:.3g}" for v in outcome.accepted]
    return found, ""


def controls(results: str, part: str = "") -> None:
    """Search fault-free models for differences, and add a line for each model to a file.

    Args:
        results: the file. Models with a line in the file are skipped.
        part: only models whose names contain this text are compared.
    """
    from subjects.models import SUBJECTS

    import corpus.models.text  # noqa: F401
    from corpus.case import CORPUS

    made: dict[str, Any] = dict(SUBJECTS)
    names = [name for name in CORPUS if name.startswith("hf_")]
    made |= {name: CORPUS[name].make for name in names[:: max(1, len(names) // 30)][:30]}
    file = pathlib.Path(results)
    done = {line.split()[0] for line in file.read_text().splitlines()} if file.exists() else set()
    for name, make in made.items():
        if part not in name or name in done:
            continue
        try:
            torch.manual_seed(0)
            found, why = walked(make())
        except Exception as error:
            found, why = [], f"RAISED {type(error).__name__} {str(error)[:150]}"
        mark = "FOUND" if found else "-" if why else "clean"
        line = " ".join(f"{name} {mark} {found} {why}".split())
        print(line, flush=True)
        with file.open("a") as lines:
            lines.write(f"{line}\n")


def main(which: str, only: str = "") -> None:
    """Print an answer for each fault, and the totals."""
    answers = []
    for fault in VISIBLE if which == "visible" else HELD:
        if only not in fault.name:
            continue
        start = time.process_time()
        try:
            result = answer(fault)
        except Exception as error:
            print(f"RAISED {fault.name}: {type(error).__name__} {str(error)[:200]}", flush=True)
            continue
        answers.append(result)
        seconds = time.process_time() - start
        marks = "".join("-+"[m] for m in (result.stage, result.holds, result.headline))
        sure = "sure" if result.first is not None and result.first.sure else "    "
        print(f"{marks} {sure} {seconds:5.1f}s {fault.name}: {fault.planted[:2]}", flush=True)
        print("      " + str(result.first).splitlines()[0][:220], flush=True)
    total = len(answers)
    for name in ("stage", "holds", "headline"):
        print(f"{name}: {sum(getattr(a, name) for a in answers)} of {total}")
    wrong = [a for a in answers if a.first is not None and a.first.nodes and not a.holds]
    print(f"wrong: {len(wrong)}, sure and wrong: {sum(a.first.sure for a in wrong)}")  # type: ignore[union-attr]


if __name__ == "__main__":
    controls(*sys.argv[2:]) if sys.argv[1] == "controls" else main(*sys.argv[1:])
