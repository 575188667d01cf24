"""Builds a graph of the eager ops between two compiled runs, from an `IslandRecorder`'s events.

`islands_of` lets a `_Builder` do three steps. `_make_drafts` replays the events: an `_IslandReplay`
makes the drafts of nodes, and each island or compiled run is one section of them. `_mark_used`
finds the drafts that another section uses. Then `_build_graph` builds one graph for each island, in
an `_IslandSection`, and `_link_calls` says which call made each input of a graph.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ...convert.canonical_names import CanonicalNames
from ...convert.from_fx import Converted
from ...convert.source_lines import source_of
from ...graph.events import EagerOp
from ...graph.model import Graph, GraphKind, Source
from ...graph.step import MATCHED_BY_NAME, OUTSIDE, Link, StepCall, forward_of
from ...words import grouped
from ..recording import (
    FIRST_LEAF_SEQUENCE,
    Draft,
    OpRecord,
    Replay,
    Section,
    Value,
    collector_paused,
    parts_of,
)
from .island_recorder import CompiledRun, EagerRecord, IslandRecorder


@dataclass(frozen=True)
class Island:
    """A graph of the ops that ran eagerly between two compiled runs. Equal islands share one graph.

    Attributes:
        graph: the graph, with names from the first of the equal islands.
        after_graph: number of the compiled graph that ran before the island, or -1.
        stack: index in `Islands.stacks` of the stack in which the first island began.
    """

    graph: Graph
    after_graph: int
    stack: int


@dataclass(frozen=True)
class Islands:
    """The eager part of a step.

    Attributes:
        graphs: the distinct islands, in order of their first run.
        ops: every op call, in order, without its cause.
        began: for each op, the index of the stack in which its island began.
        stacks: for each island, equal islands included, the user's lines where it began, innermost
            first. For a backward island, the lines of the forward op that its first op belongs to.
        order: all runs in program order, as pairs (True for an island, number of the island or
            compiled graph).
        calls: the calls of the step, in program order, one for each pair of `order`; empty for a
            step that nothing divides.
        divisions: for each call, what is known of the place where it begins; `None` for the first
            call if it is compiled, and in a backward.
    """

    graphs: Sequence[Island] = ()
    ops: Sequence[EagerOp] = ()
    began: Sequence[int] = ()
    stacks: Sequence[tuple[Source, ...]] = ()
    order: Sequence[tuple[bool, int]] = ()
    calls: Sequence[StepCall] = ()
    divisions: Sequence[Division | None] = ()


class Division(NamedTuple):
    """The place where a call begins.

    Attributes:
        stack: the user's running lines, innermost first.
        direct: True at the line of a break: eager ops begin there, or compiled code resumes.
        resumes: True if compiled code continues after eager ops.
    """

    stack: tuple[Source, ...]
    direct: bool
    resumes: bool


@dataclass
class _Call:
    """A call whose values are still drafts.

    Attributes:
        event: its compiled run, or its first eager op.
        inputs: the drafts of its inputs, by input name.
        values: the drafts of the values that it makes, with their names in its graph.
        graph: its graph; `None` for eager ops.
    """

    event: EagerRecord | CompiledRun
    inputs: dict[str, int] = field(default_factory=dict)
    values: dict[int, str] = field(default_factory=dict)
    graph: Graph | None = None


@dataclass
class _Part:
    """The records of one island.

    Islands with equal graphs become one `Island`, but each has its own `_Part`.

    Attributes:
        backward: whether the island ran in a backward.
        in_update: whether the island belongs to the update of a training step.
        after_graph: see `Island`.
        section: the section of the island's drafts.
        call: the island's call.
        records: the island's ops.
    """

    backward: bool
    in_update: bool
    after_graph: int
    section: int
    call: _Call
    records: list[EagerRecord] = field(default_factory=list)


def islands_of(
    recorder: IslandRecorder,
    canon: CanonicalNames,
    compiled: Mapping[int, tuple[int, Graph, Converted]],
    results: Mapping[str, Value],
) -> Islands:
    """Build the islands of a recorded step.

    Args:
        recorder: the recorder of the step.
        canon: canonical names of symbols and devices, shared by all graphs of the capture.
        compiled: for each `CompiledRun.compiled_graph`, by `id`: its number, its graph under its
            final name, and the conversion of the graph.
        results: the values that the step returns, by name: outputs, gradients, buffers.
    """
    runs = [event for event in recorder.events if isinstance(event, CompiledRun)]
    # In the usual case no replay is needed: nothing ran eagerly, and no compiled forward passed a
    # value to another one.
    if len(runs) == len(recorder.events) and sum(not run.backward for run in runs) < 2:
        return Islands(
            order=[
                (False, compiled[id(run.compiled_graph)][0]) for run in runs if not run.is_op_by_op
            ]
        )
    with collector_paused():
        return _Builder(recorder, canon, compiled).build(results)


class _IslandReplay(Replay):
    """Creates the drafts of eager ops, in one section per island and per compiled run."""

    recorder: IslandRecorder

    def __init__(self, recorder: IslandRecorder, canon: CanonicalNames):
        super().__init__(recorder, canon)
        self.view_of: dict[int, int] = {}
        """For each draft of a view from outside the island, the draft of its base."""
        self.used_as_view: list[tuple[int, int]] = []
        """Pairs (draft, section): the section uses a view of the draft."""
        self.before: dict[int, EagerRecord | CompiledRun] = {}
        """The event before each backward record, by the record's `id`."""
        self.drafted: dict[int, int] = {}
        """The draft of each record, by the record's `id`."""

    def forward_record(self, record: EagerRecord) -> EagerRecord | None:
        """Return the forward op that a backward op belongs to, or `None` if unknown."""
        index = self.recorder.event_index_of(record.sequence) if record.backward else None
        if index is None or index < 0:
            return None
        event = self.recorder.events[index]
        return event if isinstance(event, EagerRecord) and event is not record else None

    def place(self, record: OpRecord) -> tuple[str, Source | None]:
        """Return the module path and source of an op.

        A backward op has the module and the line of the forward op whose gradient it computes. An
        op that propagates the gradient of a compiled graph has those of the call of that graph.
        An op of instructions that Dynamo made, such as those of an f-string, has the line of its
        operand.
        """
        assert isinstance(record, EagerRecord)
        paths = self.recorder.paths
        source = source_of(record.line)
        if record.lacks_line:
            operands = (self.drafts[self.current[v]] for v in parts_of(record.args, Value))
            source = next((draft.source for draft in operands if draft.source), source)
        if (record.path_number > 0 and source is not None) or not record.backward:
            return paths[max(record.path_number, 0)], source
        path, source_of_forward = self._place_of_forward(record)
        if record.path_number > 0:
            path = paths[record.path_number]
        return path, source or source_of_forward

    def _place_of_forward(self, event: EagerRecord | CompiledRun) -> tuple[str, Source | None]:
        """Return the module path and source of the forward event of a backward event.

        "" and `None` if the forward event is unknown.
        """
        # A parameter's gradient is computed by the previous event.
        if event.sequence >= FIRST_LEAF_SEQUENCE:
            previous_event = self.before.get(id(event))
            if previous_event is None or not previous_event.backward:
                return "", None
            return self._place_of_forward(previous_event)
        index = self.recorder.event_index_of(event.sequence)
        if index == -1:  # an output that AOTAutograd recreated after the graph ran
            # The autograd node of such an output was created after the run, so take the last run
            # that precedes the node.
            marks = reversed(self.recorder.sequence_marks)
            index = next((n for mark, n in marks if mark <= event.sequence and n >= 0), None)
        if index is None:
            return "", None
        forward_event = self.recorder.events[index]
        if forward_event is event:
            return "", None
        if isinstance(forward_event, EagerRecord):
            return self.place(forward_event)
        # The graph ran in a backward itself, as in a checkpoint: go back to its own forward.
        if forward_event.backward:
            return self._place_of_forward(forward_event)
        return self.recorder.paths[forward_event.path_number], source_of(forward_event.line)

    def draft_of(self, value: Value) -> int:
        """Return the draft that currently holds a value.

        If no recorded op made a view, and its base is from outside the island, then the view is an
        input of the island too.
        """
        base = self.recorder.views.get(value)
        if value in self.current or base is None:
            return super().draft_of(value)
        number = self.draft_of(self.recorder.values[base])
        draft = self.drafts[number]
        # The base is computed in this section, so the view becomes an `as_strided` of it.
        if draft.section == self.section and draft.kind != "placeholder":
            return super().draft_of(value)
        role = draft.op if draft.kind == "placeholder" else "input"
        view = self.push(Draft("placeholder", role, result=self.meta(value), wanted=draft.wanted))
        self.view_of[view] = self.view_of.get(number, number)
        self.used_as_view.append((self.view_of[view], self.section))
        self.define(value, view)
        return view


