"""Capture by a TorchDispatchMode: records the ops as they run, then replays them as nodes.

`Dispatch.capture` runs the step under a `DispatchRecorder` and returns a function that builds the
graphs by a `DispatchReplay`: one of the forward, one of the backward. For a training step,
`capture_training_step` does the same. A `_StepReplay` then builds one graph for each `_Segment`.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch

from .. import torch_private
from ..convert import effects
from ..convert.canonical_names import CanonicalNames
from ..convert.source_lines import current_line, source_of
from ..errors import CaptureError
from ..graph.model import Arg, Atom, Graph, GraphKind, Phase, RecomputedBy, Ref, Source
from ..ops.matching import Level
from ..ops.qualified import op_name
from ..ops.views import KNOWN_NAMESPACES
from ..syncs.detect import RecordedCalls
from ..syncs.model import STARTS
from ..syncs.op_calls import SyncCall, may_sync_or_copy
from .protocol import UNKNOWN_TENSOR, Built, Captured, Leaf, leaves_of, numbers_are_exact, output_of
from .recording import (
    FIRST_LEAF_SEQUENCE,
    HANDS_OVER,
    LIFT,
    Draft,
    ModuleCalls,
    OpRecord,
    RecordingMode,
    Replay,
    Section,
    UnwrittenReads,
    Value,
    collector_paused,
    computes_nothing,
    parts_of,
    refuse_unseen,
    refuse_unwritten,
    run_noted,
)
from .step import NamedTensors, SavedState, Step, output_leaves
from .training import StepPhases, TrainingRecord, event_of

_inference_mode_is_on = torch.is_inference_mode_enabled
_NONE: dict[str, Any] = {}
"""Keyword arguments shared by all calls without any."""


class DispatchRecorder(RecordingMode):  # type: ignore[no-untyped-call]
    """Records the forward and backward ops of one step.

    Args:
        named: the tensors and modules with names.
        saved: notified before each op that may write.

    Attributes:
        forward, backward: the ops of each.
        program: all ops in order, with True inside a module.
        records: `forward` or `backward`, whichever is running.
        calls: the module calls.
    """

    def __init__(self, named: NamedTensors, saved: SavedState):
        super().__init__(named)
        self._saved = saved
        self._writing: dict[int, bool] = {}
        self.forward: list[OpRecord] = []
        self.backward: list[OpRecord] = []
        self.program: list[tuple[OpRecord, bool]] = []
        self.records = self.forward
        self.calls = ModuleCalls(self)

    @contextmanager
    def recording(self, *, backward: bool) -> Iterator[None]:
        """Record everything that runs inside, as the forward or as the backward."""
        self.records = self.backward if backward else self.forward
        self.calls.is_marking = not backward
        with self.calls.recording(), self:
            yield

    @contextmanager
    def recording_backward(self) -> Iterator[None]:
        """Record a backward that a training step itself runs."""
        self.records, self.calls.is_marking = self.backward, False
        try:
            yield
        finally:
            self.records, self.calls.is_marking = self.forward, True

    # -- ops -------------------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an op, and record it."""
        # The wrapper of such a type then runs other ops, which arrive here.
        if types and torch_private.stands_for_others(types):
            return NotImplemented
        if _inference_mode_is_on() and self.is_composite(func):
            # Inference mode skips the dispatch key that decomposes composite ops.
            with self:
                return func.decompose(*args, **(kwargs or {}))
        writes = self.writes
        if writes is not None and not writes.is_following:
            # This calls `__torch_dispatch__` again.
            return writes.follow(func, self.__torch_dispatch__, args, kwargs or {})
        if func is LIFT:
            self.lifted(args[0])
        if self.calls.hooks is not None:  # saves a call per op
            self.calls.end_hooks()
        if self._saved.unwritten and self._may_write(func):
            self._saved.before_write(args, *(kwargs or _NONE).values())
        encoded = self.encode_all(args)
        if kwargs:
            named = {key: self.encode(arg) for key, arg in kwargs.items()}
            output = func(*args, **kwargs)
        else:
            named = _NONE
            output = func(*args)
        self._record(func, encoded, named, self.encode(output, True))
        return output

    def read(self, method: str, tensor: Any) -> None:
        """Record a method call that reads a tensor without dispatching an op, or starts a thread.

        Because of the recorded read, the ops that computed the tensor are not dead code.
        """
        self.hand_over(method, tensor)
        if method in HANDS_OVER:  # numpy may write into the shared memory
            self._saved.before_write(tensor)
        if method == STARTS:  # writes of the thread are not seen
            self._saved.copy_all()
        op = sys.intern(f"Tensor.{method}")  # one text for all records
        if op in effects.READING and isinstance(tensor, torch.Tensor):
            self.calls.end_hooks()
            self._record(op, (self.number_of(tensor),), _NONE, None)

    def _record(
        self, func: Any, encoded: tuple[Any, ...], named: dict[str, Any], result: Any
    ) -> None:
        """Add a record of an op or method, with the place where it runs."""
        stack = self.calls.running
        if self.records is self.forward:
            path, sequence = (stack[-1] if stack else 0), self._sequence()
            line = current_line()
            by: RecomputedBy = ""
            if self.is_packing():  # an op of the hook belongs to the op that saves the tensor
                sequence = self.records[-1].sequence if self.records else self._begin
        else:
            node = self._autograd_node()
            path = stack[-1] if stack else -1
            sequence = self.sequence_of(node)
            by = self.by(node, bool(stack))
            # Of code of the user that the engine calls: a hook, or a backward of a Function.
            line = current_line(self._engine) if by == "function" else None
            if path == -1 and sequence >= FIRST_LEAF_SEQUENCE:
                path = self.number_of_owner(node)
        record = OpRecord(func, encoded, named, result, path, sequence, line, by)
        self.records.append(record)
        self.program.append((record, bool(stack)))

    def _may_write(self, func: Any) -> bool:
        """Return True if an op writes to an argument, or is a custom op.

        The schema of a custom op may omit its writes.
        """
        may_write = self._writing.get(id(func))  # hashing takes longer, and torch keeps its ops
        if may_write is None:
            is_mutable = getattr(getattr(func, "_schema", None), "is_mutable", True)
            may_write = bool(is_mutable or getattr(func, "namespace", "") not in KNOWN_NAMESPACES)
            self._writing[id(func)] = may_write
        return may_write


