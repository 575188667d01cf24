"""Breaks and skipped frames, generators included, are counted as torch counts them."""

from __future__ import annotations

import contextlib
import linecache
import random
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._dynamo.utils import counters
from torch_releases import skip_before
from watching.break_cases import BreaksInProperty

from pytest_torchgraph import watch


def parts(x: torch.Tensor) -> Any:
    for row in x:
        yield row * 2


def summed(x: torch.Tensor) -> torch.Tensor:
    total = x + 1
    torch._dynamo.graph_break()
    for part in parts(total):
        torch._dynamo.graph_break()
        total = total + part
    return total


def test_skipped_frame_of_a_generator_is_a_break() -> None:
    torch._dynamo.reset()
    with watch() as seen:
        torch.compile(summed, backend="eager")(torch.ones(3, 4))
    (found,) = (found for found in seen.breaks if found.function == "parts")
    assert found.kind == "frame skipped: Attempt to trace generator"
    assert (found.line, found.code) == (
        parts.__code__.co_firstlineno,
        "def parts(x: torch.Tensor) -> Any:",
    )
    assert "non-generator Python function" in found.hint
    with pytest.raises(AssertionError, match="Attempt to trace generator"):
        seen.assert_no_graph_breaks(allow="graph_break")


LINES = (
    "x = x + 1",
    "torch._dynamo.graph_break()",
    "x = g{n}(x)",
    "for row in p{n}(x): x = x + row",
    "for row in p{n}(x): torch._dynamo.graph_break(); x = x + row",
    "x = sum(p{n}(x), x)",
    "for _ in range(2): torch._dynamo.graph_break(); x = x + 1",
    "with torch.no_grad(): x = g{n}(x)",
    "x = x + len(list(p{n}(x)))",
    "with lock: x = x + 1",
    "with open(os.devnull) as file: x = x + len(file.read())",
    "with torch.random.fork_rng(): x = x + 1",
    "x = x * module.factor",
    "x = module(x)",
)


@contextlib.contextmanager
def _skipped_rests() -> Iterator[list[str]]:
    """Collect breaks after which Dynamo skips the rest of a frame. torch does not count them."""
    reasons: list[str] = []
    skip_before("2.11", "torch has no `log_graph_break`")
    original = InstructionTranslatorBase.log_graph_break

    def log(self: Any, *args: Any, reason: str = "", **kwargs: Any) -> Any:
        if "then skipping the rest of the function" in reason:
            reasons.append(reason)
        return original(self, *args, reason=reason, **kwargs)

    with mock.patch.object(InstructionTranslatorBase, "log_graph_break", log):
        yield reasons


def test_break_is_counted_where_torch_counts_none() -> None:
    def rest(x: torch.Tensor) -> torch.Tensor:
        x = x.sin()
        x = x.cos()
        with lock:
            x = x + 1
        return x  # noqa: RET504

    lock = threading.Lock()
    torch._dynamo.reset()
    counters.clear()
    with watch() as seen, _skipped_rests() as rests:
        torch.compile(rest, backend="eager")(torch.ones(3))
    (found,) = seen.breaks
    assert (found.kind, found.occurrences) == ("frame skipped: Unsupported context manager", 1)
    assert len(rests) == 1
    assert not counters["graph_break"]
    assert counters["frames"]["total"] == counters["frames"]["ok"] == 1


def _counts(seed: int) -> tuple[int, int]:
    skip_before("2.11", "a break in a generator is reported beside its frame, and counts twice")
    choice = random.Random(seed)

    def body() -> str:
        lines = [choice.choice(LINES).format(n=choice.randint(0, 1)) for _ in range(3)]
        return "".join(f"    {line}\n" for line in lines)

    source = "import os, torch\n"
    for n in range(2):
        source += f"def p{n}(x):\n"
        source += "    torch._dynamo.graph_break()\n" * (choice.random() < 0.3)
        source += "    for row in x.unbind(0):\n        yield row * 2\n"
        source += f"def g{n}(x):\n"
        source += "    torch._dynamo.graph_break()\n" * (choice.random() < 0.5)
        source += "    return x.sin()\n"
    source += f"def f(x):\n{body()}    return x\n"
    file = f"/random/seed_{seed}.py"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    scope: dict[str, Any] = {"lock": threading.Lock(), "module": BreaksInProperty()}
    exec(compile(source, file, "exec"), scope)
    torch._dynamo.reset()
    counters.clear()
    with watch() as seen, _skipped_rests() as rests:
        torch.compile(scope["f"], backend="eager")(torch.ones(3, 3))
    skipped = counters["frames"]["total"] - counters["frames"]["ok"] + len(rests)
    expected = sum(counters["graph_break"].values()) + skipped
    return expected, sum(found.occurrences for found in seen.breaks)


@pytest.mark.slow("random functions; single ones are in every run")
def test_random_breaks_are_counted_as_torch_counts_them() -> None:
    assert [(seed, *counts) for seed in range(60) if len({*(counts := _counts(seed))}) > 1] == []
