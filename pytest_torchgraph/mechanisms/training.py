"""The phases of a training step: its forward, its backward, and its update.

A phase is a property of an event, an op or a run of a compiled graph. It is known only after the
step: an op before the backward belongs to the update if its result is needed only there.

While the step runs, a `TrainingRecord` notes each run of the autograd engine and each optimizer
step. Its `finish` returns a function that divides the events: `_phases` decides, and `_updated`
says what happened to each parameter. `event_of` reduces an op to what it reads and writes.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from .. import torch_private
from ..convert import effects
from ..convert.source_lines import Line, current_line, source_of
from ..graph.events import UpdatedParameter
from ..graph.model import Phase, Source
from .recording import FIRST_LEAF_SEQUENCE, OpRecord, RecordingMode, Value, parts_of
from .step import STEP, Step

_TANGENT = torch.ops.aten.ones_like.default
"""The op with which `loss.backward()` makes the gradient of the loss, before the engine runs."""


class Backward(NamedTuple):
    """One run of the autograd engine.

    Attributes:
        begin, end: positions of its first event, and of the event after its last one.
        line: the user's line that called it.
        grads: the gradients afterwards, by position of the leaf.
        got: the positions of the leaves whose gradient it made or changed.
    """

    begin: int
    end: int
    line: Line | None
    grads: Mapping[int, Value]
    got: Set[int]


@dataclass
class Access:
    """What an event reads and writes: storages by number, and values by `~number`.

    A view is a value of its own, in the storage of its base.

    Attributes:
        backward: whether it ran in a backward.
        in_module: whether a module was running.
        reads, writes, makes: arguments, storages of written arguments, and new storages and values.
        tangent: the gradient of a loss, if the event made it.
        line: the user's line.
        accumulates: whether autograd ran it to add to a gradient of a leaf.
        replaces: whether it writes without reading, such as `zero_`.
    """

    backward: bool
    in_module: bool
    reads: set[int]
    writes: set[int]
    makes: set[int]
    tangent: Value | None = None
    line: Line | None = None
    accumulates: bool = False
    replaces: bool = False


_REPLACING = frozenset("zero_ fill_ copy_ _foreach_zero_ _foreach_copy_".split())
"""Names of ops that write to their first argument without reading it."""


@dataclass
class TrainingRecord:
    """What a recorder notes about a training step, besides its events.

    Args:
        recorder: the recorder.
        step: the step.
        count: returns the number of events so far.

    Attributes:
        backwards: the runs of the autograd engine, in order.
        steps: for each step of an optimizer, the position where it began.
        calls: for each method call, its position, and whether a backward was running.
        tangents: the gradients of losses that the engine was called with.
        updates: the updates of the step.
        leaf_names: the name of each leaf of the step.
        before: the gradients that the step begins with, by position of the leaf.
    """

    recorder: RecordingMode
    step: Step
    count: Callable[[], int]
    backwards: list[Backward] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    calls: list[tuple[int, bool]] = field(default_factory=list)
    tangents: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        updates = self.step.invocation.updates
        assert updates is not None
        self.updates = updates
        names = {id(p): name for name, p in self.step.invocation.named.all_parameters}
        self.leaf_names = [
            names.get(id(leaf)) or self.updates.parameters.get(id(leaf), ("", leaf))[0]
            for leaf in self.step.leaves
        ]
        self.before: dict[int, Value] = {}
        self._state_before: set[int] = set()  # storages of the state that the step begins with
        self._named: set[int] = set()  # the ids that `_name` added to the named tensors
        self._depth = 0  # number of running backwards

    def _introduce(self) -> None:
        """Name the state and the gradients that the step begins with."""
        for name, leaf in zip(self.leaf_names, self.step.leaves, strict=True):
            if leaf.grad is not None:
                self._name(f"{name}.grad", leaf.grad)
        for name, parameter in self.updates.parameters.values():
            self._name(name, parameter)
        state = [*self.updates.tensors()]
        for name, tensor in state:
            self._name(name, tensor)
        self.before = {
            number: self.recorder.number_of(leaf.grad)
            for number, leaf in enumerate(self.step.leaves)
            if leaf.grad is not None
        }
        self._state_before = self._storages(state)

    def _name(self, name: str, tensor: torch.Tensor) -> None:
        """Name a tensor, and declare it to the recorder, unless it has a name."""
        named = self.step.invocation.named
        if id(tensor) not in named.tensors:
            role = "parameter" if isinstance(tensor, torch.nn.Parameter) else "buffer"
            named.tensors[id(tensor)] = role, name
            self._named.add(id(tensor))
            self.recorder.introduce(tensor, role, name)

    @contextlib.contextmanager
    def noted(
        self,
        inside: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
    ) -> Iterator[None]:
        """Name what the step begins with, and note backwards and optimizer steps.

        Args:
            inside: creates a context for each run of the autograd engine.
        """

        @contextlib.contextmanager
        def running(_roots: Any, grads: Sequence[Any], _inputs: Any) -> Iterator[None]:
            """Note a run of the engine as a `Backward`."""
            # A reentrant checkpoint, or AOTAutograd traces the backward of a graph: part of another
            # backward, or of no run.
            if self._depth or self.recorder.suspensions:
                yield
                return
            begin, line = self.count(), current_line(STEP)
            self.tangents.update(
                self.recorder.number_of(grad) for grad in grads if isinstance(grad, torch.Tensor)
            )
            before = self.step.grads()
            self._depth += 1
            try:
                with inside():
                    yield
            finally:
                self._depth -= 1
            values, got = dict[int, Value](), set[int]()
            for number, (grad, version) in enumerate(self.step.grads()):
                if grad is not None:
                    values[number] = self.recorder.number_of(grad)
                    if grad is not before[number][0] or version != before[number][1]:
                        got.add(number)
            self.backwards.append(Backward(begin, self.count(), line, values, got))

        self._introduce()
        optimizers = self.step.saved.optimizers
        optimizers.on_step = lambda: self.steps.append(self.count())
        try:
            with torch_private.around_engine(running):
                yield
        finally:
            optimizers.on_step = None

    def note_call(self) -> None:
        """Note a call of a method that reads a tensor, after its own event if it has one."""
        self.calls.append((self.count(), self._depth > 0))

    def _storages(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> set[int]:
        """Return the storages of named tensors."""
        return {self.recorder.memory(t) for _, t in tensors}

    def gradients(self, begin: int) -> Mapping[Value, str]:
        """Return the gradients that exist at a position, with their names."""
        values = {self.before[n]: f"{self.leaf_names[n]}.grad" for n in self.before}
        for backward in self.backwards:
            if backward.end <= begin:
                grads = backward.grads.items()
                values.update((value, f"{self.leaf_names[n]}.grad") for n, value in grads)
        return values

    def line_at(self, position: int) -> Source | None:
        """Return the line of the backward that ran an event; `None` for other events."""
        # The event before the engine starts makes the gradient of the loss.
        lines = (b.line for b in self.backwards if b.begin - 1 <= position < b.end)
        return source_of(next(lines, None))

    def owners(self) -> dict[int, str]:
        """Return the module path of each parameter, gradient and state, by storage number."""
        memory, owners = self.recorder.memory, dict[int, str]()
        for number, (name, leaf) in enumerate(zip(self.leaf_names, self.step.leaves, strict=True)):
            path = name.rpartition(".")[0]
            values = [self.recorder.number_of(leaf), self.before.get(number)]
            values += [backward.grads.get(number) for backward in self.backwards]
            owners.update((memory(value), path) for value in values if value is not None)
            for _, optimizer in self.updates.of_kind("optimizer"):
                for tensor in parts_of(optimizer.state.get(leaf, {}), torch.Tensor):
                    owners[memory(tensor)] = path
        return owners

    def finish(self) -> Callable[[Sequence[Access]], StepPhases]:
        """Note what the step ends with, before its state is restored.

        Also remove the names that `_name` gave.

        Returns:
            A function that returns the phases of the events, also later.
        """
        memory = self.recorder.memory
        parameters = {id(leaf): memory(leaf) for leaf in self.step.leaves}
        state = self._storages(self.updates.tensors()) | self._state_before
        grads = {memory(value) for value in self.before.values()}
        for backward in self.backwards:
            grads |= {memory(value) for value in backward.grads.values()}
        last_grads = {
            number: memory(leaf.grad)
            for number, leaf in enumerate(self.step.leaves)
            if leaf.grad is not None
        }
        # Gradients that no backward made: the step assigned results of `torch.autograd.grad`.
        made = {*last_grads.values()} - grads
        assigned = {number for number, storage in last_grads.items() if storage in made}
        named = self.step.invocation.named
        buffers = {memory(buffer) for buffer in named.all_buffers}
        counts = frozenset({memory(c) for c in self.updates.step_counts()})
        # The state may be freed now, and another tensor get its id. A negative key is no id, but
        # keeps the name in the order of inputs.
        tensors = {
            -n if k in self._named else k: v for n, (k, v) in enumerate(named.tensors.items())
        }
        named.tensors.clear()
        named.tensors.update(tensors)
        held = {
            id(parameter)
            for _, optimizer in self.updates.of_kind("optimizer")
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        position = {key: number for number, key in enumerate(parameters)}
        trained = [
            (name, position[id(p)], parameters[id(p)], id(p) in held)
            for name, p in self.updates.trained
            if p.requires_grad
        ]

        def divide(events: Sequence[Access]) -> StepPhases:
            """Return the phases of the step, and mark events that made a loss's gradient."""
            for event in events:
                if event.tangent in self.tangents:
                    event.backward = True
            phases = _phases(
                events,
                {*parameters.values(), *grads, *made, *state},
                buffers,
                (state - self._state_before) | made,
            )
            called = [_phase_of_call(phases, *call) for call in self.calls]
            updated = tuple(self._updated(events, phases, trained, assigned))
            return StepPhases(phases, called, counts, updated)

        return divide

    def _updated(
        self,
        events: Sequence[Access],
        phases: Sequence[Phase],
        trained: Sequence[tuple[str, int, int, bool]],
        assigned: set[int],
    ) -> Iterator[UpdatedParameter]:
        """Yield what happened to each parameter of the named modules.

        Args:
            trained: name, position and storage of each parameter, and True if an optimizer has it.
            assigned: positions of the leaves that end with a gradient which no backward made.
        """
        got = assigned.union(*(backward.got for backward in self.backwards))
        writes: defaultdict[int, dict[tuple[int, Any], Source | None]] = defaultdict(dict)
        stale = self._stale(events)
        step_number = 0
        in_backward = set[int]()
        for number, (event, phase) in enumerate(zip(events, phases, strict=True)):
            while step_number < len(self.steps) and self.steps[step_number] <= number:
                step_number += 1
            # An optimizer may write a parameter in several ops of one step.
            key = step_number, event.line and event.line[:2]
            for storage in event.writes:
                writes[storage][key] = source_of(event.line)
            if phase == "backward":  # only a hook writes a parameter there, and may drop `grad`
                in_backward |= event.writes
        for name, number, storage, is_held in trained:
            written = tuple(writes[storage].values())
            has_grad = number in got or storage in in_backward
            yield UpdatedParameter(name, has_grad, is_held, written, stale.get(number))

    def _stale(self, events: Sequence[Access]) -> dict[int, Source]:
        """Return the leaves to whose gradients from before the step a backward adds."""
        memory = self.recorder.memory
        old = {memory(value): number for number, value in self.before.items()}
        stale = {}
        for number, event in enumerate(events):
            if not event.backward and event.replaces:
                for storage in event.writes:
                    old.pop(storage, None)
            touched = event.writes | event.reads if event.accumulates else ()
            for storage in touched:
                if storage in old:
                    line = next((b.line for b in self.backwards if b.end > number), None)
                    stale[old[storage]] = source_of(line) or Source("", 0)  # it has no line
        return stale


