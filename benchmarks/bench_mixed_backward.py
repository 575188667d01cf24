"""Two different edits of a real model, captured with its backward: findings that mix them.

`python benchmarks/bench_mixed_backward.py [PAIRS] [MODEL ...]`, PAIRS for each model of
`bench_places.py`, via dispatch; about half a second for each. An edit is an op before or behind a
module, or in the place of an activation, in some of the layers. A change belongs to the edit whose
op it has; one of the backward strays where it is listed in another layer than its own. Target: none
mixed, none astray.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from torch import nn

import pytest_torchgraph
from benchmarks.bench_places import MODELS, Model
from benchmarks.timing import table
from pytest_torchgraph import Finding
from pytest_torchgraph.graph.diff.paths import holds, instances_of

OPS = ("atan", "erf", "sinh", "cos", "asinh")
"""Ops that no model of these has, neither forward nor backward, except as an edit."""
LAYERS = {"resnet": 2, "swin": 2}
"""How many layers a model has, if not 4."""


@dataclass(frozen=True)
class Edit:
    """An edit of some layers.

    Attributes:
        how: "before" or "behind" a module, or "instead" of it.
        op: the new op.
        paths: the modules.
    """

    how: str
    op: str
    paths: tuple[str, ...]

    def apply(self, model: nn.Module) -> None:
        """Edit a model."""
        op: Callable[[torch.Tensor], torch.Tensor] = getattr(torch, self.op)
        for path in self.paths:
            module = model.get_submodule(path)
            kind = type(module)

            def forward(self: Any, x: torch.Tensor, kind: Any = kind, how: str = self.how) -> Any:
                if how == "instead":
                    return op(x)
                return kind.forward(self, op(x)) if how == "before" else op(kind.forward(self, x))

            module.__class__ = type(f"Edited{kind.__name__}", (kind,), {"forward": forward})


def sites(model: nn.Module, kind: Model) -> dict[str, list[str]]:
    """The modules that take and give one tensor and are in several layers, by their inner path."""
    found: dict[str, list[str]] = {}
    for path, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Conv2d) or path.endswith(kind.act):
            for instance in instances_of(path)[-1:]:
                found.setdefault(path[len(instance) :], []).append(path)
    return {part: paths for part, paths in found.items() if len(paths) > 1}


def two_edits(every: dict[str, list[str]], kind: Model, rng: random.Random) -> list[Edit]:
    """Two edits with different ops, in layers that no two of them share."""
    edits: list[Edit] = []
    taken: set[str] = set()
    for op in rng.sample(OPS, 2):
        part = rng.choice(sorted(every))
        hows = ["before", "behind", *["instead"] * kind.act.endswith(part.rpartition(".")[2])]
        free = [path for path in every[part] if instances_of(path)[-1] not in taken]
        paths = rng.sample(free, rng.randint(1, len(free))) if free else []
        if not edits and len(paths) == len(every[part]):
            paths = paths[1:]
        taken.update(instances_of(path)[-1] for path in paths)
        edits.append(Edit(rng.choice(hows), op, tuple(sorted(paths))))
    return [edit for edit in edits if edit.paths]


def judged(findings: tuple[Finding, ...], edits: list[Edit]) -> str:
    """Whether findings mix two edits, put a consequence astray, split one edit, or are exact.

    Edits of neighbours touch: side by side two are one, in one place.
    """
    astray = touching = False
    for finding in findings:
        of = [
            {e.op for e in edits for c in place.changes if e.op in c.node.op.split(".")}
            for place in finding.places
        ]
        touching |= any(len(ops) > 1 for ops in of)
        if not touching and len(set().union(*of)) != 1:
            return "mixed"
        layers = [instances_of(path)[-1] for e in edits if e.op in of[0] for path in e.paths]
        for change in (change for place in finding.places for change in place.consequences):
            module = change.node.module
            own_op = change.node.is_call and change.kind != "rewired"
            astray |= (
                own_op
                and bool(instances_of(module))
                and not any(holds(layer, module) for layer in layers)
            )
    if touching or astray:
        return "touching" if touching else "astray"
    return "exact" if len(findings) == len(edits) else "split"


def main() -> None:
    """Print, for each model, how many pairs were mixed, astray, exact, or split further."""
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    names = [word for word in sys.argv[1:] if not word.isdigit()] or list(MODELS)
    count = numbers[0] if numbers else 50
    rows = []
    for name in names:
        kind, rng = MODELS[name], random.Random(name)

        def captured(edits: list[Edit], name: str = name, kind: Model = kind) -> Any:
            torch.manual_seed(0)
            model, inputs = kind.make(LAYERS.get(name, 4))
            for edit in edits:
                edit.apply(model.eval())
            return pytest_torchgraph.capture(model.eval(), **inputs, via="dispatch")

        base = captured([])
        every = sites(kind.make(LAYERS.get(name, 4))[0], kind)
        told: Counter[str] = Counter()
        for _ in range(count):
            edits = two_edits(every, kind, rng)
            verdict = judged(pytest_torchgraph.diff(base, captured(edits)).findings, edits)
            told[verdict] += 1
            if verdict in ("mixed", "astray"):
                print(f"{verdict} in {name}: {edits}")
        rows.append(
            (name, count, *(told[w] for w in ("exact", "split", "touching", "astray", "mixed")))
        )
    table(("model", "pairs", "exact", "split", "touching", "astray", "mixed"), rows)


if __name__ == "__main__":
    main()