class DispatchReplay(Replay):
    """Builds the graphs of one recorded step."""

    def __init__(self, recorder: DispatchRecorder, canon: CanonicalNames):
        super().__init__(recorder, canon)
        self.forward, self.backward = recorder.forward, recorder.backward
        self.calls = recorder.calls
        self.sequences = [record.sequence for record in recorder.forward]

    def graphs(self, outputs: Sequence[Value], grads: Sequence[Value] | None) -> list[Graph]:
        """Return the forward (or inference) graph and, if a backward ran, the backward graph."""
        for record in self.forward:
            self.add(record)
        returned = [self.draft_of(value) for value in outputs]
        writes = self.writes_after()
        if grads is None:
            return [Section(self, 0, returned, writes=writes).graph("inference")]
        self.section = 1
        for record in self.backward:
            self.add(record)
        results = [self.draft_of(value) for value in grads]
        # What the backward takes from the forward is what the forward saves.
        section = Section(self, 1, results, writes=self.writes_after())
        saved = section.outside()
        forward = Section(self, 0, returned, saved, writes=writes)
        graph = forward.graph("forward")
        section.input_names = {i: forward.names[i] for i in saved}
        section.reserved = forward.names.values()
        return [graph, section.graph("backward")]

    def place(self, record: OpRecord) -> tuple[str, Source | None]:
        """Return the module path and source of an op (in a backward, of its forward op).

        Code that the backward calls, such as a hook, has its own source.
        """
        paths = self.recorder.paths
        sequence = record.sequence
        is_known = bool(record.line and not record.by) or record.path_number >= 0
        if is_known or not 0 <= sequence < FIRST_LEAF_SEQUENCE:
            return paths[max(record.path_number, 0)], source_of(record.line)
        path = self.calls.path_at(sequence)
        # The forward op that created the node is the first with a higher number: an op's own number
        # is read after the op.
        forward_index = bisect_right(self.sequences, sequence)
        line = self.forward[forward_index].line if forward_index < len(self.forward) else None
        return path, source_of(record.line or line)