class _IslandSection(Section):
    """The drafts of one island.

    Args:
        replay, returned, saved: see `Section`.
        part: the records of the island.
        backward_sections: for each section, whether it ran in a backward.
    """

    def __init__(
        self,
        replay: Replay,
        part: _Part,
        returned: Sequence[int],
        saved: Sequence[int],
        backward_sections: Mapping[int, bool],
    ):
        self.part = part
        self.backward_sections = backward_sections
        super().__init__(replay, part.section, returned, saved)

    def computes(self, _draft: Draft) -> bool:
        """Return True, so that every op that ran is in the graph."""
        return True  # an island may consist of views alone

    def role(self, i: int) -> str:
        """Return the role of an input: in a backward, what a forward computed is saved for it."""
        draft = self.drafts[i]
        if draft.kind == "placeholder" and draft.op != _RUN:
            return draft.op
        if not self.part.backward:
            return "input"
        return "tangent" if self.backward_sections.get(draft.section) else "saved"


_RUN = "run"
"""The role of a value that a compiled graph returned."""
_UNKNOWN = ("constant", _RUN)
"""Ops of results that no call is known to make."""
_RESUMED = re.compile(r"\Atorch_dynamo_resume_in_.+_at_(\d+)\Z")
"""Name of a function in which Dynamo continues after a graph break, with the break's line."""
GRADIENT = "grad"
"""The name of a gradient that autograd computed op by op for a compiled graph."""


