"""Builds one graph from drafts: live nodes, their order and names. Also finds unwritten tensors.

An unwritten tensor is memory of `torch.empty` to which no recorded op writes. If the step reads it,
a Triton kernel, a C++ extension or a ctypes call may have written to it, unseen by the dispatcher.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from ...convert import effects
from ...convert.canonical_names import NodeNamer
from ...convert.source_lines import at_line
from ...graph.model import Arg, Effect, Graph, GraphKind, Node, Ref
from ...graph.module_paths import module_of
from ...ops.views import is_view
from .mode import OpRecord, RecordingMode, Value, parts_of, unrecorded
from .replay import Draft, Operand, Replay


class Section:
    """The drafts of one graph: the live drafts and their names.

    Args:
        replay: holds the drafts.
        section: the number of the section.
        returned: the drafts that the graph returns.
        saved: the drafts that the graph saves for a backward.
        writes: for each draft, the last writes to its memory by later drafts.

    Attributes:
        input_names: preset names of inputs.
        reserved: names that no op may get.
        names, refs: the names of all drafts and references to them, once a graph was built.
    """

    def __init__(
        self,
        replay: Replay,
        section: int,
        returned: Sequence[int],
        saved: Sequence[int] = (),
        *,
        writes: Mapping[int, Sequence[int]] | None = None,
    ):
        self.replay = replay
        self.drafts = replay.drafts
        self.section = section
        self.returned = returned
        self.saved = saved
        # A result includes later writes to its memory, so these writes must stay in the graph. A
        # write that a result depends on stays in any case: the gates of a GRU cell are parts of one
        # tensor, each of them is written in place, and each is saved.
        needed = self._closure([*returned, *saved]) if writes else ()
        self.after = tuple(
            dict.fromkeys(
                number
                for result in (*returned, *saved)
                for number in (writes or {}).get(result, ())
                if self.drafts[number].section == section and number not in needed
            )
        )
        self.input_names: dict[int, str] = {}
        self.reserved: Iterable[str] = ()
        self.names: dict[int, str] = {}
        self.refs: dict[int, Ref] = {}
        # Ops that ran are not dead code, even if nothing uses their results.
        ran = [i for i in replay.of_section.get(section, ()) if self.computes(self.drafts[i])]
        self.live = self._closure([*returned, *saved, *ran])

    def computes(self, draft: Draft) -> bool:
        """Return True for an op that is live even if nothing uses its result.

        Autograd makes views that it never uses. They compute nothing.
        """
        if draft.kind == "placeholder" or draft.projects is not None:
            return False
        return bool(draft.effects) or not computes_nothing(draft.op)

    def _closure(self, worklist: list[int]) -> set[int]:
        """Return drafts, and all that they depend on in this section. Empties the list."""
        live: set[int] = set()
        while worklist:
            i = worklist.pop()
            if i in live:
                continue
            live.add(i)
            draft = self.drafts[i]
            if draft.section == self.section:
                worklist += draft.operands
                worklist += draft.after
                # The effect refers to the owner of the memory, so the owner is live too.
                for kind, owner in draft.effects:
                    if kind == "mutates":
                        worklist.append(owner)
        return live

    def outside(self) -> list[int]:
        """Return the live drafts from earlier sections, in order."""
        return self.in_order(i for i in self.live if self.drafts[i].section != self.section)

    def in_order(self, numbers: Iterable[int]) -> list[int]:
        """Sort drafts: inputs in declaration order, then ops in program order with projections."""
        order = self.replay.input_order

        def key(i: int) -> tuple[bool, int, tuple[int, ...]]:
            draft = self.drafts[i]
            computed = draft.kind != "placeholder"
            return computed, 0 if computed else order.get(draft.wanted, len(order)), draft.place

        return sorted(numbers, key=key)

    def graph(self, kind: GraphKind) -> Graph:
        """Build the graph, inputs first."""
        numbers = self.in_order(self.live)
        inputs = [i for i in numbers if self._is_input(i)]
        ranks = {"saved": 1, "tangent": 2}
        # As in a backward of AOTAutograd: saved values first, then the incoming gradients. Other
        # inputs of a backward stand among the saved values.
        inputs.sort(key=lambda i: ranks.get(self.role(i), 0 if kind != "backward" else 1))
        namer = NodeNamer()
        nodes = [
            self.input(i, namer.claim(self.input_names.get(i) or self.drafts[i].wanted))
            for i in inputs
        ]
        namer.reserve(self.reserved)
        nodes += [self.node(i, namer) for i in numbers if not self._is_input(i)]
        returned = tuple(self.refs[i] for i in self.returned)
        value: Arg = returned[0] if len(returned) == 1 else returned
        after = tuple(self.refs[i] for i in self.after)
        nodes.append(Node("output", "output", "output", (value,), after=after))
        saved = tuple(self.refs[i] for i in self.saved)
        groups = self.replay.canon.ranks_of_groups()
        return Graph(
            tuple(nodes), name=kind, kind=kind, level="dispatch", saved=saved, groups=groups
        )

    def _is_input(self, i: int) -> bool:
        """Return True for a draft from outside the section."""
        draft = self.drafts[i]
        return draft.section != self.section or draft.kind == "placeholder"

    def input(self, i: int, name: str) -> Node:
        """Return the placeholder node of a draft from outside the section, and note its name."""
        role = self.role(i)
        self._set_name(i, name)
        if i in self.replay.kept:
            self.replay.kept_by_name[name] = self.replay.kept[i]
        path = module_of(name) if role == "saved" else ""  # the name begins with the module's path
        draft = self.drafts[i]
        args = draft.args if role == "constant" else ()
        return Node(name, "placeholder", role, args, {}, draft.result, path)

    def role(self, i: int) -> str:
        """Return the role of an input: "saved" for a draft that another section computed."""
        draft = self.drafts[i]
        return draft.op if draft.kind == "placeholder" else "saved"

    def node(self, i: int, namer: NodeNamer) -> Node:
        """Return the node of a draft that is not an input, and note its name.

        Its operands must have their names already.
        """
        draft = self.drafts[i]
        if draft.projects is not None:
            producer, index = draft.projects
            name = namer.claim(f"{self.names[producer]}#{index}")
        else:
            name = namer.node(draft.path, draft.op)
        self._set_name(i, name)
        node_effects: tuple[Effect, ...] = ()
        if draft.effects:
            node_effects = tuple(
                Effect(kind, self.refs[owner] if kind == "mutates" else None)
                for kind, owner in draft.effects
            )
        kwargs = draft.kwargs
        return Node(
            name,
            draft.kind,
            draft.op,
            tuple([self.arg(arg) for arg in draft.args]),
            {key: self.arg(arg) for key, arg in kwargs.items()} if kwargs else {},
            draft.result,
            draft.path,
            draft.source,
            effects=node_effects,
            after=tuple([self.refs[number] for number in draft.after]),
            by=draft.by,
        )

    def _set_name(self, i: int, name: str) -> None:
        """Note the name of a draft's node."""
        self.names[i] = name
        self.refs[i] = Ref(name)

    def arg(self, value: Any) -> Arg:
        """Return an argument, with operands as references."""
        if type(value) is Operand:
            return self.refs[value]
        if type(value) is tuple:
            return tuple([self.arg(item) for item in value])
        return value


