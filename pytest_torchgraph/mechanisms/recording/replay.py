"""Turns `RecordingMode` records into drafts of nodes, with operands, effects and results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...convert import effects
from ...convert.canonical_names import CanonicalNames
from ...convert.effects import Storages
from ...convert.normalize import rounded
from ...convert.process_groups import mark_names
from ...graph.model import EffectKind, NodeKind, RecomputedBy, Source, TensorMeta
from ...ops.qualified import op_name
from .mode import OpRecord, RecordingMode, Value, parts_of


@dataclass(slots=True)
class Draft:
    """A node without a name.

    Other drafts are referred to by number, their index in `Replay.drafts`.

    Attributes:
        kind, op, args, kwargs, by, path, source: as in `Node` (`path` is its `module`), with an
            `Operand` for each tensor. The op of a placeholder is its role.
        result: dtypes, shapes, strides and devices.
        effects: (kind, draft that owns the memory) of each effect; -1 for an effect without memory.
        after: drafts that the op must follow, because they wrote to memory that it reads.
        operands: drafts that the op takes.
        wanted: name of a placeholder.
        projects: (draft, index) if it is an item of the draft's result, otherwise `None`.
        section: the section; see `Replay`.
        place: key of the program order. Projections have the place of their op, and their indices.
    """

    kind: NodeKind
    op: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    path: str = ""
    source: Any = None
    effects: tuple[tuple[EffectKind, int], ...] = ()
    after: tuple[int, ...] = ()
    operands: list[int] = field(default_factory=list)
    wanted: str = ""
    projects: tuple[int, int] | None = None
    section: int = 0
    place: tuple[int, ...] = ()
    by: RecomputedBy = ""


_MARKS_PENDING = "_c10d_functional._wrap_tensor_autograd.default"
"""The op by which torch marks a collective's result as pending, before the wait."""


class Operand(int):
    """A reference to a draft, by number."""

    __slots__ = ()