@dataclass(frozen=True)
class StepPhases:
    """The phases of a step.

    Attributes:
        phases: the phase of each event.
        called: the phase of each method call.
        step_counts: storages of the step counts that torch's optimizers read on the CPU.
        updated: what happened to each parameter of the named modules.
    """

    phases: Sequence[Phase]
    called: Sequence[Phase]
    step_counts: frozenset[int]
    updated: tuple[UpdatedParameter, ...]


def _phase_of_call(phases: Sequence[Phase], position: int, in_backward: bool) -> Phase:
    """Return the phase of a method call after an event: after a backward, it is the update's."""
    if in_backward:
        return "backward"
    before = phases[position - 1] if position else "forward"
    return "update" if before == "backward" else before


def _phases(
    events: Sequence[Access], written: set[int], buffers: set[int], made: set[int]
) -> list[Phase]:
    """Return the phase of each event.

    Args:
        events: the events.
        written: storages of parameters, gradients and state: an event outside a backward that
            writes them belongs to the update.
        buffers: storages of buffers, which a running module may write in its forward.
        made: storages of state and gradients that the step made.
    """
    backwards = [number for number, event in enumerate(events) if event.backward]
    first, last = (backwards[0], backwards[-1]) if backwards else (len(events), -1)
    phases: list[Phase] = ["forward"] * len(events)
    needed: set[int] = set()  # what later events of forwards and backwards read
    feeds: set[int] = set()  # what later events of the update read
    idle = set()
    written = written | buffers
    # From the last event on, because an event belongs to those that use its results.
    for number in reversed(range(len(events))):
        event = events[number]
        own_buffers = buffers if event.in_module else set()
        updates = (event.writes & written) - own_buffers or event.makes & made
        results = event.makes | event.writes
        if event.backward:
            phases[number] = "backward"
            needed |= event.reads
        # It writes what an update writes, or only the update reads its results.
        elif updates or (not results & needed and results & feeds):
            phases[number] = "update"
            feeds |= event.reads
        # After a backward, it is the update's if no later forward or backward reads its results.
        # But what a module runs before another backward is a forward.
        elif first < number and not results & needed and not (event.in_module and number < last):
            phases[number] = "update"
            idle.add(number)
        else:
            needed |= event.reads
    for number in sorted(idle):
        # A result that autograd makes and does not use, such as a `detach`, divides no forward.
        after = next((phases[n] for n in range(number, len(events)) if n not in idle), "update")
        if events[number].makes and phases[number - 1] == after == "forward":
            phases[number] = "forward"
    return phases


def event_of(
    recorder: RecordingMode, record: OpRecord, *, backward: bool, in_module: bool
) -> Access:
    """Return what a recorded op reads and writes."""
    memory = recorder.memory
    written: list[Any] = []
    name = ""
    if not isinstance(record.op, str):
        written = effects.written(record.op, record.args, record.kwargs)
        name = getattr(record.op, "_opname", "")
    results = [*parts_of(record.output, Value)]
    operands = [*parts_of((record.args, record.kwargs), Value)]
    before = {*map(memory, operands)}
    return Access(
        backward,
        in_module,
        reads=before | {~value for value in operands},
        writes={memory(value) for value in parts_of(written, Value)},
        makes={memory(value) for value in results} - before | {~value for value in results},
        tangent=record.output if record.op is _TANGENT else None,
        line=record.line,
        accumulates=backward and record.sequence >= FIRST_LEAF_SEQUENCE,
        replaces=name in _REPLACING,
    )