class _StepReplay(DispatchReplay):
    """Builds the graphs of a training step, one for each run of ops of one phase.

    Attributes:
        owners: the module path of parameters, gradients and state, by storage.
        called_at: the line of the backward that is being built; `None` in other phases.
    """

    def __init__(self, recorder: DispatchRecorder, canon: CanonicalNames, owners: dict[int, str]):
        super().__init__(recorder, canon)
        self.owners = owners
        self.called_at: Source | None = None

    def receive(self, value: Value, name: str) -> None:
        """Make a gradient of an earlier backward an input of the section, under its own name."""
        number = self.push(Draft("placeholder", "buffer", result=self.meta(value), wanted=name))
        self.define(value, number)
        self.storages.owner[self.recorder.storage_of[value]] = number

    def is_computed_in(self, i: int, section: int) -> bool:
        """Return True if an op of a section computes a draft."""
        draft = self.drafts[i]
        return draft.section == section and draft.kind != "placeholder"

    def place(self, record: OpRecord) -> tuple[str, Source | None]:
        """Return the module path and source of an op.

        An op of an update belongs to the module whose parameters, gradients and state it takes.
        """
        path, source = super().place(record)
        if not path and record.line is not None and not record.by:
            storage_of = self.recorder.storage_of
            values = [*parts_of((record.args, record.kwargs), Value)]
            paths = {self.owners.get(storage_of[value]) for value in values} - {None}
            # Several owners: an op on lists of parameters, such as of a foreach optimizer.
            if len(paths) == 1:
                (path,) = paths  # type: ignore[assignment]
                for value in parts_of(record.output, Value):
                    self.owners.setdefault(storage_of[value], path)
        return path, source or self.called_at


class _StepSection(Section):
    """The ops of one phase of a training step."""

    kind: GraphKind = "forward"

    def role(self, i: int) -> str:
        """Return the role of an input: a forward saves nothing for another forward."""
        role = super().role(i)
        return "input" if role == "saved" and self.kind in ("forward", "inference") else role


@dataclass
class _Segment:
    """Consecutive ops of one phase.

    Attributes:
        phase: the phase.
        begin: position of the first op.
        records: the ops.
        returned: drafts that the segment returns: gradients, or outputs of the step.
        name: the name of the graph.
    """

    phase: Phase
    begin: int
    records: list[OpRecord] = field(default_factory=list)
    returned: list[int] = field(default_factory=list)
    name: str = ""


def _segments(program: Sequence[tuple[OpRecord, bool]], phases: Sequence[Phase]) -> list[_Segment]:
    """Divide the ops of a step by phase.

    Before an update begins, an op that only feeds it is moved there, so that it divides no forward.
    """
    segments: list[_Segment] = []
    waiting: list[OpRecord] = []  # ops of an update that has not begun
    for number, ((record, _), phase) in enumerate(zip(program, phases, strict=True)):
        may_write = not isinstance(record.op, str) and not effects.facts(record.op).pure
        is_open = bool(segments) and segments[-1].phase == phase
        if phase == "update" and not is_open and not may_write:
            waiting.append(record)
            continue
        if not is_open:
            segments.append(_Segment(phase, number))
            # `zero_grad` begins with a mark of the profiler, and detaches gradients: no phase.
            if len(segments) > 1 and all(map(_is_idle, segments[-2].records)):
                segments[-1].records += segments.pop(-2).records
        if phase == "update" and waiting:
            segments[-1].records += waiting
            waiting = []
        segments[-1].records.append(record)
    if waiting:
        if not segments or segments[-1].phase != "update":
            segments.append(_Segment("update", len(program)))
        segments[-1].records += waiting
    return segments