class _Builder:
    """Builds the islands of one step.

    Attributes:
        compiled: see `islands_of`.
        parts: all islands in order, equal ones included.
        order: see `Islands.order`, but with the index of an island in `parts`.
        calls: the calls of islands and of compiled graphs, in program order.
        part_of: the island of each record, by the record's `id`.
        backward_sections: for each section of drafts, whether it ran in a backward.
        named: qualified names of drafts, for example `eager_0:head/mm`.
        needed: drafts that another section of the forward uses, or that the step returns.
        saved: drafts that a section of the backward uses, other than their own.
    """

    def __init__(
        self,
        recorder: IslandRecorder,
        canon: CanonicalNames,
        compiled: Mapping[int, tuple[int, Graph, Converted]],
    ):
        self.recorder = recorder
        self.compiled = compiled
        self.replay = _IslandReplay(recorder, canon)
        self.parts: list[_Part] = []
        self.order: list[tuple[bool, int]] = []
        self.part_of: dict[int, _Part] = {}
        self.backward_sections: dict[int, bool] = {}
        self.named: dict[int, str] = {}
        self.needed: set[int] = set()
        self.saved: set[int] = set()
        self.calls: list[_Call] = []
        has_backward = any(event.backward for event in recorder.events)
        self.forward_kind: GraphKind = "forward" if has_backward else "inference"

    def build(self, results: Mapping[str, Value]) -> Islands:
        """Build the islands, given the values that the step returns."""
        self._make_drafts()
        returned = self._mark_used(results)
        drafts = self.replay.drafts
        used_outside = grouped(
            (drafts[i].section, i)
            for i in sorted(self.needed | self.saved)
            if drafts[i].kind != "placeholder"
        )
        number_of_graph: dict[tuple[GraphKind, Graph], int] = {}  # the indices in `islands`
        islands: list[Island] = []
        ops: list[EagerOp] = []
        began: list[int] = []
        op_of_record: dict[int, EagerOp] = {}
        numbers: list[int] = []  # for each part, the index of its graph in `islands`
        for part_number, part in enumerate(self.parts):
            graph, section = self._build_graph(part, used_outside.get(part.section, []))
            # A graph break in a loop produces an island per iteration. Equal islands become one
            # graph with a run count.
            number = number_of_graph.setdefault((graph.kind, graph), len(islands))
            if number == len(islands):
                graph = replace(graph, name=f"eager_{number}", eager=True)
                islands.append(Island(graph, part.after_graph, part_number))
            numbers.append(number)
            first = islands[number].graph
            self._fill_call(part, graph, first, section)
            ops += self._list_ops(part, first.name, op_of_record)
            began += [part_number] * len(part.records)
        runs = Counter(numbers)
        counted = [
            replace(island, graph=replace(island.graph, runs=runs[number]))
            for number, island in enumerate(islands)
        ]
        stacks = [self._find_stack(part) for part in self.parts]
        order = [
            (eager, numbers[position] if eager else position) for eager, position in self.order
        ]
        calls = self._link_calls(returned)
        divisions = [*self._find_divisions()]
        return Islands(counted, ops, began, stacks, order, calls, divisions)

    def _mark_used(self, results: Mapping[str, Value]) -> dict[str, int]:
        """Fill `needed` and `saved`, and return the drafts of the step's results, by name."""
        returned = {name: self.replay.draft_of(value) for name, value in results.items()}
        self.needed |= {*returned.values()}
        drafts, uses = self.replay.drafts, [*self.replay.used_as_view]
        for draft in drafts:
            own = draft.section
            uses += [(i, own) for i in draft.operands if drafts[i].section != own]
        for number, section in uses:
            (self.saved if self.backward_sections.get(section) else self.needed).add(number)
        return returned

    def _fill_call(self, part: _Part, graph: Graph, first: Graph, section: Section) -> None:
        """Note the drafts of an island's inputs and values, under the names of the first island.

        Later islands refer to the values by these names.

        Args:
            part: the island.
            graph: its graph, under its own names.
            first: the equal graph of the first island, which may be the same one.
            section: the section that `graph` was built from.
        """
        names = {}
        # Equal graphs may order independent ops differently. The own names then stay.
        if [node.op for node in graph.nodes] == [node.op for node in first.nodes]:
            pairs = zip(graph.nodes, first.nodes, strict=True)
            names = {node.name: of_first.name for node, of_first in pairs}
        for i, own_name in section.names.items():
            name = names.get(own_name, own_name)
            draft = self.replay.drafts[i]
            if draft.section == part.section and draft.kind != "placeholder":
                part.call.values[i] = name
                self.named[i] = f"{first.name}:{name}"
            else:
                part.call.inputs[name] = i

    def _link_calls(self, returned: Mapping[str, int]) -> list[StepCall]:
        """Return all calls with their links.

        Args:
            returned: the drafts of the step's results, by name.
        """
        made = {  # by draft, the call that computes it
            i: Link(number, name)
            for number, call in enumerate(self.calls)
            for i, name in call.values.items()
        }

        constants: dict[int, str] = {}

        def link(i: int) -> Link:
            """Return the source of a draft: a call, or an input of the step."""
            i = self.replay.view_of.get(i, i)
            if i in made:
                return made[i]
            draft = self.replay.drafts[i]
            # A value of a run that is in no call is a gradient that autograd computed op by op.
            role, name = "tangent" if draft.op == _RUN else draft.op, draft.wanted
            if role == "constant":  # several tensors without a name
                number = len(constants)
                name = constants.setdefault(i, f"{name}.{number}" if number else name)
            return Link(OUTSIDE, name, role)

        results = {}
        for name, i in returned.items():
            base = self.replay.view_of.get(i, i)
            # Compiled autograd writes gradients into tensors that no op returned.
            is_known = base in made or self.replay.drafts[base].op not in _UNKNOWN
            if is_known and not name.startswith("kept "):  # see `recorded_islands`
                results[name] = link(base)
        runs = grouped(
            (call.graph.name, n) for n, call in enumerate(self.calls) if call.graph is not None
        )
        in_update = self.recorder.in_update
        phases = [(call.event.backward, id(call.event) in in_update) for call in self.calls]
        last = {phase: number for number, phase in enumerate(phases)}  # the last call of each
        calls = []
        for number, call in enumerate(self.calls):
            event = call.event
            inputs = {name: link(i) for name, i in call.inputs.items()}
            saver = None if call.graph is None else call.graph.saver
            if call.graph is not None and saver is not None:
                forward = forward_of(runs, call.graph, number)
                for own in call.graph.inputs:
                    # An op of the forward with this name computed the input. The recorder may not
                    # know: a tensor that autograd saved shows only the input that it is a view of,
                    # a size shows nothing, and of equal views of one value, such as the operands
                    # of three projections, the recorder knows the first.
                    node, known = saver.by_name.get(own.name), inputs.get(own.name)
                    is_open = known is None or known.call in (OUTSIDE, forward)
                    if forward is not None and node is not None and node.is_call and is_open:
                        inputs[own.name] = Link(forward, own.name)
            of_last = results if last[phases[number]] == number else {}
            module = "" if event.backward else self.recorder.paths[max(event.path_number, 0)]
            calls.append(StepCall(number, inputs, module=module, results=of_last))
        calls[0] = replace(calls[0], order=self._order_inputs(calls))
        return calls

    def _order_inputs(self, calls: Sequence[StepCall]) -> tuple[str, ...]:
        """Return `StepCall.order` of the first call: () for the order that a reader assumes."""
        roles = {
            source.name: source.role
            for call in calls
            for source in call.inputs.values()
            if source.call == OUTSIDE and source.role in ("input", *MATCHED_BY_NAME)
        }
        rank = self.replay.input_order
        order = sorted(roles, key=lambda name: rank.get(name, len(rank)))
        assumed = sorted(roles, key=lambda name: roles[name] != "input")
        return () if order == assumed else tuple(order)

    def _find_divisions(self) -> Iterator[Division | None]:
        """Yield the division before each call; see `Islands.divisions`."""
        before: EagerRecord | CompiledRun | None = None
        for call in self.calls:
            event = call.event
            is_eager = isinstance(event, EagerRecord)
            lines = event.stack
            # Dynamo names the function in which compiled code goes on after the line of a break.
            # The running line is that of the next break.
            resumed = None if is_eager or not lines else _RESUMED.search(lines[0][2])
            if resumed is not None:
                lines = ((lines[0][0], int(resumed[1]), lines[0][2]), *lines[1:])
            at_break = is_eager or resumed is not None
            if event.backward or (before is None and not at_break):
                yield None
            else:
                stack = tuple(source for line in lines if (source := source_of(line)) is not None)
                # Compiled code after the eager ops of a break, not after a break of its own.
                resumes = False
                if isinstance(before, EagerRecord) and resumed is not None:
                    last_line = self.part_of[id(before)].records[-1].line
                    eager_lines = (*before.stack, last_line)
                    resumes = any(line and line[:2] == lines[0][:2] for line in eager_lines)
                yield Division(stack, at_break and not resumes, resumes)
            before = event

    def _make_drafts(self) -> None:
        """Replay all events, with one section per island and per compiled run."""
        replay = self.replay
        section, after_graph = 0, -1
        part: _Part | None = None  # the island that is open
        before: EagerRecord | CompiledRun | None = None
        for event in self.recorder.events:
            if isinstance(event, CompiledRun):
                part, section = None, section + 1
                replay.section = section
                self.backward_sections[section] = event.backward
                number = self._add_run(event)
                if not event.is_op_by_op:  # its backward has no graph, so it is no call
                    after_graph = number
                    self.order.append((False, number))
                before = event
                continue
            # An island ends at a compiled run, and between forward and backward.
            phase = event.backward, id(event) in self.recorder.in_update
            if part is None or (part.backward, part.in_update) != phase:
                section += 1
                replay.section = section
                self.backward_sections[section] = event.backward
                part = _Part(*phase, after_graph, section, _Call(event))
                self.order.append((True, len(self.parts)))
                self.parts.append(part)
                self.calls.append(part.call)
            if before is not None:
                replay.before[id(event)] = before
            before = event
            part.records.append(event)
            self.part_of[id(event)] = part
            replay.add(event)
            # The op is the last draft that `add` makes. One that makes none has the draft before.
            replay.drafted[id(event)] = len(replay.drafts) - 1
        replay.section = section + 1  # of the step's results that no event made

    def _add_run(self, event: CompiledRun) -> int:
        """Note the inputs and outputs of a compiled run, and return the graph's number.

        Its outputs become placeholder drafts, because the island replay sees no op that makes them.
        """
        position, graph, converted = self.compiled[id(event.compiled_graph)]
        input_names, output_names = _input_names(converted), _output_names(converted)
        # The values of a backward that ran op by op have no names in a graph. For all other known
        # graphs the lengths are equal too. A value beyond the names would count as unused.
        if event.is_op_by_op:
            input_names, output_names = [""] * len(event.inputs), [GRADIENT] * len(event.outputs)
        call = _Call(event, graph=graph)
        if not event.is_op_by_op:
            self.calls.append(call)
        for name, value in zip(input_names, event.inputs, strict=False):
            if type(value) is Value:
                # A value that only a backward reads was saved for it. A value that a forward reads
                # is an output.
                used = self.saved if event.backward else self.needed
                number = self.replay.draft_of(value)
                base = self.replay.view_of.get(number, number)
                used.add(base)
                call.inputs[name] = base
        rewritten = [(input_names[i], value) for i, value in event.rewritten.items()]
        for name, value in [*rewritten, *zip(output_names, event.outputs, strict=False)]:
            if type(value) is Value and value not in self.replay.current:
                name_in_graph = f"{graph.name}:{name}"
                result = self.replay.meta(value)
                node = graph.by_name.get(name)
                source = None if node is None else node.source
                draft = Draft(
                    "placeholder", _RUN, result=result, source=source, wanted=name_in_graph
                )
                number = self.replay.push(draft)
                call.values[number] = name
                self.replay.define(value, number)
        for value in event.rewritten.values():
            # The graph wrote to its input, so later ops that read this memory read its result.
            storage = self.recorder.storage_of[value]
            self.replay.storages.owner[storage] = self.replay.current[value]
        return position

    def _build_graph(self, part: _Part, used_outside: Sequence[int]) -> tuple[Graph, Section]:
        """Build the graph of one island, under its own names, and return the section with them.

        A graph returns what a forward uses, and saves what only a backward uses. A backward saves
        nothing.

        Args:
            used_outside: the drafts of the island that are used outside it.
        """
        returned = [i for i in used_outside if part.backward or i in self.needed]
        saved = [i for i in used_outside if not part.backward and i not in self.needed]
        section = _IslandSection(self.replay, part, returned, saved, self.backward_sections)
        # What an earlier island computed has the same name here.
        for i in section.live:
            base = self.replay.view_of.get(i, i)
            if base in self.named:
                section.input_names[i] = self.named[base]
        kind: GraphKind = "update" if part.in_update else self.forward_kind
        graph = section.graph("backward" if part.backward else kind)
        return graph, section

    def _find_stack(self, part: _Part) -> tuple[Source, ...]:
        """Return the user's lines in which an island began."""
        record = part.records[0]
        lines = record.stack
        # No frame of the user's code is running in a backward, so use the lines of its forward.
        if not lines and (forward := self.replay.forward_record(record)) is not None:
            own_line = () if forward.line is None else (forward.line,)
            lines = (*own_line, *self.part_of[id(forward)].records[0].stack)
        return tuple(source for line in lines if (source := source_of(line)) is not None)

    def _list_ops(
        self, part: _Part, graph: str, op_of_record: dict[int, EagerOp]
    ) -> Iterator[EagerOp]:
        """Yield the ops that ran in one island.

        Args:
            graph: the name of the island's graph.
            op_of_record: the ops so far, by the `id` of their records.
        """
        replay = self.replay
        for record in part.records:
            draft = replay.drafts[replay.drafted[id(record)]]
            by_engine, follows = record.by_engine, None
            # An op of a formula of autograd, not of a hook or a checkpoint.
            if record.backward and record.line is None and record.path_number <= 0:
                forward = replay.forward_record(record)
                follows = None if forward is None else op_of_record.get(id(forward))
                # An op that AOTAutograd's wrapper runs to pass a gradient on is not the user's.
                of_aot = record.passes_on and replay.recorder.event_index_of(record.sequence) == -1
                by_engine = by_engine or of_aot
            reads_count = any(
                replay.recorder.memory(value) in replay.recorder.step_counts
                for value in parts_of(record.args, Value)
            )
            eager_op = EagerOp(
                draft.op,
                graph,
                draft.path,
                draft.source,
                by_engine,
                follows,
                reads_step_count=reads_count,
            )
            op_of_record[id(record)] = eager_op
            yield eager_op


def _input_names(converted: Converted) -> list[str]:
    """Return the `Graph` node name of each input of a compiled graph."""
    names = [node.name for node in converted.fx.nodes if node.op == "placeholder"]
    return [converted.names.get(name, name) for name in names]


def _output_names(converted: Converted) -> list[str]:
    """Return the `Graph` node name of each output of a compiled graph."""
    output: Any = next(node for node in converted.fx.nodes if node.op == "output").args[0]
    values = output if isinstance(output, tuple | list) else (output,)
    names = [getattr(value, "name", "") for value in values]
    return [converted.names.get(name, name) for name in names]
