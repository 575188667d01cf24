"""The dispatch mode around compiled code: records the ops that run outside compiled graphs.

The events, in program order, are eager ops and runs of compiled graphs. The ops inside a compiled
run are not recorded.

AOTAutograd runs ops of its own to prepare graph inputs and outputs. These ops are not recorded:
their result gets the value that it was made from. The graphs of Dynamo run op by op, so autograd
differentiates each of their ops. The ops of that backward are not recorded either.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ... import torch_private
from ...convert import effects
from ...convert.source_lines import Line
from ...graph.events import UpdatedParameter
from ...graph.model import Source
from ...ops.qualified import op_name
from ..recording import FIRST_LEAF_SEQUENCE, LIFT, OpRecord, RecordingMode, Value, parts_of
from ..step import NamedTensors
from .frames import Frames

_inference_mode_is_on = torch.is_inference_mode_enabled
_AOT_NODE = "CompiledFunctionBackward"
"""Name of the autograd node of a graph compiled by AOTAutograd."""


class EagerRecord(OpRecord):
    """An op that ran outside all compiled graphs.

    Attributes:
        backward: whether the autograd engine was running.
        by_engine: whether autograd itself, not the user's code, ran the op: at the node of a
            compiled graph, or to add to a parameter's gradient. Also True for `LIFT`.
        passes_on: whether the op may propagate a gradient through a view that is an output of a
            compiled graph.
        lacks_line: see `Frames`.
        stack: the user's lines, innermost first, if the op begins an island; otherwise empty.
    """

    __slots__ = ("backward", "by_engine", "lacks_line", "passes_on", "stack")

    backward: bool
    by_engine: bool
    passes_on: bool
    lacks_line: bool
    stack: tuple[Line, ...]


@dataclass(slots=True, eq=False)
class CompiledRun:
    """One run of a compiled graph.

    Attributes:
        compiled_graph: the compiled graph, as the mechanism identifies it.
        inputs, outputs: the arguments and results, with tensors replaced by `Value`.
        written: the inputs that the graph writes to.
        rewritten: new values of the inputs that a graph wrote op by op, by position.
        backward: whether the autograd engine was running.
        is_op_by_op: whether this is the backward of a graph that autograd differentiated op by op.
        sequence: in a backward, the sequence number of the autograd node that ran the graph,
            otherwise -1.
        begin: the sequence number of the first autograd node created during the run.
        path_number, line: number of the running module's path, and the user's line.
        stack: the user's lines, innermost first, in a forward.
    """

    compiled_graph: Any
    inputs: list[Any]
    backward: bool
    sequence: int
    written: Sequence[Any] = ()
    is_op_by_op: bool = False
    outputs: list[Any] = field(default_factory=list)
    rewritten: dict[int, Value] = field(default_factory=dict)
    begin: int = 0
    path_number: int = 0
    line: Line | None = None
    stack: tuple[Line, ...] = ()


class IslandRecorder(RecordingMode):  # type: ignore[no-untyped-call]
    """Records the eager ops and the compiled-graph runs of one step.

    Attributes:
        events: ops and runs, in program order.
        sequence_marks: pairs (autograd sequence number after the event, index in `events`) for each
            event that may have created autograd nodes; the index is -1 for AOTAutograd's own ops.
        is_recording: whether the step is running.
        hidden: higher-order ops that ran with an unrecorded body, with their lines.
        methods: see `RecordedCalls`; empty unless this is a training step.
        in_update: ids of the events of the update of a training step.
        updated, step_counts: see `StepPhases`; `None` and empty unless this is a training step.
    """

    supports_higher_order_operators = True

    def __init__(self, named: NamedTensors):
        super().__init__(named)
        self.events: list[EagerRecord | CompiledRun] = []
        self.sequence_marks: list[tuple[int, int]] = []
        self.hidden: list[tuple[str, Line | None]] = []
        self.is_recording = False
        self.updated: Callable[[], Sequence[UpdatedParameter]] | None = None
        self.in_update: set[int] = set()
        self.step_counts: frozenset[int] = frozenset()
        self.methods: list[tuple[str, str, Source | None, str]] = []
        self._backward = False
        self._frames = Frames()
        self._facts: dict[Any, OpFacts] = {}
        # For each storage that a compiled graph has written: the number of values at that time, so
        # that a value with a lower number is outdated, and the value that it holds since then.
        self._rewritten: dict[int, tuple[int, Value]] = {}
        self._formula_results: set[Value] = set()  # see `_run_formula`
        # Dynamo's callback stays set in eager frames of compiled code, so without this call Dynamo
        # would try to compile our __torch_dispatch__.
        torch_private.leave_function_alone(IslandRecorder.__torch_dispatch__)

    @contextmanager
    def recording(self, *, backward: bool) -> Iterator[None]:
        """Record everything that runs inside, as the forward or as the backward."""
        self._backward = backward
        with self:
            self.is_recording = True
            try:
                yield
            finally:
                self.is_recording = False

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Record nothing inside, while a compiled graph runs or is being compiled."""
        # Removing the mode is not enough: on the first run of a graph AOTAutograd's own mode is on
        # top of it. `__torch_dispatch__` therefore looks at the number of suspensions too.
        self.suspensions += 1
        try:
            with torch_private.aside(self):
                yield
        finally:
            self.suspensions -= 1

    def run(
        self,
        compiled_graph: Any,
        call: Callable[[list[Any]], Any],
        args: list[Any],
        written: Sequence[int] = (),
        *,
        backward: bool = False,
        op_by_op: bool = False,
    ) -> Any:
        """Run a compiled graph, in the boxed calling convention.

        Args:
            compiled_graph: the value for `CompiledRun.compiled_graph`.
            call: the compiled graph.
            args: its arguments.
            written: positions of the arguments that the graph writes to.
            backward: whether the graph is a backward. Needed if the engine does not appear to be
                running.
            op_by_op: whether the graph's ops are dispatched one by one, including its writes.

        Returns:
            The result of `call`. The run is added to `events`.
        """
        node = self._autograd_node()
        sequence = self.sequence_of(node)
        backward = backward or self._backward or node is not None
        inputs = [*self.encode_all(args)]
        event = CompiledRun(
            compiled_graph, inputs, backward, sequence, [inputs[i] for i in written]
        )
        path, line, _ = self._frames.locate(self.number_of_module, aot=True)
        event.path_number = path or 0
        event.line = line or (None if backward else self._frames.outer_line())
        event.stack = () if backward else self._frames.stack()
        self.events.append(event)
        if self.writes is not None:
            if not op_by_op:
                # AOTAutograd bumps the version counters before the graph runs.
                self.writes.wrote(*(args[i] for i in written))
            self.writes.look_at(args)
        event.begin = self._sequence()
        # Each op of such a graph increments the counters, so they are read after the run.
        writes = self.writes if op_by_op else None
        with self.suspended(), nullcontext() if writes is None else writes.own(args):
            output = call(args)
        if op_by_op:
            event.rewritten = {
                i: self._rewrite(args[i], self.add_tensor(args[i], True)) for i in written
            }
        returns_several = isinstance(output, tuple | list)
        event.outputs = [
            self.encode(result, True) for result in (output if returns_several else (output,))
        ]
        self.sequence_marks.append((self._sequence(), len(self.events) - 1))
        return output

    def is_of_numpy(self, value: Value | None) -> bool:
        """Return True if graphs made a value from no tensor of the step.

        Dynamo compiles numpy, such as `np.random.rand(1)`, and returns its results as arrays.
        """
        # Constants are arrays as well: those of numpy calls that Dynamo does not compile.
        own = {each for each in self.origin if self.origin[each] == ("constant", "constant")}
        for event in self.events:
            if isinstance(event, CompiledRun) and own.issuperset(
                each for each in event.inputs if type(each) is Value
            ):
                own.update(each for each in event.outputs if type(each) is Value)
        return value in own

    # -- ops -------------------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an op, and add an `EagerRecord` of it.

        Before that, leave out the ops that are not recorded or only in part, in this order: while a
        graph runs or is compiled, ops of wrappers, formulas of autograd (`_run_formula`),
        higher-order ops (`hidden`), queries, composite ops, ops of AOTAutograd (`_pass_on`), and
        ops that store a gradient (`_pass_gradient`).
        """
        kwargs = kwargs or {}
        if self.suspensions:
            return func(*args, **kwargs)
        # The wrapper of such a type then runs other ops, which arrive here.
        if types and torch_private.stands_for_others(types):
            return NotImplemented
        writes = self.writes
        if writes is not None and not writes.is_following:
            # This calls `__torch_dispatch__` again.
            return writes.follow(func, self.__torch_dispatch__, args, kwargs)
        node = self._autograd_node()
        sequence = self.sequence_of(node)
        number = -1 if node is None else self._run_of(sequence)
        # Autograd differentiates an op of a graph that ran op by op.
        if number >= 0 and self._frames.is_formula():
            return self._run_formula(number, sequence, func, args, kwargs)
        facts = self._facts.get(func)
        if facts is None:
            # A higher-order op that runs eagerly, such as `torch.cond` or flex_attention, reaches
            # the mode as one op, without the ops of its body.
            if not isinstance(func, torch._ops.OpOverload):
                self.hidden.append((op_name(func), self._frames.locate(self.number_of_module)[1]))
                return func(*args, **kwargs)
            facts = self._facts[func] = OpFacts(func)
        if not facts.recorded:
            return func(*args, **kwargs)
        if _inference_mode_is_on() and self.is_composite(func):
            # Inference mode skips the dispatch key that decomposes composite ops.
            with self:
                return func.decompose(*args, **kwargs)
        path, line, by_aot = self._frames.locate(self.number_of_module)
        if by_aot and facts.hands_over:
            return self._pass_on(func, args, kwargs)
        in_module = path is not None
        if sequence >= FIRST_LEAF_SEQUENCE:
            if line is None and not in_module and facts.takes:
                return self._pass_gradient(func, args, kwargs)
            path = path if in_module else self.number_of_owner(node)
        if func is LIFT:
            self.lifted(args[0])
        encoded = self.encode_all(args)
        named = {key: self.encode(arg) for key, arg in kwargs.items()} if kwargs else {}
        output = func(*args, **kwargs)
        if path is None:
            path = 0 if node is None else -1  # the target itself, or known from the forward op
        if node is None:
            sequence = self._sequence() if not self._backward else -1
            line = line or (None if self._backward else self._frames.outer_line())
        record = EagerRecord(func, encoded, named, self.encode(output, True), path, sequence, line)
        record.backward = backward = self._backward or node is not None
        # The eager ops of a capture are reported without those by the engine, and without the
        # constants of `torch.tensor`.
        record.by_engine = func is LIFT
        record.lacks_line = self._frames.lacks_line
        if backward:
            record.by = self.by(node, in_module)
        record.passes_on = False
        if line is None and node is not None and not in_module:
            at_graph = sequence >= FIRST_LEAF_SEQUENCE or type(node).__name__ == _AOT_NODE
            record.by_engine |= at_graph and facts.passes_on
            record.passes_on = not at_graph and facts.is_gradient
        events = self.events
        before = events[-1] if events else None
        continues_island = type(before) is EagerRecord and before.backward is backward
        record.stack = () if continues_island else self._frames.stack()
        events.append(record)
        after = self._sequence()
        # An op that created no autograd node has no mark: no backward op belongs to it.
        is_later = not self.sequence_marks or after > self.sequence_marks[-1][0]
        if is_later and not self.is_packing():
            self.sequence_marks.append((after, len(events) - 1))
        return output

    def event_index_of(self, sequence: int) -> int | None:
        """Return the index of the event that created an autograd node.

        The index is -1 for a node of AOTAutograd's own, `None` if unknown.
        """
        if not 0 <= sequence < FIRST_LEAF_SEQUENCE:
            return None
        index = bisect_right(self.sequence_marks, sequence, key=itemgetter(0))
        return self.sequence_marks[index][1] if index < len(self.sequence_marks) else None

    def _run_of(self, sequence: int) -> int:
        """Return the index of the op-by-op run that created an autograd node, or -1."""
        index = self.event_index_of(sequence)
        event = None if index is None or index < 0 else self.events[index]
        made_inside = type(event) is CompiledRun and event.begin <= sequence
        return index if made_inside and index is not None else -1

    def _run_formula(
        self,
        run_index: int,
        sequence: int,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run an op with which autograd differentiates an op of a compiled graph.

        The op itself is not recorded. Consecutive formulas of one graph are one `CompiledRun`. Its
        inputs are the tensors from outside: `_formula_results` holds what the formulas computed.

        Args:
            run_index: index of the event of the graph's forward run.
            sequence: sequence number of the autograd node.
        """
        event = self.events[-1]
        run = self.events[run_index]
        assert type(run) is CompiledRun
        if not (
            type(event) is CompiledRun
            and event.is_op_by_op
            and event.compiled_graph is run.compiled_graph
        ):
            event = CompiledRun(run.compiled_graph, [], True, sequence, is_op_by_op=True)
            self.events.append(event)
        values = map(self.find_value, parts_of((args, kwargs), torch.Tensor))
        operands = {value for value in values if value is not None}
        event.inputs += sorted(operands - self._formula_results)  # a set has no fixed order
        output = func(*args, **kwargs)
        for tensor in parts_of(effects.written(func, args, kwargs), torch.Tensor):
            if self.find_value(tensor) in operands - self._formula_results:
                self._rewrite(tensor, self.add_tensor(tensor, True))
        results = [self.encode(tensor, True) for tensor in parts_of(output, torch.Tensor)]
        event.outputs += results
        self._formula_results.update(results)
        # A checkpoint that runs the forward again creates new autograd nodes here.
        self.sequence_marks.append((self._sequence(), run_index))
        return output

    def _pass_gradient(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an op with which AccumulateGrad stores a gradient: its result is the same value."""
        output = func(*args, **kwargs)
        # `copy_` writes its second argument to its first.
        source = args[1] if func is torch.ops.aten.copy_.default else args[0]
        if isinstance(source, torch.Tensor):
            self._set_value(output, self.encode(source))
        else:  # DTensor runs its op on a new fake tensor, to infer the shape of the result
            self.introduce(output, "constant", "constant")
        return output

    def _pass_on(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one of AOTAutograd's own ops, and give its result a value that is already known.

        With such ops AOTAutograd copies a graph's result into the argument that the graph writes,
        creates tensors with the right shape and strides, and recreates graph outputs that are views
        of graph inputs.
        """
        output = func(*args, **kwargs)
        self.sequence_marks.append((self._sequence(), -1))
        if func is torch.ops.aten.copy_.default:
            self._rewrite(args[0], self.encode(args[1]))
            # AOTAutograd marks the argument dirty, and autograd counts that as a write too.
            if self.writes is not None:
                self.writes.wrote(args[0])
            return output
        source = args[0] if args else None
        for result in output if isinstance(output, tuple | list) else (output,):
            if isinstance(result, torch.Tensor):
                self._link_result(result, source)
        return output

    def _link_result(self, tensor: torch.Tensor, source: Any) -> None:
        """Give a tensor the value of `source` if it is a copy; otherwise note it as a view."""
        if not isinstance(source, torch.Tensor):
            self.introduce(tensor, "constant", "constant")
            return
        value = self.encode(source)
        if self._place(tensor)[0] == self.storage_of[value]:
            # The same storage: `encode` finds a graph output, or makes a view, by the offset.
            self.encode(tensor)
        elif source.shape == tensor.shape and source.dtype == tensor.dtype:
            self._set_value(tensor, value)
        else:
            self.views[self.add_tensor(tensor, True)] = value

    def _set_value(self, tensor: torch.Tensor, value: Value) -> None:
        """Assign a known value to a tensor, and to its place in its storage."""
        storage, place = self._place(tensor)
        self._tensors[id(tensor)] = (weakref.ref(tensor), value)
        self._places[place] = self._first_on[storage] = value

    def _rewrite(self, tensor: torch.Tensor, value: Value) -> Value:
        """Give everything in a tensor's storage a new value from now on."""
        storage, _ = self._place(tensor)
        self._rewritten[storage] = (len(self.values), value)
        self.copied_from[self.storage_of[value]] = storage
        for old_place in [old for old in self._places if old[0] == storage]:
            del self._places[old_place]
        self._set_value(tensor, value)
        return value

    def is_rewritten(self, value: Value) -> bool:
        """Return True if a compiled graph has written to this tensor's memory."""
        return self.storage_of[value] in self._rewritten

    # -- tensors ---------------------------------------------------------------------------------

    def encode(self, value: Any, output: bool = False) -> Any:
        """Encode as in `RecordingMode`, with a new value for memory that a graph has written."""
        encoded = super().encode(value, output)
        if self._rewritten and type(encoded) is Value:
            written_at, written_value = self._rewritten.get(self.storage_of[encoded], (0, encoded))
            if encoded < written_at and encoded != written_value:
                # The tensor object was met before the write. Meet it again, as another value.
                del self._tensors[id(value)]
                encoded = self.add_tensor(value, output)
                # A new value would be an input of the step. It is a view of what the graph wrote.
                if encoded >= written_at and not output:
                    self.origin.pop(encoded, None)
                    self.views[encoded] = written_value
        return encoded

    def encode_all(self, values: Iterable[Any], output: bool = False) -> tuple[Any, ...]:
        """Return `encode` of each value."""
        if not self._rewritten:  # the usual case; the base class encodes without a call per value
            return super().encode_all(values, output)
        return tuple([self.encode(value, output) for value in values])

    def add_tensor(self, tensor: torch.Tensor, output: bool) -> Value:
        """Meet a tensor as in `RecordingMode`, and link a tensor subclass to its inner tensors.

        AOTAutograd unwraps a subclass before a graph runs, and wraps the results afterwards.
        """
        whole: Any = tensor
        if type(tensor) is torch.Tensor or not is_traceable_wrapper_subclass(whole):
            return super().add_tensor(tensor, output)
        inner = [getattr(whole, name) for name in whole.__tensor_flatten__()[0]]
        inner = [part for part in inner if isinstance(part, torch.Tensor)]
        inner_values = [v for part in inner if (v := self._find_at_place(part)) is not None]
        # A wrapper that no op returned, of tensors that are known, was made after a graph ran.
        is_graph_output = bool(inner_values) and not output and id(tensor) not in self.named.tensors
        value = super().add_tensor(tensor, output or is_graph_output)
        if is_graph_output:
            self.views[value] = inner_values[0]
        for part in inner:
            if self._find_at_place(part) is None:
                self.views[super().add_tensor(part, True)] = value
        return value

    def _find_at_place(self, tensor: torch.Tensor) -> Value | None:
        """Return the value of a tensor, also if another object with the same memory was met."""
        value = self.find_value(tensor)
        return self._places.get(self._place(tensor)[1]) if value is None else value


_PASSES_ON = frozenset(
    "aten.add aten.add_ aten.zeros aten.zeros_like aten.new_zeros aten.clone aten.copy_ "
    "aten.empty_strided aten.new_empty_strided aten._to_copy aten.detach".split()
)
"""Ops with which the autograd engine propagates gradients. Any other op at its nodes belongs to a
hook that is not a Python function, for example `torch.nan_to_num`.
"""

_TAKES = frozenset(
    "aten.detach aten.clone aten.copy_ aten.new_empty_strided aten.empty_strided".split()
)
"""Ops with which AccumulateGrad stores a parameter's gradient: as it is, or as a copy if its
strides differ. The strides depend on the machine's kernels.
"""
_OF_AOT = frozenset(
    "aten.copy_ aten.clone aten._unsafe_view aten.detach aten.detach_ aten.as_strided_ aten.t_ "
    "aten.transpose_ aten.squeeze_ aten.unsqueeze_ aten.set_ aten.resize_ aten.empty_strided "
    "aten.new_empty_strided aten.empty aten.contiguous aten._has_same_storage_numel".split()
)
"""Ops, besides views, with which AOTAutograd passes values to its graphs and back."""


class OpFacts:
    """Properties of an op that decide how it is recorded.

    Attributes:
        recorded: False for queries on fake tensors, for example of the device, and for profiler
            marks. Neither computes anything; torch 2.9 sets profiler marks around its own backward.
        hands_over: whether AOTAutograd uses the op to pass values to or from a graph.
        passes_on: whether the autograd engine uses the op to propagate gradients.
        takes: whether AccumulateGrad uses the op to store gradients.
        is_gradient: whether the op may propagate a gradient through a view.
    """

    __slots__ = ("hands_over", "is_gradient", "passes_on", "recorded", "takes")

    def __init__(self, op: torch._ops.OpOverload):
        packet = str(op.overloadpacket)
        self.recorded = op.namespace not in ("prim", "profiler")
        self.hands_over = op.is_view or packet in _OF_AOT
        self.passes_on = packet in _PASSES_ON
        self.takes = packet in _TAKES
        self.is_gradient = op.is_view or self.passes_on or packet.endswith("_backward")