def _is_idle(record: OpRecord) -> bool:
    """Return True for a record of a view or a mark; see `computes_nothing`."""
    return computes_nothing(effects.facts(record.op).name or op_name(record.op))


def graphs_of_step(
    replay: _StepReplay,
    segments: Sequence[_Segment],
    training: TrainingRecord,
    outputs: list[Value],
) -> list[Graph]:
    """Return the graphs of a training step, in program order.

    Args:
        replay: creates the drafts, in one section per segment.
        segments: the ops of each graph. They get their names here.
        training: what was noted about the step.
        outputs: the values that the step returns.
    """
    drafts = replay.drafts
    is_trained = any(segment.phase == "backward" for segment in segments)
    kinds: list[GraphKind] = [
        "inference" if segment.phase == "forward" and not is_trained else segment.phase
        for segment in segments
    ]
    totals, used = Counter(kinds), Counter[str]()
    writes = []
    for number, segment in enumerate(segments):
        kind = kinds[number]
        segment.name = f"{kind}_{used[kind]}" if totals[kind] > 1 else kind
        used[kind] += 1
        replay.section = number
        for value, name in training.gradients(segment.begin).items():
            replay.receive(value, name)
        replay.called_at = training.line_at(segment.begin)
        for record in segment.records:
            replay.add(record)
        if segment.phase == "backward":
            # It returns the gradients that exist at its end and that it has computed.
            made = training.gradients(segment.begin + len(segment.records))
            new = [replay.draft_of(value) for value in made if value in replay.current]
            segment.returned += [i for i in new if replay.is_computed_in(i, number)]
        writes.append(replay.writes_after())
    for value in outputs:
        i = replay.draft_of(value)
        # A draft of no op is an input that the step returns as it is.
        if replay.is_computed_in(i, drafts[i].section):
            segments[drafts[i].section].returned.append(i)
    sections = _sections_of_step(replay, segments, writes)
    graphs: list[Graph] = []
    for number, section in enumerate(sections):
        outside = section.outside()
        latest = max((drafts[i].section for i in outside), default=0)
        for i in outside:
            if drafts[i].kind == "placeholder":
                continue
            maker = drafts[i].section
            name = sections[maker].names[i]
            # The names of several graphs of one kind are equal. Those of the latest stay short.
            is_qualified = maker != latest and totals[kinds[maker]] > 1
            section.input_names[i] = f"{segments[maker].name}:{name}" if is_qualified else name
        section.reserved = [*section.input_names.values()]
        section.kind = kinds[number]
        graphs.append(replace(section.graph(section.kind), name=segments[number].name))
    return graphs


def _sections_of_step(
    replay: _StepReplay,
    segments: Sequence[_Segment],
    writes: Sequence[Mapping[int, Sequence[int]]],
) -> list[_StepSection]:
    """Return the section of each segment, which returns or saves all that later segments use.

    Args:
        replay: holds the drafts of all segments.
        segments: the segments.
        writes: for each segment, see `Section`.
    """
    drafts = replay.drafts
    roots = {i for segment in segments for i in segment.returned}  # never only saved
    sections: list[_StepSection] = []
    used_later: dict[int, set[str]] = {}  # for each draft, the phases of later segments that use it
    for number in reversed(range(len(segments))):
        segment = segments[number]
        own = [i for i, phases in sorted(used_later.items()) if drafts[i].section == number]
        is_forward = segment.phase == "forward"
        saved = [i for i in own if is_forward and "backward" in used_later[i] and i not in roots]
        returned = [*dict.fromkeys([*segment.returned, *(i for i in own if i not in saved)])]
        section = _StepSection(replay, number, returned, saved, writes=writes[number])
        for i in section.outside():
            if drafts[i].kind != "placeholder":
                used_later.setdefault(i, set()).add(segment.phase)
        sections.insert(0, section)
    return sections


