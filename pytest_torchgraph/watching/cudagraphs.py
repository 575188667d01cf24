"""Graphs for which a CUDA graph was asked, and inductor made none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..convert.source_lines import from_stack_trace
from .compilations import Compilation

_PREFIX = "skipping cudagraphs due to "
_STACK = re.compile(r"\.? *Found from ?: *\n?")
NO_REASON = (
    "torch gives no reason: it gives one for graphs on CUDA alone, and for each compilation the "
    "last one"
)


@dataclass(frozen=True)
class CudagraphSkip:
    """A graph that runs without a CUDA graph, though `mode="reduce-overhead"` asked for one.

    Attributes:
        reason: torch's words.
        file, line, code: the user's line that torch names, "" and 0 for none.
        compile_id: of the compilation, "" where torch does not say.
    """

    reason: str
    file: str
    line: int
    code: str
    compile_id: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.code}\n{self.reason}" if self.file else self.reason


def skips_of(
    compiled: Iterable[Compilation], counters: Mapping[str, Mapping[Any, int]]
) -> tuple[CudagraphSkip, ...]:
    """The graphs that got no CUDA graph: those with a reason, then the others that were counted.

    Args:
        compiled: the compilations.
        counters: Dynamo's counters, by group.
    """
    skips = [_skip(text, str(each.id or "")) for each in compiled for text in each.cudagraphs]
    counted = counters.get("inductor", {}).get("cudagraph_skips", 0)
    unexplained = CudagraphSkip(NO_REASON, "", 0, "", "")
    return (*skips, *[unexplained] * (counted - len(skips)))


def _skip(text: str, compile_id: str) -> CudagraphSkip:
    reason, *stack = _STACK.split(text.strip(), maxsplit=1)
    source = from_stack_trace(stack[0]) if stack else None
    while reason.startswith(_PREFIX):
        reason = reason.removeprefix(_PREFIX)
    if source is None:
        return CudagraphSkip(reason, "", 0, "", compile_id)
    return CudagraphSkip(reason, source.file, source.line, source.code, compile_id)
