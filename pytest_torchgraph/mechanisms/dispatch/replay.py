"""From what a `DispatchRecorder` wrote down to graphs: operands, order, dead code, names."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...convert import source_lines
from ...convert.canonical_names import CanonicalNames, NodeNamer
from ...convert.effects import schema
from ...convert.effects.aliasing import Storages
from ...convert.process_groups import mark_names
from ...graph.model import Arg, Effect, EffectKind, Graph, GraphKind, Node, Ref, TensorMeta
from ...graph.module_paths import module_of
from ...ops.qualified import op_name
from .recorder import LEAF, DispatchRecorder, OpRecord, Value


@dataclass
class _Draft:
    """A node before it has a name."""

    kind: str
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


class _Operand(int):
    """A reference to a draft, by number."""

    __slots__ = ()


class Replay:
    """Builds the graphs of one recorded step."""

    def __init__(self, recorder: DispatchRecorder, canon: CanonicalNames, keep_dead: bool):
        self.recorder = recorder
        self.canon = canon
        self.keep_dead = keep_dead
        self.drafts: list[_Draft] = []
        self.current: dict[int, int] = {}
        self.parts: dict[int, tuple[int, tuple[int, ...]]] = {}
        self.storages: Storages[int] = Storages()
        self.metas: dict[tuple[Any, ...], TensorMeta] = {}
        self.section = 0
        self.scalars: dict[float, int] = {}
        self.scalar_operands: list[int] = []
        self.made_projections: dict[tuple[int, tuple[int, ...]], int] = {}
        self.ranks = recorder.named.ranks()
        self.sequences = [record.sequence for record in recorder.forward]
        self.change_points = [sequence for sequence, _ in recorder.changes]

    def graphs(self, outputs: Sequence[Value], grads: Sequence[Value] | None) -> list[Graph]:
        """The forward (or inference) graph and, where a backward ran, its graph."""
        for record in self.recorder.forward:
            self.add(record, None)
        returned = [self.draft_of(value) for value in outputs]
        if grads is None:
            kind: GraphKind = "inference"
            return [_Section(self, 0, returned, ()).graph(kind)]
        self.section = 1
        for record in self.recorder.backward:
            self.add(record, record.sequence)
        results = [self.draft_of(value) for value in grads]
        section = _Section(self, 1, results, ())
        saved = section.outside()
        forward = _Section(self, 0, returned, saved)
        graph = forward.graph("forward")
        section.known = {i: forward.names[i] for i in saved}
        return [graph, section.graph("backward")]

    # -- drafts ----------------------------------------------------------------------------------

    def push(self, draft: _Draft) -> int:
        """Number a draft; a projection belongs where its producer does."""
        if draft.projects is not None:
            producer = self.drafts[draft.projects[0]]
            draft.section, draft.place = producer.section, (*producer.place, draft.projects[1])
        else:
            draft.section, draft.place = self.section, (len(self.drafts),)
        self.drafts.append(draft)
        return len(self.drafts) - 1

    def draft_of(self, value: Value) -> int:
        """The draft that holds a value now; made for it where it comes from outside."""
        if value in self.current:
            return self.project(value)
        base = self.recorder.views.get(value)
        meta = self.recorder.meta[value]
        if base is not None:
            number = self.draft_of(self.recorder.values[base])
            args = (_Operand(number), meta[1], meta[2], meta[-1])
            draft = _Draft("call_function", "aten.as_strided.default", args, operands=[number])
        else:
            role, name = self.recorder.origin.get(value, ("constant", "constant"))
            draft = _Draft("placeholder", role, wanted=name)
        draft.result = self.meta(value)
        number = self.push(draft)
        self.define(value, number)
        return number

    def define(self, value: Value, number: int) -> None:
        """From now on `value` is what draft `number` gives."""
        self.current[value] = number
        self.parts.pop(value, None)
        self.storages.define(number, [self.recorder.storage_of[value]])

    def project(self, value: Value) -> int:
        """The draft of one output of a multi-output op, made when it is first used."""
        if value not in self.parts:
            return self.current[value]
        producer, path = self.parts[value]
        number = producer
        draft = self.drafts[producer]
        for depth, index in enumerate(path):
            key = (producer, path[: depth + 1])
            if key not in self.made_projections:
                result = self.drafts[number].result
                inner = result[index] if isinstance(result, tuple) and index < len(result) else None
                self.made_projections[key] = self.push(
                    _Draft(
                        "call_function",
                        "operator.getitem",
                        (_Operand(number), index),
                        result=inner,
                        path=draft.path,
                        source=draft.source,
                        operands=[number],
                        projects=(number, index),
                    )
                )
                made = self.made_projections[key]
                self.storages.defined[made] = self.storages.defined.get(number, 0)
            number = self.made_projections[key]
        self.current[value] = number
        del self.parts[value]
        return number

    def meta(self, value: Value) -> TensorMeta:
        """dtype, shape, strides, device and layout of a value."""
        recorded = self.recorder.meta[value][:-1]
        known = self.metas.get(recorded)
        if known is None:
            dtype, shape, stride, device, layout = recorded
            size = self.canon.size
            known = self.metas[recorded] = TensorMeta(
                str(dtype)[6:],
                tuple([size(n) for n in shape]),
                None if stride is None else tuple([size(n) for n in stride]),
                self.canon.device(device),
                str(layout)[6:],
            )
        return known

    def add(self, record: OpRecord, sequence: int | None) -> None:
        """One recorded op as a draft."""
        storage_of = self.recorder.storage_of
        values: list[Value] = []
        known = schema.facts(record.op)
        positional, named = record.args, record.kwargs
        if known.takes_group:
            positional, named = mark_names(record.op, positional, named)
        args = tuple([self.link(arg, values) for arg in positional])
        kwargs = {key: self.link(arg, values) for key, arg in named.items()}
        numbers = [self.current[v] for v in values]
        after: tuple[int, ...] = ()
        if self.storages.written:
            operands = [(i, storage_of[v]) for i, v in zip(numbers, values, strict=True)]
            after = tuple(
                number
                for number in self.storages.after(operands)
                if self.drafts[number].section == self.section
            )
        path, source = self.place(record, sequence)
        draft = _Draft(
            "call_function",
            known.name or op_name(record.op),
            args,
            kwargs,
            self.result(record.output),
            path,
            source,
            after=after,
            operands=[*numbers, *self.scalar_operands],
        )
        self.scalar_operands = []
        number = self.push(draft)
        if known.pure:
            self.results(record.output, number)
            return
        found: list[tuple[EffectKind, int]] = []
        for written in schema.written(record.op, record.args, record.kwargs):
            for value in _values(written):
                storage = storage_of[value]
                owner = self.storages.owner.get(storage)
                self.storages.write(number, storage)
                found.append(("mutates", number if owner is None else owner))
        self.results(record.output, number)
        found += [(kind, -1) for kind in schema.kinds(record.op, record.args, record.kwargs)]
        draft.effects = tuple(dict.fromkeys(found))

    def link(self, value: Any, values: list[Value]) -> Any:
        """A recorded argument, its tensors as operands, which are added to `values`."""
        if type(value) is Value:
            number = self.draft_of(value)
            values.append(value)
            return _Operand(number)
        if type(value) is tuple:
            return tuple([self.link(item, values) for item in value])
        if type(value) is float and value in self.scalars:
            self.scalar_operands.append(self.scalars[value])
            return _Operand(self.scalars[value])
        return self.canon.constant(value)

    def result(self, output: Any) -> Any:
        """The result of an op: dtypes, shapes, strides and devices."""
        if type(output) is Value:
            return self.meta(output)
        if type(output) is tuple:
            return tuple([self.result(item) for item in output])
        return self.canon.result(output)

    def results(self, output: Any, number: int, path: tuple[int, ...] = ()) -> None:
        """Note which values draft `number` gave."""
        if type(output) is Value:
            self.define(output, number)
            if path:
                self.parts[output] = (number, path)
        elif type(output) is float and not output.is_integer():
            self.scalars[output] = number  # a value read back, until it comes as an argument
        elif type(output) is tuple:
            for index, item in enumerate(output):
                self.results(item, number, (*path, index))

    def place(self, record: OpRecord, sequence: int | None) -> tuple[str, Any]:
        """Module path and source of an op; in the backward those of the forward op it is for."""
        paths = self.recorder.paths
        if record.line is not None:
            code, line = record.line
            return paths[max(record.path, 0)], source_lines.from_line(
                code.co_filename, line, code.co_name
            )
        if record.path >= 0 or sequence is None or sequence < 0 or sequence >= LEAF:
            return paths[max(record.path, 0)], None
        at = bisect_right(self.change_points, sequence) - 1
        path = paths[self.recorder.changes[at][1]] if at >= 0 else ""
        made = bisect_right(self.sequences, sequence)
        source = None
        if made < len(self.recorder.forward):
            line_of = self.recorder.forward[made].line
            if line_of is not None:
                source = source_lines.from_line(
                    line_of[0].co_filename, line_of[1], line_of[0].co_name
                )
        return path, source


class _Section:
    """The drafts of one graph: which of them live, and their names."""

    def __init__(
        self,
        replay: Replay,
        section: int,
        returned: Sequence[int],
        saved: Sequence[int],
    ):
        self.replay = replay
        self.drafts = replay.drafts
        self.section = section
        self.returned = returned
        self.saved = saved
        self.known: dict[int, str] = {}
        self.names: dict[int, str] = {}
        self.live = self.find_live()

    def find_live(self) -> set[int]:
        todo = [*self.returned, *self.saved]
        for i, draft in enumerate(self.drafts):
            if draft.section != self.section:
                continue
            if self.replay.keep_dead or any(self.lasts(effect) for effect in draft.effects):
                todo.append(i)
        live: set[int] = set()
        while todo:
            i = todo.pop()
            if i not in live:
                live.add(i)
                if self.drafts[i].section == self.section:
                    todo.extend(self.needs(i))
        return live

    def lasts(self, effect: tuple[EffectKind, int]) -> bool:
        """True for an effect that lasts; a write to a storage that was made inside does not."""
        kind, owner = effect
        return kind != "mutates" or self.drafts[owner].kind == "placeholder"

    def needs(self, i: int) -> Iterator[int]:
        draft = self.drafts[i]
        yield from draft.operands
        yield from draft.after
        for kind, owner in draft.effects:
            if kind == "mutates" and owner != i:
                yield owner

    def outside(self) -> list[int]:
        """The live drafts of an earlier section that this one uses, in their order."""
        return self.in_order(i for i in self.live if self.drafts[i].section != self.section)

    def in_order(self, numbers: Iterable[int]) -> list[int]:
        """Inputs as declared, then ops in the order of the run, each with its projections."""
        ranks = self.replay.ranks

        def key(i: int) -> tuple[bool, int, tuple[int, ...]]:
            draft = self.drafts[i]
            computed = draft.kind != "placeholder"
            return computed, 0 if computed else ranks.get(draft.wanted, len(ranks)), draft.place

        return sorted(numbers, key=key)

    def graph(self, kind: GraphKind) -> Graph:
        numbers = self.in_order(self.live)
        inputs = [
            i
            for i in numbers
            if self.drafts[i].section != self.section or self.drafts[i].kind == "placeholder"
        ]
        ranks = {"saved": 1, "tangent": 2}
        inputs.sort(key=lambda i: ranks.get(self.role(i), 0 if kind != "backward" else 1))
        namer = NodeNamer()
        nodes: list[Node] = []
        for i in inputs:
            wanted = self.known.get(i) or self.drafts[i].wanted
            self.names[i] = namer.claim(wanted)
            role, name = self.role(i), self.names[i]
            path = module_of(name) if role == "saved" else ""
            nodes.append(Node(name, "placeholder", role, result=self.drafts[i].result, module=path))
        skip = set(inputs)
        for i in numbers:
            if i not in skip:
                nodes.append(self.node(i, namer))
        returned = tuple(Ref(self.names[i]) for i in self.returned)
        value: Arg = returned[0] if len(returned) == 1 else returned
        nodes.append(Node("output", "output", "output", (value,)))
        saved = tuple(Ref(self.names[i]) for i in self.saved)
        return Graph(tuple(nodes), kind, kind, "dispatch", saved)

    def role(self, i: int) -> str:
        draft = self.drafts[i]
        return draft.op if draft.kind == "placeholder" else "saved"

    def node(self, i: int, namer: NodeNamer) -> Node:
        draft = self.drafts[i]
        if draft.projects is not None:
            producer, index = draft.projects
            name = namer.claim(f"{self.names[producer]}#{index}")
        else:
            name = namer.node(draft.path, draft.op)
        self.names[i] = name
        found = tuple(
            Effect(kind, Ref(self.names[owner]) if kind == "mutates" else None)
            for kind, owner in draft.effects
        )
        return Node(
            name,
            "call_function",
            draft.op,
            tuple([self.arg(arg) for arg in draft.args]),
            {key: self.arg(arg) for key, arg in draft.kwargs.items()},
            draft.result,
            draft.path,
            draft.source,
            "",
            found,
            tuple(Ref(self.names[number]) for number in draft.after),
        )

    def arg(self, value: Any) -> Arg:
        if type(value) is _Operand:
            return Ref(self.names[value])
        if type(value) is tuple:
            return tuple([self.arg(item) for item in value])
        return value


def _values(value: Any) -> Iterator[Value]:
    if type(value) is Value:
        yield value
    elif type(value) is tuple:
        for item in value:
            yield from _values(item)
