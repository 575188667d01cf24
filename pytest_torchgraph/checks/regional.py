"""The assertion on regional compilation: few compilations serve all blocks of a model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..convert.source_lines import relative
from ..errors import CaptureError
from ..graph.blocks import match_modules
from ..graph.diff import abridged
from ..watching.guards import details, reasons
from ..watching.record import eager_calls_of
from ..words import counted, first_lines, listed
from . import compilation
from .blocks import MOST, need_count
from .eager import why_no_graph

if TYPE_CHECKING:
    from ..watching.observe import CompiledCallable
    from ..watching.recompiles import Recompile
    from ..watching.record import WatchRecord
    from .subject import Subject

_NEEDS_GRADIENT = re.compile(r"argument .*requires_grad was (?:False, is True|True, is False)")


@dataclass
class _CompilationGroup:
    """The compilations of one class's code. A frame is a compile id without its last number.

    Attributes:
        frames: by frame, and then by the compile id of a graph that ran, the blocks that the graph
            served.
        hooks: by the compile id of a hook, which is a frame of its own, the blocks that have it.
        blocks: the number of blocks.
    """

    frames: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    hooks: dict[str, list[str]] = field(default_factory=dict)
    blocks: int = 0

    @property
    def largest_frame(self) -> Mapping[str, Sequence[str]]:
        """Frame with the most compilations, and the hooks that only some of the blocks have.

        A graph break splits a block into several frames.
        """
        largest = max(self.frames.values(), key=len)
        return largest | {id: of for id, of in self.hooks.items() if len(of) < self.blocks}


def assert_compiled_once(capture: Subject, glob: str, model: Any, kinds: int) -> None:
    """See `Capture.assert_compiled_once`."""
    need_count("kinds", kinds)
    record = capture.watched
    if record is None or record.log is not None:  # a log shows no calls
        raise CaptureError(
            f"assert_compiled_once is not available via {capture.via!r}: use it on `with "
            f"graph_capture.watch() as seen:` or steady(...), or call assert_repeated({glob!r}) on "
            "this capture"
        )
    if not hasattr(model, "named_modules"):
        raise TypeError(f"model={type(model).__name__} is not a torch.nn.Module")
    modules = dict(model.named_modules())
    blocks = {path: modules[path] for path in match_modules(modules, glob)}
    callees = {path: _callees(record, module) for path, module in blocks.items()}
    if not_compiled := [*_not_compiled(record, callees, blocks, model)]:
        lines = [f"blocks {glob}: some blocks did not run compiled code", *not_compiled]
        if not capture.graphs:
            lines += ["no graph was compiled:", why_no_graph(record)]
        raise AssertionError("\n".join(lines))
    compilation.need_device(capture)
    compilations = _group_compilations(record, callees)
    count = sum(len(group.largest_frame) for group in compilations)
    if count > kinds:
        headline = (
            f"blocks {glob}: expected at most {counted(kinds, 'compilation')} for all "
            f"{len(blocks)} blocks, found {count}"
        )
        raise AssertionError("\n".join([headline, *_compilations(record, compilations)]))


def _callees(record: WatchRecord, module: Any) -> list[CompiledCallable]:
    """Return the compiled callables of a block: the module, or its torch.compile wrapper."""
    block_modules = [module, getattr(module, "_orig_mod", module)]
    return [
        callee
        for callee in record.callables
        if callee.owner is not None
        and any(callee.owner() is block_module for block_module in block_modules)
    ]


# -- blocks that ran eagerly, or did not run -------------------------------------------------------


def _not_compiled(
    record: WatchRecord,
    callees: Mapping[str, Sequence[CompiledCallable]],
    blocks: Mapping[str, Any],
    model: Any,
) -> Iterator[str]:
    """Yield lines about blocks that were not called through torch.compile, or ran eagerly.

    Args:
        record: the record of the watch.
        callees: the compiled callables of each block, by path.
        blocks: the modules of the blocks, by path.
        model: the module that contains the blocks.
    """
    uncalled = [path for path, block_callees in callees.items() if not block_callees]
    if uncalled:
        yield f"  {abridged(uncalled)}: not called through torch.compile"
        yield f"    {_why_uncalled(record, uncalled, blocks, model)}"
    eager: dict[str, list[str]] = {}
    for path, block_callees in callees.items():
        # A call without a cause is a recompile limit outside this block's calls.
        calls = [call for call, cause in eager_calls_of(block_callees, record.recompiles) if cause]
        for call in calls:
            eager.setdefault(str(call), []).append(path)
        ran_compiled = any(_graphs_of(record, callee) for callee in block_callees)
        if block_callees and not calls and not ran_compiled:
            eager.setdefault("called, but ran no compiled graph", []).append(path)
    lines = [f"  {abridged(paths)}: {reason}" for reason, paths in eager.items()]
    yield from first_lines(lines, MOST, "reason")


def _why_uncalled(
    record: WatchRecord, paths: Sequence[str], blocks: Mapping[str, Any], model: Any
) -> str:
    """Return why blocks were not called through torch.compile, with the remedy."""
    owners = [callee.owner() for callee in record.callables if callee.owner is not None]
    # The first block stands for all of them.
    compiled_parents = [
        type(owner).__name__
        for owner in owners
        if owner is not None and any(blocks[paths[0]] is submodule for submodule in owner.modules())
    ]
    if compiled_parents:
        return (
            f"these blocks are part of the compiled {compiled_parents[0]}, which has one graph for "
            "all blocks: compile the blocks instead, or check "
            "graph_capture(model, ...).assert_repeated(...)"
        )
    classes = {type(blocks[path]).__name__: None for path in paths}
    # diffusers' models name the classes that `compile_repeated_blocks` compiles.
    repeated_classes = getattr(model, "_repeated_blocks", None)
    if repeated_classes and classes.keys().isdisjoint(repeated_classes):
        return (
            f"regional compilation skips blocks of class {listed(classes)}, because "
            f"{type(model).__name__}._repeated_blocks names only "
            f"{listed(map(str, repeated_classes))}: add {listed(classes)} to it"
        )
    return (
        "these blocks ran eagerly, or did not run in the watch. Compile each block before the "
        f"watch: `for block in model.modules(): if isinstance(block, {next(iter(classes))}): "
        "block.compile()`"
    )


# -- compilations ----------------------------------------------------------------------------------


def _graphs_of(record: WatchRecord, callee: CompiledCallable) -> list[str]:
    """Return the compile ids of the graphs that a callable ran in this watch.

    If the callable calls other compiled callables, only the graphs of its own code are returned, or
    all graphs if none is known to be of its own code.
    """
    graphs_run = {
        graph.id: graph for graph, count in record.runs.items() if count and not graph.part
    }
    ids = [graph_id for graph_id in callee.served_by if graph_id in graphs_run]
    return [graph_id for graph_id in ids if callee.names_of(graphs_run[graph_id])] or ids


def _group_compilations(
    record: WatchRecord, callees: Mapping[str, Sequence[CompiledCallable]]
) -> list[_CompilationGroup]:
    """Return the compilations that served blocks, by class of the blocks."""
    by_code: dict[tuple[str, str, int], _CompilationGroup] = {}
    graphs = [graph for graph, count in record.runs.items() if count and not graph.part]
    for path, block_callees in callees.items():
        for callee in block_callees:
            group = by_code.setdefault((callee.name, callee.file, callee.line), _CompilationGroup())
            group.blocks += 1
            # The graphs of hooks, by the hook's code, and then the graphs of the block's own code.
            for graph in graphs:
                hooks = compilation.find_hooks(callee)
                if graph.id in callee.served_by and (graph.file, graph.line) in hooks:
                    group.hooks.setdefault(graph.id, []).append(path)
            for compile_id in _graphs_of(record, callee):
                ids = group.frames.setdefault(compile_id.rpartition("/")[0], {})
                ids.setdefault(compile_id, []).append(path)
    for group in by_code.values():
        for graph in graphs:
            # A graph may also have served only calls that are not attributed to a block, for
            # example with a shape that was already compiled.
            frame = graph.id.rpartition("/")[0]
            if frame in group.frames:
                group.frames[frame].setdefault(graph.id, [])
    return [*by_code.values()]


def _compilations(record: WatchRecord, compilations: Sequence[_CompilationGroup]) -> Iterator[str]:
    """Yield lines about each compilation of the blocks: what it served, and what caused it."""
    recompile_of = {recompile.compile_id: recompile for recompile in record.recompiles}
    compilation_of = {str(compilation.id): compilation for compilation in record.compiled}
    for compilation_group in compilations:
        listed_ids = [*compilation_group.largest_frame.items()]
        for compile_id, paths in listed_ids[:MOST]:
            compiled = compilation_of.get(compile_id)
            location = "compiled before the watch"
            if compiled is not None and compiled.file:
                location = f"{compiled.function}, {relative(compiled.file)}:{compiled.line}"
            blocks = abridged(dict.fromkeys(paths)) or "blocks also served by an earlier graph"
            yield f"  {compile_id} ({location}): {blocks}"
            recompile = recompile_of.get(compile_id)
            if recompile is not None:
                yield f"    {reasons(recompile.failed_guards)}"
                yield from details(recompile.failed_guards)
                yield from _explain_first_block(recompile, compilation_group.largest_frame)
        if len(listed_ids) > MOST:
            yield f"  ... and {counted(len(listed_ids) - MOST, 'more compilation')}"
        if compilation_of.keys().isdisjoint(compile_id for compile_id, _ in listed_ids):
            yield "    to see the failed guards, open the watch before the first call"


def _explain_first_block(
    recompile: Recompile, paths_by_id: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Explain why the first block is compiled separately: its input does not require grad."""
    for guard in recompile.failed_guards:
        if not _NEEDS_GRADIENT.search(guard.words):
            continue
        # The earlier compilation has the old value of `requires_grad`.
        pair = guard.compile_id, recompile.compile_id
        without_gradient, with_gradient = pair if "was False" in guard.words else pair[::-1]
        yield (
            "    Training always compiles these blocks separately, because the input of "
            f"{abridged(dict.fromkeys(paths_by_id.get(without_gradient, ())))} does not require "
            f"grad, and the input of {abridged(dict.fromkeys(paths_by_id.get(with_gradient, ())))} "
            "does. This is harmless: pass kinds=2. For a single compilation, use an input that "
            "requires grad: x = x.detach().requires_grad_()"
        )
        return