def capture_training_step(step: Step, canon: CanonicalNames) -> Captured:
    """Record a training step: forward, backward and update. Its compiled parts run eagerly."""
    recorder = DispatchRecorder(step.invocation.named, step.saved)
    program = recorder.program
    training = TrainingRecord(recorder, step, lambda: len(program))
    seen = RecordedCalls()

    def note(method: str, owner: Any) -> None:
        note_method(seen, recorder, method, owner)
        training.note_call()

    # A backend that is kept would keep what the user compiled.
    def note_eager_run(_backend: Any) -> None:
        seen.ran_eagerly = True

    noted = functools.partial(training.noted, recorder.recording_backward)
    with torch_private.run_eagerly(note_eager_run), warnings.catch_warnings():
        # torch warns that our hooks see a compiled module twice.
        warnings.filterwarnings("ignore", message="Using `torch.compile.module.` when there are")
        step.warm_up()
        threads = run_noted(step, recorder, note, around=noted)
    outputs, buffers, leaves = _results(step, recorder)
    refuse_unseen(recorder, threads)
    _refuse_unwritten(recorder, [*outputs, *buffers])
    divide, owners = training.finish(), training.owners()

    @functools.cache
    def phases() -> StepPhases:
        """Return the phases of the ops: needed for the graphs, and for `Captured.training`."""
        backward = set(map(id, recorder.backward))
        return divide(
            [
                event_of(recorder, record, backward=id(record) in backward, in_module=in_module)
                for record, in_module in program
            ]
        )

    def build() -> Built:
        """Build the graphs, and complete the recorded calls."""
        result = phases()
        # `note_method` does not know the update.
        seen.methods[:] = [
            (*method[:3], phase) for method, phase in zip(seen.methods, result.called, strict=True)
        ]
        segments = _segments(program, result.phases)
        replay = _StepReplay(recorder, canon, owners)
        with collector_paused():
            graphs = graphs_of_step(replay, segments, training, [*outputs, *buffers])
        forwards = [n for n, g in enumerate(graphs) if g.kind in ("forward", "inference")]
        if forwards:
            last = forwards[-1]
            names = _names_of_outputs(replay, segments, graphs, outputs, graphs[last].name)
            graphs[last] = _with_output(graphs[last], leaves, names)
        for segment in segments:
            replay.called_at = training.line_at(segment.begin)
            for record in segment.records:
                note_call(seen, replay, record, segment.name, ignored=result.step_counts)
        return Built(graphs, seen, replay.kept_by_name)

    # As in `Dispatch.capture`: graphs without an op are an error.
    is_empty = all(_is_idle(record) for record, _ in program)
    return Captured(build() if is_empty else build, training=lambda: phases().updated)


def _names_of_outputs(
    replay: Replay,
    segments: Sequence[_Segment],
    graphs: Sequence[Graph],
    outputs: Sequence[Value],
    last: str,
) -> list[tuple[str, str]]:
    """Return the graph that computes each output, "" for none, and its name in `Graph.output`.

    Args:
        last: the name of the last forward graph.
    """
    names = []
    for value in outputs:
        i = replay.draft_of(value)
        draft = replay.drafts[i]
        if draft.kind == "placeholder":
            names.append(("", f"{draft.op}.{draft.wanted}"))
        else:
            segment = segments[draft.section]
            position = [*dict.fromkeys(segment.returned)].index(i)  # as in `graphs_of_step`
            node = graphs[draft.section].outputs[position].name
            is_last = segment.name == last
            names.append((segment.name, node if is_last else f"{segment.name}#{position}"))
    return names


