"""`Program`: the graphs of a run, captured by a test or loaded from a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from .digits import fewest, with_digits
from .equality import canonical, equal_programs, strict
from .model import Detail, Graph
from .step import calls_of, needs_links
from .text import ALIAS_OPS, VERSION, Header, format_document, format_op, format_sections


class _Linked:
    """Graphs with their links, as a part of `Program.key`.

    The hash is weak, because equal links can have other names: `equal_programs` compares them.
    """

    def __init__(self, graphs: Sequence[Graph]):
        self.graphs = graphs

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Linked) and equal_programs(self.graphs, other.graphs)

    def __hash__(self) -> int:
        return hash(len(self.graphs))


Counts = tuple[tuple[str, dict[str, int]], ...]
"""Name and op counts of each graph."""


def count_lines(before: Counts, after: Counts) -> list[str]:
    """Return a line for each count that differs: `forward: aten.mm.default  1 -> 2`."""
    old, new = dict(before), dict(after)
    lines = []
    for name in {**old, **new}:
        was, now = Counter(old.get(name)), Counter(new.get(name))  # a missing op counts 0
        for op in sorted({*was, *now}):
            if was[op] != now[op]:
                lines.append(f"{name}: {format_op(op)}  {was[op]} -> {now[op]}")
    return lines


@dataclass(frozen=True)
class Program:
    """The graphs of one capture, or of several ranks.

    Attributes:
        header: origin of the graphs, and level of detail of a file.
        graphs: the graphs; for several ranks, the graphs of all sections. Empty with `detail ops`.
        counts: op counts that a file with `detail ops` has instead of graphs; see `op_counts`.
        ran: run count of each graph, if a file records it; see `runs`.
        version: format version of a file.
        folded: True if a file writes repeated modules once, or declares inputs where they are used.
        mesh: sizes of the mesh by dimension name, in order; empty for one capture.
        sections: groups of ranks with equal graphs, each with its program; empty for one capture.
    """

    header: Header
    graphs: tuple[Graph, ...] = ()
    counts: Counts = ()
    ran: Mapping[str, int] = field(default_factory=dict)
    version: int = VERSION
    folded: bool = False
    mesh: Mapping[str, int] = field(default_factory=dict)
    sections: tuple[tuple[tuple[int, ...], Program], ...] = ()

    @classmethod
    def of_ranks(
        cls, mesh: Mapping[str, int], sections: Sequence[tuple[Sequence[int], Program]]
    ) -> Program:
        """Return the program of several ranks.

        Args:
            mesh: sizes of the mesh by dimension name, in order.
            sections: at least one group of ranks with equal graphs, each with its program.
        """
        return cls(
            sections[0][1].header,
            tuple(graph for _, program in sections for graph in program.graphs),
            folded=any(program.folded for _, program in sections),
            mesh=mesh,
            sections=tuple((tuple(ranks), program) for ranks, program in sections),
        )

    @property
    def op_counts(self) -> Counts:
        """Name and op counts of each graph."""
        return self.counts or tuple((graph.name, dict(graph.op_counts)) for graph in self.graphs)

    @property
    def runs(self) -> Mapping[str, int]:
        """Run count of each eager or counted graph, by name."""
        return self.ran or {g.name: g.runs for g in self.graphs if g.eager or g.counted}

    @cached_property
    def of_rank(self) -> Mapping[int, Program]:
        """Program of each rank, in ascending order."""
        return dict(sorted((rank, program) for ranks, program in self.sections for rank in ranks))

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks, ascending; empty for one capture."""
        return tuple(self.of_rank)

    def canonical(self) -> Program:
        """Return the program with its graphs in the form in which they are compared and stored."""
        if self.sections:
            sections = [(ranks, program.canonical()) for ranks, program in self.sections]
            return Program.of_ranks(self.mesh, sections)
        return replace(self, graphs=canonical(self.graphs))

    @property
    def digits(self) -> int | None:
        """Significant digits of the float constants; `None` if exact."""
        return fewest((self.header.digits, *(graph.digits for graph in self.graphs)))

    def with_digits(self, digits: int | None) -> Program:
        """Return the program with its float constants rounded."""
        if digits is None:
            return self
        if self.sections:
            sections = [(ranks, program.with_digits(digits)) for ranks, program in self.sections]
            return Program.of_ranks(self.mesh, sections)
        graphs = tuple(with_digits(graph, digits) for graph in self.graphs)
        header = replace(self.header, digits=fewest((digits, self.header.digits)))
        return replace(self, header=header, graphs=graphs)

    def to_text(self, detail: Detail, fold: bool = True, digits: int | None = None) -> str:
        """Return the document that is stored. `fold=False` gives one line per node instead."""
        if not self.sections:
            return format_document(self.graphs, self.header, detail, fold=fold, digits=digits)
        # Ranks whose graphs differ only in floats are equal after rounding, and share a section.
        if digits is not None:
            return self.with_digits(digits).to_text(detail, fold)
        sections = [(ranks, program.graphs) for ranks, program in self.classes(detail)]
        return format_sections(self.mesh, sections, self.header, detail, fold=fold)

    def key(self, detail: Detail) -> object:
        """Return a value that two programs share if they are equal at a level of detail.

        Run counts are part of every key, strides and devices only with detail "full".
        """
        runs = tuple(self.runs.values())
        if detail == "ops":
            return tuple((name, frozenset(counts.items())) for name, counts in self.op_counts), runs
        graphs = self.graphs if detail == "dataflow" else tuple(map(strict, self.graphs))
        links = _Linked(self.graphs) if calls_of(self.graphs) else None
        return tuple((g.name, g.kind, g.level, g.eager, g) for g in graphs), runs, links

    @cached_property
    def _classes(self) -> dict[Detail, list[tuple[list[int], Program]]]:
        """The cache of `classes`, which fills it. A frozen class has no other place for it."""
        return {}

    def classes(self, detail: Detail) -> Sequence[tuple[Sequence[int], Program]]:
        """Return groups of ranks with equal graphs at a level of detail, each with its program."""
        if detail not in self._classes:
            classes_by_key: dict[object, tuple[list[int], Program]] = {}
            for rank, program in self.of_rank.items():
                classes_by_key.setdefault(program.key(detail), ([], program))[0].append(rank)
            self._classes[detail] = [*classes_by_key.values()]
        return self._classes[detail]