class Replay:
    """Creates drafts of recorded ops. The drafts of one graph form a section.

    Args:
        recorder: the recorder.
        canon: canonical names of symbols and devices.

    Attributes:
        drafts: all drafts, by number.
        current: the draft that holds each value now, by value.
        parts: for each value that is inside the result of an op and has no projection yet, the
            draft of the op, and the path of indices.
        storages: the writes to the storages so far.
        metas: the converted `RecordingMode.meta`, by its entries.
        section: the section of the next draft.
        of_section: the draft numbers of each section.
        scalars: the draft that read each float from a tensor, by the float.
        scalar_operands: the drafts of the floats among the arguments of the op that `add` converts.
        numbers_read: all numbers that were read from tensors, rounded as constants are.
        projections: the projections so far, by draft and path.
        input_order: the order of named inputs.
        facts: see `facts_of`.
        kept: the constant tensors that the recorder kept, by draft number.
        kept_by_name: the constant tensors by node name, once graphs were built.
    """

    def __init__(self, recorder: RecordingMode, canon: CanonicalNames):
        self.recorder = recorder
        self.canon = canon
        self.drafts: list[Draft] = []
        self.current: dict[int, int] = {}
        self.parts: dict[int, tuple[int, tuple[int, ...]]] = {}
        self.storages: Storages[int] = Storages()
        self.metas: dict[tuple[Any, ...], TensorMeta] = {}
        self.section = 0
        self.of_section: dict[int, list[int]] = {}
        self.scalars: dict[float, int] = {}
        self.scalar_operands: list[int] = []
        self.numbers_read: set[Any] = set()
        self.projections: dict[tuple[int, tuple[int, ...]], int] = {}
        self.input_order = recorder.named.input_order()
        self.facts: dict[int, effects.SchemaFacts] = {}
        self.kept: dict[int, Any] = {}
        self.kept_by_name: dict[str, Any] = {}

    def place(self, record: OpRecord) -> tuple[str, Source | None]:
        """Return the module path and source of an op (in a backward, of its forward op)."""
        raise NotImplementedError

    # -- drafts ----------------------------------------------------------------------------------

    def push(self, draft: Draft) -> int:
        """Add a draft to its section, and return its number.

        A projection is placed right after its producer.
        """
        if draft.projects is not None:
            # A projection is created at its first use, possibly in a later graph, but belongs to
            # the graph of its op.
            producer = self.drafts[draft.projects[0]]
            draft.section, draft.place = producer.section, (*producer.place, draft.projects[1])
        else:
            draft.section, draft.place = self.section, (len(self.drafts),)
        number = len(self.drafts)
        self.drafts.append(draft)
        self.of_section.setdefault(draft.section, []).append(number)
        return number

    def draft_of(self, value: Value) -> int:
        """Return the draft that currently holds a value, creating one for a value from outside."""
        if value in self.current:
            return self.project(value)
        base = self.recorder.views.get(value)
        meta = self.recorder.meta[value]
        if base is not None:
            number = self.draft_of(self.recorder.values[base])
            # The op that made the view did not run in the step, so an `as_strided` replaces it.
            args = (Operand(number), meta[1], meta[2], meta[-1])
            draft = Draft("call_function", "aten.as_strided.default", args, operands=[number])
        else:
            role, name = self.recorder.origin.get(value, ("constant", "constant"))
            # A constant that holds a number read from a tensor depends on the data, so its value is
            # not stored.
            constant = () if self._is_read(value) else self.recorder.constants.get(value, ())
            draft = Draft("placeholder", role, constant, wanted=name)
        draft.result = self.meta(value)
        number = self.push(draft)
        if self.recorder.kept and value in self.recorder.kept:
            self.kept[number] = self.recorder.kept[value]
        self.define(value, number)
        return number

    def _is_read(self, value: Value) -> bool:
        """Return True if a constant holds a number that was read from a tensor earlier."""
        if not self.numbers_read:
            return False
        items = [*self.recorder.constants.get(value, ())]
        while items:
            item = items.pop()
            if isinstance(item, tuple):
                items += item
            elif item in self.numbers_read:
                return True
        return False

    def define(self, value: Value, number: int) -> None:
        """Make draft `number` the current holder of a value."""
        self.current[value] = number
        self.parts.pop(value, None)
        self.storages.define(number, [self.recorder.storage_of[value]])

    def project(self, value: Value) -> int:
        """Return the draft of a value; for an output of a multi-output op, a projection.

        The projection is created at the first use, so that unused outputs have none.
        """
        if value not in self.parts:
            return self.current[value]
        producer, path = self.parts[value]
        number = producer
        draft = self.drafts[producer]
        for depth, index in enumerate(path):
            key = (producer, path[: depth + 1])
            if key not in self.projections:
                result = self.drafts[number].result
                inner = result[index] if isinstance(result, tuple) and index < len(result) else None
                projection = self.projections[key] = self.push(
                    Draft(
                        "call_function",
                        "operator.getitem",
                        (Operand(number), index),
                        result=inner,
                        path=draft.path,
                        source=draft.source,
                        operands=[number],
                        projects=(number, index),
                    )
                )
                # As old as its op, so that a user of it still follows the writes since the op.
                self.storages.defined[projection] = self.storages.defined.get(number, 0)
            number = self.projections[key]
        self.current[value] = number
        del self.parts[value]
        return number

    def meta(self, value: Value) -> TensorMeta:
        """Return dtype, shape, strides, device and layout of a value."""
        recorded = self.recorder.meta[value][:-1]
        meta = self.metas.get(recorded)
        if meta is None:
            dtype, shape, stride, device, layout = recorded
            size = self.canon.size
            meta = self.metas[recorded] = TensorMeta(
                str(dtype)[6:],  # without "torch."
                tuple([size(n) for n in shape]),
                None if stride is None else tuple([size(n) for n in stride]),
                self.canon.device(device),
                str(layout)[6:],
            )
        return meta

    def add(self, record: OpRecord) -> None:
        """Add the draft of one recorded op."""
        storage_of = self.recorder.storage_of
        values: list[Value] = []
        facts = self.facts.get(id(record.op)) or self.facts_of(record.op)
        positional, named = record.args, record.kwargs
        if facts.takes_group:
            positional, named = mark_names(record.op, positional, named)
        args = tuple([self.link(arg, values) for arg in positional])
        kwargs = {key: self.link(arg, values) for key, arg in named.items()} if named else {}
        numbers = [self.current[v] for v in values]
        after: tuple[int, ...] = ()
        if self.storages.written:
            operands = [(i, storage_of[v]) for i, v in zip(numbers, values, strict=True)]
            after = tuple(
                number
                for number in self.storages.after(operands)
                if self.drafts[number].section == self.section
            )
        # This op returns its argument, so the result is the same value.
        if facts.name == _MARKS_PENDING:
            self.current[record.output] = numbers[0]
            return
        # A float that was read from a tensor is an operand too. Without this edge, the op that read
        # it would be dead.
        numbers += self.scalar_operands
        self.scalar_operands = []
        path, source = self.place(record)
        draft = Draft(
            "call_method" if isinstance(record.op, str) else "call_function",
            facts.name or op_name(record.op),
            args,
            kwargs,
            self.result(record.output),
            path,
            source,
            after=after,
            operands=numbers,
            by=record.by,
        )
        number = self.push(draft)
        if facts.pure:
            self.results(record.output, number)
            return
        # The writes before the results: users of a result of the op follow the op itself.
        op_effects: list[tuple[EffectKind, int]] = []
        for written in effects.written(record.op, record.args, record.kwargs):
            for value in parts_of(written, Value):
                storage = storage_of[value]
                owner = self.storages.owner.get(storage)  # `None` if the op itself made it
                self.storages.write(number, storage)
                op_effects.append(("mutates", number if owner is None else owner))
        self.results(record.output, number)
        op_effects += [(kind, -1) for kind in effects.kinds(record.op, record.args, record.kwargs)]
        draft.effects = tuple(dict.fromkeys(op_effects))

    def writes_after(self) -> dict[int, tuple[int, ...]]:
        """Return, for each draft, the last writes to its memory since it was made.

        Memory from outside the step is left out, because a write to it always counts as live.
        """
        if not self.storages.written:
            return {}
        writes: dict[int, tuple[int, ...]] = {}
        for value, number in self.current.items():
            storage = self.recorder.storage_of[value]
            owner = self.storages.owner.get(storage, number)
            if value in self.parts or self.drafts[owner].kind == "placeholder":
                continue
            after = self.storages.after([(number, storage)])
            if after:
                writes[number] = after
        return writes

    def facts_of(self, op: Any) -> effects.SchemaFacts:
        """Return the facts of an op, cached by the op's id, because hashing an op takes longer."""
        facts = self.facts[id(op)] = effects.facts(op)
        return facts

    def link(self, value: Any, values: list[Value]) -> Any:
        """Return an argument with tensors as operands, and append the tensors to `values`.

        The drafts of floats that were read from tensors are added to `scalar_operands`.
        """
        kind = type(value)
        if kind is Value:
            values.append(value)
            number = self.current.get(value)
            if number is None or value in self.parts:
                number = self.draft_of(value)
            return Operand(number)
        if kind is tuple:
            return tuple([self.link(item, values) for item in value])
        if kind is int or kind is bool or value is None:
            return value
        # A float has no identity, so a use of the result of `.item()` is recognised by its value.
        if kind is float and value in self.scalars:
            self.scalar_operands.append(self.scalars[value])
            return Operand(self.scalars[value])
        return self.canon.constant(value)

    def result(self, output: Any) -> Any:
        """Return dtypes, shapes, strides and devices of an op's result."""
        if type(output) is Value:
            return self.meta(output)
        if type(output) is tuple:
            return tuple([self.result(item) for item in output])
        return self.canon.result(output)

    def results(self, output: Any, number: int, path: tuple[int, ...] = ()) -> None:
        """Note the values that draft `number` returned.

        Args:
            output: its result, or an item of it.
            number: the draft.
            path: the indices of the item.
        """
        if type(output) is Value:
            self.define(output, number)
            if path:
                self.parts[output] = (number, path)
        elif type(output) in (bool, int, float):
            self.numbers_read.add(rounded(output))
            # Integral floats such as 2.0 are left out, because many are constants of the code.
            if type(output) is float and not output.is_integer():
                self.scalars[output] = number  # an argument with this value refers to the read
        elif type(output) is tuple:
            for index, item in enumerate(output):
                self.results(item, number, (*path, index))