def _with_output(graph: Graph, leaves: Sequence[Leaf], names: Sequence[tuple[str, str]]) -> Graph:
    """Add the return value of the target to its last forward graph.

    Args:
        graph: the graph.
        leaves: the leaves of the return value. The value of a tensor is its index in `names`.
        names: for each tensor of the output, the graph that computes it and its name there.
    """

    def value_of(position: int | None) -> Arg:
        """Return a tensor of the output, as a value of this graph if it computes the tensor."""
        if position is None:
            return UNKNOWN_TENSOR
        maker, name = names[position]
        if maker == graph.name:
            return Ref(name)
        return Atom(name)

    own = [Ref(name) for maker, name in names if maker == graph.name]
    exact = numbers_are_exact((graph,)) and all(maker in ("", graph.name) for maker, _ in names)
    return replace(graph, output=output_of(leaves, own, value_of, exact=exact))


_REFUSED = (
    "torch.compile compiled {}, and a dispatch mode does not record the ops of compiled code. "
    "Capture the eager function, or use via='aot'. For a training step that calls compiled code, "
    "name what it changes: updates=(model, optimizer)"
)


@dataclass(frozen=True)
class Dispatch:
    """A TorchDispatchMode that records each op that reaches the dispatcher below autograd.

    An op whose result nothing uses is in the graph, unless it is a view.
    """

    name: ClassVar[str] = "dispatch"
    level: ClassVar[Level] = "dispatch"

    def capture(
        self, step: Step, canon: CanonicalNames, *, keep_constants: bool = False
    ) -> Captured:
        """Run the step under the mode.

        Args:
            keep_constants: whether to keep the tensors of constants, so that the graphs can run
                again.
        """
        named = step.invocation.named
        if step.invocation.updates is not None:
            return capture_training_step(step, canon)
        compiled = _compiled_modules(step.invocation.target, named)
        if compiled:
            raise CaptureError(_REFUSED.format(compiled))
        recorder = DispatchRecorder(named, step.saved)
        recorder.kept = {} if keep_constants else None
        seen = RecordedCalls()

        with _no_compiled_region():
            note = functools.partial(note_method, seen, recorder)
            threads = run_noted(step, recorder, note)
        outputs, buffers, leaves = _results(step, recorder)
        tensor_count = len(outputs)
        outputs += buffers
        grads = [recorder.number_of(leaf.grad) for leaf in step.leaves if leaf.grad is not None]
        refuse_unseen(recorder, threads)
        _refuse_unwritten(recorder, [*outputs, *grads])
        ran_backward = step.ran_backward
        if not ran_backward:  # the target may have run a backward of its own
            outputs += grads

        def build() -> Built:
            """Build the graphs, and complete the recorded calls."""
            replay = DispatchReplay(recorder, canon)
            with collector_paused():
                graphs = replay.graphs(outputs, grads if ran_backward else None)
            names = [(graphs[0].name, node.name) for node in graphs[0].outputs[:tensor_count]]
            graphs[0] = _with_output(graphs[0], leaves, names)
            # Without a backward there is one graph.
            for graph, records in zip(graphs, (recorder.forward, recorder.backward), strict=False):
                for record in records:
                    note_call(seen, replay, record, graph.name)
            if ran_backward and not any(node.is_call for node in graphs[1].nodes):
                raise CaptureError(
                    "the backward ran, but none of its ops contributes to a leaf's gradient: check "
                    "for hooks that clear .grad"
                )
            return Built(graphs, seen, replay.kept_by_name)

        # Building the graphs takes about as long as recording, so they are built when first read.
        # But if they may turn out empty, they are built now, because that is an error.
        computed = any(value not in recorder.origin for value in outputs)
        return Captured(build if computed and (grads or not ran_backward) else build())