def missing_facts(program: Program, other: Program) -> list[str]:
    """Return which kinds of facts another program has on a rank, and a program lacks there.

    Facts that one of two programs lacks are not compared, such as the value of a constant. A kind
    is missing if some value of this kind became unknown, and some known value occurs less often: a
    change of a value, or of a graph, is no loss.
    """
    missing: set[str] = set()
    # A program of one capture counts as a single rank, or as every rank of the other program.
    for ranks, section in other.sections or (((0,), other),):
        of_rank = program.of_rank or dict.fromkeys(ranks, program)
        had = _facts(section)
        partners = {id(of_rank[rank]): of_rank[rank] for rank in ranks if rank in of_rank}
        for facts in map(_facts, partners.values()):
            balance = Counter((key[0], value) for key, value in had.items())
            balance.subtract((key[0], value) for key, value in facts.items())
            # A name that was not there may be a new name of a value that was.
            lost = {key[0] for key, value in facts.items() if value is None and had.get(key, True)}
            missing |= {kind for (kind, value), n in balance.items() if value and n > 0} & lost
    return sorted(missing)


def _facts(program: Program) -> Mapping[tuple[str, str], object]:
    """Return values by kind of fact and name; `None` for an unknown value.

    The kinds are words of messages. A fact that a program cannot have, such as the options of a
    module in a graph without modules, has no entry.
    """
    facts: dict[tuple[str, str], object] = {}
    graphs = program.graphs
    calls = calls_of(graphs)
    # Without calls, several runs of one graph are the only sign that the step has links.
    if needs_links(graphs) or (not calls and any(graph.runs > 1 for graph in graphs)):
        facts["links between graphs", ""] = bool(calls) or None
    for name, _ in program.op_counts:
        # A text does not write the count 1, so it cannot lose it.
        if (count := program.runs.get(name)) != 1:
            facts["run counts", name] = count
    for graph in graphs:
        # `()`, a target that returns the outputs, is written without any line.
        if graph.output or (graph.output is None and not graph.eager and graph.kind != "backward"):
            facts["return values", graph.name] = bool(graph.output) or None
        for part in graph.walk():
            for node in part.nodes:
                name = f"{graph.name}/{part.name}/{node.name}"
                # By readers: a constant without a value may have the name of another constant.
                for slot, ref in enumerate(node.refs):
                    value = part.by_name[ref]
                    if value.op == "constant" or value.kind == "get_attr":
                        known = repr(value.args) if value.args else None
                        facts["values of constants", f"{name} {slot}"] = known
                if node.kind == "call_module" and node.op.startswith("torch."):
                    facts["module options", name] = node.options
                elif node.op in ALIAS_OPS:  # which only a graph of the user's counts as ops
                    facts["origin of the graphs", name] = graph.given or None
    return facts
