"""Assertions on repeated blocks of a model: that they are equal, and share compiled subgraphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import indent
from typing import TYPE_CHECKING, Any

from ..errors import CaptureError
from ..graph.blocks import BlockKind, kinds_of, match_modules
from ..graph.census import calls
from ..graph.diff import Finding, abridged, holds, natural_key
from ..graph.higher_order import body_names
from ..graph.inline import INVOKE
from ..graph.model import Graph, phase_of
from ..graph.select import ancestors
from ..graph.text import format_node
from ..words import CHECK_BACKWARD, counted, first_lines, grouped

if TYPE_CHECKING:
    from .subject import Subject

MOST = 8
"""Maximum number of blocks, or differences, in a failure message."""
_SHARING = ("dynamo", "aot", "inductor", "export")
"""Mechanisms that record calls of shared subgraphs."""


def need_count(name: str, count: Any) -> None:
    """Refuse a maximum that is not a positive int."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{name}={count!r} is not an int")
    if count < 1:
        raise ValueError(f"{name}={count} checks nothing: pass an int of at least 1")


# -- repeated blocks -------------------------------------------------------------------------------


def assert_repeated(
    capture: Subject, graphs: Sequence[Graph], glob: str, kinds: int, backward: bool
) -> None:
    """See `Capture.assert_repeated`."""
    need_count("kinds", kinds)
    block_kinds = capture.repeated(glob)
    if backward:
        if not any(graph.kind == "backward" for graph in graphs):
            raise CaptureError(
                f"the capture has no backward to compare: omit backward=True, or {CHECK_BACKWARD}"
            )
        block_kinds = kinds_of(graphs, glob, backward=True)
    if len(block_kinds) > kinds:
        raise AssertionError("\n".join(_lines_of_difference(block_kinds, glob, kinds)))


def _lines_of_difference(block_kinds: Sequence[BlockKind], glob: str, kinds: int) -> Iterator[str]:
    """Yield the lines of a failure: the kinds, and how they differ from the most common one."""
    yield f"blocks {glob}: expected {counted(kinds, 'kind')}, found {len(block_kinds)}"
    common = block_kinds[0]
    alike_text = " alike" if len(common.members) > 1 else ""
    yield f"  {len(common.members)}{alike_text} ({_size(common)}): {abridged(common.members)}"
    kinds_by_explanation = grouped((_explanation(kind), kind) for kind in block_kinds[1:])
    kinds_texts = [
        "\n".join(_lines_of_kinds(group, common)) for group in kinds_by_explanation.values()
    ]
    yield from first_lines(kinds_texts, MOST, "kind")


def _size(kind: BlockKind) -> str:
    """Return the number of ops of a block of this kind."""
    return counted(sum(1 for _ in calls(kind.parts)), "op")


def _lines_of_kinds(group: Sequence[BlockKind], common: BlockKind) -> Iterator[str]:
    """Yield lines about kinds that differ from the most common kind in the same way."""
    first_kind = group[0]
    members = [member for kind in group for member in kind.members]
    assert first_kind.diff is not None
    differ = "differs" if len(members) == 1 else "differ"
    reference = common.members[0]
    yield f"  {abridged(members)} {differ} from {reference} in {first_kind.diff.heading()}"
    if len(group) > 1:
        yield "    these arguments differ between blocks:"
        lines = [f"      {line}" for kind in (common, *group) for line in _values(kind, first_kind)]
        yield from first_lines(lines, MOST, "block")
    for finding in first_kind.diff.findings[:MOST]:
        yield indent(finding.to_text(), "    ")


def _values(kind: BlockKind, reference_kind: BlockKind) -> Iterator[str]:
    """Yield the first member of a kind, with the node that differs.

    The most common kind has no diff of its own: its node is the old side of another kind's diff.
    """
    diff = kind.diff or reference_kind.diff
    assert diff is not None
    finding = diff.findings[0]
    node = finding.after if kind.diff else finding.before
    if node is not None:
        yield f"{kind.members[0]}: {format_node(node)}"


def _explanation(kind: BlockKind) -> tuple[Any, ...]:
    """Return the edits of a kind, without constants and block numbers."""
    assert kind.diff is not None
    block = kind.members[0]
    return tuple(_edit(finding, block) for finding in kind.diff.findings)


