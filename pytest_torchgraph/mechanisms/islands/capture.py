"""One step through torch.compile, with the ops that run eagerly between the compiled graphs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...convert.canonical_names import CanonicalNames
from ...convert.from_fx import Converted
from ...convert.source_lines import at_line, current_line, source_of
from ...errors import CaptureError
from ...graph.model import Phase, Source
from ...graph.module_paths import numbered
from ..recording import (
    UnwrittenReads,
    Value,
    parts_of,
    refuse_unseen,
    refuse_unwritten,
    run_noted,
)
from ..step import STEP, Step, output_leaves
from ..training import Access, TrainingRecord, event_of
from .island_recorder import CompiledRun, EagerRecord, IslandRecorder
from .islands import Islands, islands_of

_RUNNERS: list[Callable[[Converted], Callable[[list[Any]], Any]]] = []
"""The runners of the open `run_instead` contexts. The innermost, which is last, applies."""


@contextlib.contextmanager
def run_instead(
    runner: Callable[[Converted], Callable[[list[Any]], Any]],
) -> Iterator[None]:
    """Replace the compiled code of each graph compiled inside by `runner(graph)`.

    Args:
        runner: takes the graph; returns a callable in the boxed convention.
    """
    _RUNNERS.append(runner)
    try:
        yield
    finally:
        _RUNNERS.pop()


@dataclass
class CompiledGraph:
    """A compiled graph and its run count."""

    converted: Converted
    runs: int = 0

    @property
    def ran(self) -> bool:
        """True if the graph counts: a backward counts only if it ran."""
        return self.runs > 0 or self.converted.graph.kind != "backward"

    @property
    def counted(self) -> Converted:
        """The graph with its run count."""
        graph = replace(self.converted.graph, runs=self.runs, counted=True)
        return replace(self.converted, graph=graph)

    def recorded(
        self, compiled: Callable[[list[Any]], Any], recorder: IslandRecorder
    ) -> Callable[[list[Any]], Any]:
        """Wrap the compiled graph to count and record each run during the step.

        Inside `run_instead`, the wrapper runs the replacement of the compiled code.

        The wrapper can outlive the step, in the autograd graph of an output that the caller keeps.
        """
        graph = self.converted.graph
        if _RUNNERS:
            compiled = _RUNNERS[-1](self.converted)
        written, backward = self._written(), graph.kind == "backward"
        # Graphs at lower levels write to no argument, and autograd does not look inside them.
        op_by_op = graph.level == "dynamo"

        def run(args: list[Any]) -> Any:
            """Run the graph, in the boxed calling convention."""
            if not recorder.is_recording:  # after the step, as in a backward that the caller runs
                return compiled(args)
            self.runs += 1
            return recorder.run(self, compiled, args, written, backward=backward, op_by_op=op_by_op)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def _written(self) -> tuple[int, ...]:
        """Return the positions of the arguments that the graph writes to."""
        names, graph = self.converted.names, self.converted.graph
        written = {
            effect.target.name
            for node in graph.nodes
            for effect in node.effects
            if effect.target is not None
        }
        inputs = [node.name for node in self.converted.fx.nodes if node.op == "placeholder"]
        # `names` maps the fx nodes to the nodes of the `Graph`, which its effects refer to.
        return tuple(i for i, name in enumerate(inputs) if names.get(name, name) in written)


def run_recorded(
    step: Step,
    recorder: IslandRecorder,
    call: Callable[..., Any],
    around: Callable[[], contextlib.AbstractContextManager[Any]],
) -> None:
    """Run a step under a recorder, and raise if the record is incomplete.

    For a training step, also find its phases, and note them in the recorder and in the events.

    Args:
        step: the step.
        recorder: the recorder.
        call: the callable to run instead of the target: the compiled target.
        around: creates a further context for the forward and for the backward.

    Raises:
        CaptureError: if code ran that cannot be recorded, with its place.
    """
    methods: list[tuple[str, str, Source | None]] = []
    training = None
    if step.invocation.updates is not None:
        training = TrainingRecord(recorder, step, lambda: len(recorder.events))

    @contextlib.contextmanager
    def noted() -> Iterator[None]:
        """Create the context of the forward or the backward."""
        with contextlib.nullcontext() if training is None else training.noted(), around():
            yield

    def hand_over(method: str, tensor: Any) -> None:
        """Note a method call outside of compiled code; see `on_method_call`."""
        if not recorder.suspensions:
            recorder.hand_over(method, tensor)
            if training is not None:
                methods.append((method, "", source_of(current_line(STEP))))
                training.note_call()

    threads = run_noted(
        step,
        recorder,
        hand_over,
        call=call,
        around=noted,
        ignored=lambda: recorder.suspensions > 0,
    )
    # An output without a recorded producer becomes an unknown input, for `refuse_unseen`.
    for tensor in output_leaves(step.output):
        # AOTAutograd wraps a subclass only after the recorded ops.
        if type(tensor) in (torch.Tensor, torch.nn.Parameter):
            recorder.number_of(tensor)
    for op, line in recorder.hidden:  # first, because `refuse_unseen` would report its results
        raise CaptureError(
            f"{op} ran eagerly{at_line(line)}, so the ops of its body were not recorded, and the "
            "graphs would be incomplete. Remove the graph break around it: "
            "via=Aot(fullgraph=True) raises at the break"
        )
    refuse_unseen(recorder, threads)
    refuse_unwritten(_find_unwritten(step, recorder))
    if training is not None:
        called = _divide(recorder, training)
        recorder.methods = [(*m, phase) for m, phase in zip(methods, called, strict=True)]


def _divide(recorder: IslandRecorder, training: TrainingRecord) -> Sequence[Phase]:
    """Find the phases of a training step. Return those of its method calls.

    The phases of the events are noted in the events, in `recorder.in_update`, and in the kind of a
    compiled graph that ran only in the update.
    """
    events = []
    for event in recorder.events:
        if isinstance(event, EagerRecord):
            in_module = event.path_number > 0
            events.append(event_of(recorder, event, backward=event.backward, in_module=in_module))
        else:
            events.append(_event_of_run(recorder, event))
    result = training.finish()(events)
    recorder.updated = lambda: result.updated
    recorder.step_counts = result.step_counts
    phases: dict[int, set[Phase]] = {}  # by the `id` of a compiled graph
    for event, phase in zip(recorder.events, result.phases, strict=True):
        if phase == "update":
            recorder.in_update.add(id(event))
        event.backward = phase == "backward"  # also of the op that makes the gradient of the loss
        if isinstance(event, CompiledRun):
            phases.setdefault(id(event.compiled_graph), set()).add(phase)
    for event in recorder.events:
        if isinstance(event, CompiledRun) and phases[id(event.compiled_graph)] == {"update"}:
            of_graph = event.compiled_graph
            graph = replace(of_graph.converted.graph, kind="update")
            if (line := source_of(event.line)) is not None:
                # The lines inside of torch.optim are no user's lines.
                graph = graph.map_nodes(lambda n, line=line: replace(n, source=n.source or line))
            of_graph.converted = replace(of_graph.converted, graph=graph)
    return result.called


def _event_of_run(recorder: IslandRecorder, run: CompiledRun) -> Access:
    """Return what a run of a compiled graph reads and writes."""
    memory = recorder.memory
    operands = [*parts_of(run.inputs, Value)]
    results = [*parts_of(run.outputs, Value)]
    before = {memory(value) for value in operands}
    # AOTAutograd copies results into arguments.
    written = {memory(v) for v in results if memory(v) != recorder.storage_of[v]}
    return Access(
        run.backward,
        in_module=True,  # so that a graph that writes only buffers is a forward
        reads=before | {~value for value in operands},
        writes=written | {memory(value) for value in parts_of(run.written, Value)},
        makes={memory(value) for value in results} - before | {~value for value in results},
        line=run.line,
    )


def _find_unwritten(step: Step, recorder: IslandRecorder) -> UnwrittenReads:
    """Search for tensors that the step reads but never wrote to.

    The tensors that it returns count as read.
    """
    unwritten_reads = UnwrittenReads(recorder)
    for event in recorder.events:
        if isinstance(event, EagerRecord):
            unwritten_reads.ran(event)
        else:
            values = [value for value in event.inputs if type(value) is Value]
            # If a graph with a backward writes to an input, AOTAutograd copies the new value in.
            unwritten_reads.wrote(
                [v for v in values if v in event.written or recorder.is_rewritten(v)]
            )
            unwritten_reads.read(values)
    unwritten_reads.read(recorder.number_of(tensor) for tensor in output_leaves(step.output))
    return unwritten_reads


def recorded_islands(
    step: Step,
    recorder: IslandRecorder,
    canon: CanonicalNames,
    compiled_graphs: Sequence[CompiledGraph],
) -> Callable[[], Islands]:
    """Return a function that builds the islands of a step; it takes about as long as recording.

    Args:
        step: the step, which has just run.
        recorder: its recorder.
        canon: canonical names of symbols and devices.
        compiled_graphs: the graphs that count, in order.
    """
    graphs = numbered(compiled_graph.converted.graph for compiled_graph in compiled_graphs)
    compiled = {
        id(compiled_graph): (number, graph, compiled_graph.converted)
        for number, (compiled_graph, graph) in enumerate(zip(compiled_graphs, graphs, strict=True))
    }
    from ..protocol import leaves_of  # here, because `protocol` imports `Islands`

    leaves = leaves_of(step.output, lambda tensor: tensor)
    results = {f"output {leaf.path}": leaf.value for leaf in leaves if leaf.is_tensor}
    # Tensors without a path, such as those in opaque objects, have to be in the graphs too.
    for number, tensor in enumerate([*output_leaves(step.output), *step.saved.replaced_buffers()]):
        results[f"kept {number}"] = tensor
    for number, leaf in enumerate(step.leaves):
        if leaf.grad is not None:  # a leaf in a closure has no name
            _, name = step.invocation.named.tensors.get(id(leaf), ("", f"leaf {number}"))
            results[f"grad {name}"] = leaf.grad
    values = {name: recorder.number_of(tensor) for name, tensor in results.items()}
    return functools.partial(islands_of, recorder, canon, compiled, values)