def _results(
    step: Step, recorder: RecordingMode
) -> tuple[list[Value], list[Value], Sequence[Leaf]]:
    """Return the values of the output's tensors and of replaced buffers, and the output's leaves.

    No tensor of the step may outlive it.
    """
    tensors = output_leaves(step.output)
    positions = {id(tensor): position for position, tensor in enumerate(tensors)}
    leaves = leaves_of(step.output, lambda tensor: positions.get(id(tensor)))
    outputs = [recorder.number_of(tensor) for tensor in tensors]
    buffers = [recorder.number_of(buffer) for buffer in step.saved.replaced_buffers()]
    return outputs, buffers, leaves


def _refuse_unwritten(recorder: DispatchRecorder, read: Iterable[Value]) -> None:
    """Refuse a step that reads memory which no recorded op has written."""
    unfilled = UnwrittenReads(recorder)
    for record, _ in recorder.program:
        unfilled.ran(record)
    unfilled.read(read)
    refuse_unwritten(unfilled)


def _compiled_modules(target: Any, named: NamedTensors) -> str:
    """Return the name of a part of the target that `torch.compile` has compiled, "" if none is."""
    if torch_private.is_compiled(target):
        return "the target itself"
    for path, module in named.all_modules:
        if torch_private.is_compiled(module):
            return f"module {path or type(module).__name__}"
    return ""


@contextlib.contextmanager
def _no_compiled_region() -> Iterator[None]:
    """Raise as soon as a compiled function is entered.

    If the target is the first to import Dynamo, raise afterwards, because importing it only for our
    observer would take a second.
    """
    loaded = "torch._dynamo" in sys.modules
    with torch_private.on_compiled_region(_refuse) if loaded else contextlib.nullcontext():
        yield
    if not loaded and "torch._dynamo" in sys.modules and torch_private.frames_seen():
        _refuse(None)


def _refuse(function: Any) -> None:
    """Raise `CaptureError` for a compiled function; `None` if it is unknown."""
    name = getattr(function, "__qualname__", "")
    if str(getattr(function, "__module__", "")).startswith("torch."):
        raise CaptureError(
            f"torch's {name.partition('.')[0]} compiles itself in eager code, so a dispatch mode "
            "does not record its ops. Use via='aot', where its bodies are subgraphs"
        )
    raise CaptureError(_REFUSED.format(name or "code inside the target"))


def note_call(
    seen: RecordedCalls,
    replay: Replay,
    record: OpRecord,
    graph: str,
    ignored: frozenset[int] = frozenset(),
) -> None:
    """Add a recorded op call to `seen` if it may wait for a device.

    Args:
        graph: the name of the graph with the op.
        ignored: storages on the CPU that may be read: the step counts of optimizers.
    """

    def described(value: Any) -> Any:
        """Return an argument with metadata instead of tensors."""
        if type(value) is Value:
            return replay.meta(value)
        if type(value) is tuple:
            return tuple([described(item) for item in value])
        return replay.canon.constant(value)

    if isinstance(record.op, str):  # a method: `note_method` has added it
        return
    op = effects.facts(record.op).name or op_name(record.op)
    if may_sync_or_copy(op):
        storage_of = replay.recorder.storage_of
        if any(storage_of[v] in ignored for v in parts_of(record.args, Value)):
            return
        module, source = replay.place(record)
        kwargs = {key: described(value) for key, value in record.kwargs.items()}
        result = replay.result(record.output)
        call = SyncCall(op, described(record.args), kwargs, result)
        seen.calls.append((call, graph, module, source))


def note_method(seen: RecordedCalls, recorder: DispatchRecorder, method: str, owner: Any) -> None:
    """Add a method call on a tensor or a thread to `seen`, just before it runs.

    Also let the recorder record it.
    """
    recorder.read(method, owner)
    source = source_of(current_line())
    phase = "forward" if recorder.records is recorder.forward else "backward"
    recorder.calls.end_hooks()
    module = recorder.paths[recorder.calls.running[-1]] if recorder.calls.running else ""
    seen.methods.append((method, module, source, phase))