def _edit(finding: Finding, block: str) -> tuple[Any, ...]:
    """Return a finding as a value that is equal for the same edit in another block."""
    changes = tuple(
        (
            change.kind,
            change.before and change.before.op,
            change.after and change.after.op,
            change.node.module.removeprefix(block),
            change.node.source,
        )
        for change in finding.changes
    )
    return finding.summary, changes


# -- shared subgraphs ------------------------------------------------------------------------------


def assert_shared(capture: Subject, graphs: Sequence[Graph], glob: str, bodies: int) -> None:
    """See `Capture.assert_shared`."""
    need_count("bodies", bodies)
    if capture.watched is not None or capture.via not in _SHARING:
        via = "a watch" if capture.watched is not None else f"a capture via {capture.via!r}"
        raise CaptureError(
            f"{via} does not record the subgraphs that blocks share: capture via 'dynamo', 'aot', "
            "'inductor' or 'export'"
        )
    forwards = [graph for graph in graphs if phase_of(graph) == "forward"]
    # All modules of the ops, and the modules around them. A module without an op is no block.
    blocks = match_modules(
        {
            path
            for call in calls(forwards, uncounted=True)
            for module in (call.node.module, *call.modules)
            for path in ancestors(module)
        },
        glob,
    )
    bodies_of_block = _bodies_by_block(forwards, blocks)
    names = {body for bodies_of in bodies_of_block.values() for body in bodies_of}
    inlined_blocks = [block for block in blocks if block not in bodies_of_block]
    if inlined_blocks or len(names) > bodies:
        lines = _lines_of_unshared(blocks, bodies_of_block, inlined_blocks, glob, bodies, capture)
        raise AssertionError("\n".join(lines))


def _bodies_by_block(
    graphs: Sequence[Graph], blocks: Sequence[str]
) -> dict[str, list[tuple[int, str]]]:
    """Return the (graph number, name) of each block's subgraphs, without the inlined blocks."""
    bodies_of_block: dict[str, list[tuple[int, str]]] = {}
    for number, graph in enumerate(graphs):
        for node in graph.nodes:
            if node.op != INVOKE:
                continue
            # A region around the block (one function for all blocks) is called in the block's
            # module. A region inside the block is called in a submodule.
            for block in (block for block in blocks if holds(block, node.module)):
                bodies_of_block.setdefault(block, []).extend(
                    (number, name) for name in body_names(node)
                )
    return bodies_of_block


def _lines_of_unshared(
    blocks: Sequence[str],
    bodies_of_block: dict[str, list[tuple[int, str]]],
    inlined: Sequence[str],
    glob: str,
    bodies: int,
    capture: Subject,
) -> Iterator[str]:
    """Yield the lines of a failure: the subgraphs, the inlined blocks, and possible reasons."""
    by_body = grouped((key, block) for block, keys in bodies_of_block.items() for key in keys)
    count = len(by_body)
    inlined_text = f", and {counted(len(inlined), 'inlined block')}" if inlined else ""
    expected = counted(bodies, "different subgraph")
    called = counted(len(blocks), "block")
    yield f"blocks {glob}: expected at most {expected} for {called}, found {count}{inlined_text}"
    lines = [
        f"  {name}: {counted(len(callers), 'call')}, by "
        f"{abridged(sorted(set(callers), key=natural_key))}"
        for (_, name), callers in by_body.items()
    ]
    yield from first_lines(lines, MOST, "subgraph")
    if inlined:
        yield f"  inlined, so not in any subgraph: {abridged(inlined)}"
    if bodies_of_block and list(inlined) == [blocks[0]]:
        yield (
            f"  Perhaps the input of {inlined[0]} does not require grad, while the inputs of the "
            "other blocks do. That block then gets its own subgraph, and torch inlines a subgraph "
            "that is called only once. Call x.requires_grad_() on the input of the first block, or "
            "capture under torch.no_grad()"
        )
    if inlined and capture.via == "export":
        yield (
            "  torch.export inlines nested_compile_region in non-strict mode: use "
            "via=Export(strict=True)"
        )
    if inlined:
        yield (
            "  torch inlines a subgraph that is called only once, unless "
            "torch._dynamo.config.inline_single_use_invoke_subgraph = False\n"
            "  If no block is decorated, put @torch.compiler.nested_compile_region above its "
            "forward"
        )
    yield (
        "  An int attribute, a constant or a shape that differs between blocks prevents sharing. "
        f"To see edits between blocks: capture.assert_repeated({glob!r})"
    )