def computes_nothing(op: str) -> bool:
    """Return True for a view, a query of a fake tensor's device, or a mark of the profiler.

    torch 2.9 sets such marks in its own backward, and optimizers set them around their steps.
    """
    return is_view(op) or op.startswith(("prim.", "profiler."))


_ALLOCATES = (
    "empty",
    "empty_like",
    "empty_strided",
    "empty_permuted",
    "new_empty",
    "new_empty_strided",
)
_READS_NO_VALUE = frozenset(
    """
    alias detach full_like new_full new_ones new_zeros ones_like rand_like randint_like randn_like
    record_stream resize_ resize_as_ set_ zeros_like
    """.split()
)
"""Ops, besides views, that use only the shape or dtype of an argument, not its values."""
_SCALES_FIRST = ("addmm", "addmv", "addr", "addbmm", "baddbmm")
"""Ops that multiply the first argument by `beta`, and do not read it if `beta` is 0.

The attention of diffusers calls `baddbmm(torch.empty(...), query, key, beta=0)`.
"""


class UnwrittenReads:
    """Finds the first read of an unwritten tensor, given the ops in program order.

    Attributes:
        first_unwritten: the op that made the first tensor that is read unwritten, or `None`.
    """

    def __init__(self, recorder: RecordingMode):
        self.first_unwritten: OpRecord | None = None
        self._recorder = recorder
        self._unwritten: dict[int, OpRecord] = {}
        self._kinds: dict[int, str] = {}

    def ran(self, record: OpRecord) -> None:
        """Process the next op."""
        op = record.op
        kind = self._kinds.get(id(op))
        if kind is None:
            kind = self._kinds[id(op)] = _kind(op)
        if kind == "makes":
            self._make(record)
        elif self._unwritten and kind != "form":
            # Writes before reads: the tensor that an op fills is among its arguments too.
            args = record.args
            if record.kwargs.get("beta") == 0 and op._opname in _SCALES_FIRST:
                args = args[1:]
            arguments = [*parts_of((args, record.kwargs), Value)]
            written = effects.written(op, record.args, record.kwargs)
            self.wrote(arguments if kind == "custom" else parts_of(written, Value))
            self.read(arguments)

    def _make(self, record: OpRecord) -> None:
        """Note the memory that an op such as `empty` made, unless it has no elements."""
        if type(record.output) is not Value or not math.prod(self._recorder.meta[record.output][1]):
            return
        storage = self._recorder.storage_of[record.output]
        # DTensor runs ops on fake tensors to get their shapes, and no op writes to these tensors.
        if storage not in self._recorder.without_memory and storage not in self._recorder.filled:
            self._unwritten[storage] = record

    def wrote(self, values: Iterable[Value]) -> None:
        """Note a recorded write to these tensors."""
        for value in values:
            self._unwritten.pop(self._recorder.storage_of[value], None)

    def read(self, values: Iterable[Value]) -> None:
        """Note a recorded read of these tensors."""
        for value in values if self._unwritten else ():
            producer = self._unwritten.get(self._recorder.storage_of[value])
            self.first_unwritten = self.first_unwritten or producer


def refuse_unwritten(unwritten_reads: UnwrittenReads) -> None:
    """Raise if the step reads a tensor that no recorded op has written to.

    Raises:
        CaptureError: with the line where the tensor was made.
    """
    producer = unwritten_reads.first_unwritten
    if producer is None:
        return
    raise unrecorded(
        f"the tensor of {producer.op}{at_line(producer.line)} is read, but no recorded op wrote to "
        "it. If a Triton or C++ kernel did, make the kernel an op with torch.library.custom_op. If "
        "the values do not matter, use torch.zeros"
    )


def _kind(op: Any) -> str:
    """Classify an op by its use of a tensor with unwritten memory.

    Returns:
        "makes" if it makes one, "form" if it uses only its shape, "custom" if it may write to any
        argument, otherwise "reads".
    """
    # A method or a higher-order op has no schema. It counts as a read.
    if not isinstance(op, torch._ops.OpOverload):
        return "reads"
    if op.namespace not in ("aten", "prims"):
        return "custom"  # its schema may omit writes; the op itself is in the graph
    if op._opname in _ALLOCATES:
        return "makes"
    return "form" if op.is_view or op._opname in _READS_NO_VALUE else "reads"
