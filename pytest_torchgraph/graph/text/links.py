r"""The links of a step in a text: its runs in program order, with its graph breaks.

    links   = "links unknown" NL | "links" NL [inputs] { run | break | result }
    inputs  = "  inputs %" name { ", %" name } NL
    run     = "  run" call ["in" module] ["with" path "as" path { "," path "as" path }]
              [":" input { "," input }] NL
    break   = "  break" ["in" function] ":" string NL
    result  = "  result" string "=" ( source | "none" ) NL
    input   = "%" name "=" source
    source  = call "%" name | role "%" name
    call    = name ["[" number "]"]

`forward_1[2]` is the second run of the graph `forward_1`. A run with `layers.0 as layers.1` takes
the parameters of `layers.1` where the graph has those of `layers.0`. Only what differs from the
default is written: an input of a graph is the input of the step with its name, a constant is the
graph's own, an input of a backward is the value of that name in its forward, the target returns
what the last forward returns, and a gradient is what the backward returns for its input. `inputs`
is written if the graphs do not take the inputs of the step in the target's order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...words import grouped
from ..census import moved
from ..events import SKIPPED, GraphBreak
from ..model import INPUT_OPS, PHASES, Graph, Ref, phase_of
from ..module_paths import split_graph
from ..step import (
    OUTSIDE,
    Cut,
    Link,
    StepCall,
    calls_of,
    count_nodes,
    earlier_run,
    forward_of,
    needs_links,
    renamed_paths,
)
from .format import format_name, quote
from .nodes import NodeReader

LINKS = "links"
UNKNOWN = "links unknown"
"""The line of a watch, which records no links."""
MOST_RUN_NODES = 1_000_000
"""Maximum number of nodes of all runs, and of inputs for each path of a run.

A line stands for all inputs of its graph, so reading would take the product of lines.
"""
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


def links_lines(graphs: Sequence[Graph]) -> Iterator[str]:
    """Yield the lines of a step's links; none if the step needs none, or if nothing is known."""
    if not needs_links(graphs) or any(graph.calls is None for graph in graphs):
        return
    calls = calls_of(graphs)
    yield ""
    if calls is None:
        yield UNKNOWN
        return
    yield LINKS
    labels = _labels([graph for _, graph in calls])
    order = _Order([graph for _, graph in calls])
    if calls[0][0].order:
        yield f"  inputs {', '.join(f'%{format_name(name)}' for name in calls[0][0].order)}"
    for call, graph in calls:
        if call.cut is not None and call.cut.direct and call.cut.graph_break is not None:
            yield _break_line(call.cut.graph_break)
        paths = renamed_paths(graph, call.inputs)
        default = order.inputs(call.number, paths)
        given = {**default, **call.inputs}
        links = {node.name: given[node.name] for node in graph.inputs if node.name in given}
        order.links[call.number] = links
        line = f"  run {labels[call.number]}"
        line += f" in {format_name(call.module)}" if call.module else ""
        if paths:
            pairs = [f"{format_name(old)} as {format_name(new)}" for old, new in paths]
            line += f" with {', '.join(pairs)}"
        inputs = [
            f"%{format_name(name)} = {_source(link, labels)}"
            for name, link in links.items()
            if link != default.get(name)
        ]
        yield line + (f": {', '.join(inputs)}" if inputs else "")
    results = {label: link for call, _ in calls for label, link in call.results.items()}
    expected = order.results()
    for label in {**expected, **results}:
        link = results.get(label)
        if link != expected.get(label):
            source = "none" if link is None else _source(link, labels)
            yield f"  result {quote(label)} = {source}"


def _labels(order: Sequence[Graph]) -> list[str]:
    runs: dict[str, int] = {}
    labels = []
    for graph in order:
        number = runs[graph.name] = runs.get(graph.name, 0) + 1
        labels.append(format_name(graph.name) + (f"[{number}]" if number > 1 else ""))
    return labels


def _source(link: Link, labels: Sequence[str]) -> str:
    origin = link.role if link.call == OUTSIDE else labels[link.call]
    return f"{origin} %{format_name(link.name)}"


def _break_line(cause: GraphBreak) -> str:
    function = f" in {format_name(cause.function)}" if cause.function else ""
    return f"  break{function}: {quote(cause.kind.removeprefix(SKIPPED))}"


class _Order:
    """The runs of a step in program order, and what their links are by default.

    Args:
        graphs: the graph of each run.

    Attributes:
        links: the links of each run so far; the defaults of later runs refer to them.
    """

    def __init__(self, graphs: Sequence[Graph]):
        self.graphs = graphs
        self.links: dict[int, Mapping[str, Link]] = {}
        self.numbers = grouped((graph.name, number) for number, graph in enumerate(graphs))

    def inputs(self, number: int, paths: Sequence[tuple[str, str]]) -> dict[str, Link]:
        """Return the default link of each input of a run."""
        graph = self.graphs[number]
        forward = forward_of(self.numbers, graph, number)
        links = {}
        for node in graph.inputs:
            link = None
            if forward is not None and node.op != "tangent":
                own = self.graphs[forward].by_name.get(node.name)
                if own is not None and own.kind == "placeholder":
                    link = self.links[forward].get(node.name)
                elif own is not None:
                    link = Link(forward, node.name)
            source, name = split_graph(node.name)
            if link is None and source:
                earlier = earlier_run(self.numbers.get(source, ()), number)
                link = None if earlier is None else Link(earlier, name)
            if link is not None or node.op != "constant":
                links[node.name] = link or Link(OUTSIDE, moved(node.name, *paths), node.op)
        return links

    def results(self) -> dict[str, Link]:
        """Return the default link of each result of the step."""
        results: dict[str, Link] = {}
        phases = [graph.kind for graph in self.graphs]
        forwards = [n for n, kind in enumerate(phases) if kind not in ("backward", "update")]
        if forwards:
            graph = self.graphs[forwards[-1]]
            paths = graph.output or [(str(n), Ref(v.name)) for n, v in enumerate(graph.outputs)]
            for path, value in paths:
                if isinstance(value, Ref):
                    results[f"output {path}"] = self._resolve(forwards[-1], value.name)
        for number, graph in enumerate(self.graphs):
            forward = forward_of(self.numbers, graph, number)
            if forward is None:
                continue
            returned = graph.nodes[-1].args[0] if graph.nodes[-1].args else ()
            values = returned if isinstance(returned, tuple) else (returned,)
            for node, value in zip(self.graphs[forward].inputs, values, strict=False):
                link = self.links[forward][node.name]
                if link.call == OUTSIDE and isinstance(value, Ref):
                    results[f"grad {link.name}"] = self._resolve(number, value.name)
        return results

    def _resolve(self, number: int, name: str) -> Link:
        """Return the source of a value that a run returns: an input of the run is not its own."""
        return self.links[number].get(name) or Link(number, name)


class _RunLine(NamedTuple):
    """A run as it is read, with the inputs that its line gives."""

    graph: Graph
    paths: list[tuple[str, str]]
    inputs: dict[str, tuple[str, int, str]]
    cut: Cut | None
    module: str
    position: tuple[int, int]


class LinksReader:
    """Reads the lines after `links`.

    Args:
        reader: the reader of the text, at the line `links`.
        graphs: the graphs of the text.
    """

    def __init__(self, reader: NodeReader, graphs: Sequence[Graph]):
        self.reader = reader
        self.graphs = {graph.name: graph for graph in graphs}
        self.sizes = {graph.name: count_nodes(graph) for graph in graphs}
        self.runs: list[_RunLine] = []
        self.counts: Counter[str] = Counter()
        self.results: dict[str, tuple[str, int, str] | None] = {}
        self.inputs: tuple[str, ...] = ()
        self.nodes = 0

    def read(self) -> tuple[Graph, ...]:
        """Return the graphs with their calls."""
        reader = self.reader
        cause: GraphBreak | None = None
        while reader.next_line() and not reader.at_end():
            reader.expect("  ")
            if reader.skip("break"):
                cause = self._read_break()
            elif reader.skip("run "):
                self._read_run(Cut(cause, direct=cause is not None))
                cause = None
            elif reader.skip("result "):
                self._read_result()
            elif not self.runs and not self.inputs and reader.skip("inputs "):
                self.inputs = self._read_inputs()
            else:
                reader.fail(f"expected 'run', 'break' or 'result', found {reader.describe_rest()}")
            reader.expect_end_of_line()
        return self._linked()

    def _read_break(self) -> GraphBreak:
        reader = self.reader
        function = reader.read_name() if reader.skip(" in ") else ""
        reader.expect(": ")
        kind = reader.read_text()
        return GraphBreak(kind, "", "", "", 0, "", function, (), "", "")

    def _read_run(self, cut: Cut) -> None:
        reader = self.reader
        position = reader.row, reader.pos
        name, number = self._read_call()
        graph = self.graphs.get(name)
        if graph is None:
            reader.fail(f"the text has no graph {name!r}", position[1])
        self.counts[name] += 1
        if number != self.counts[name]:
            reader.fail(f"the runs of {name!r} are not in order", position[1])
        paths = []
        module = reader.read_name() if reader.skip(" in ") else ""
        if reader.skip(" with "):
            while True:
                old = reader.read_name()
                reader.expect(" as ")
                paths.append((old, reader.read_name()))
                if not reader.skip(", "):
                    break
        self.nodes += self.sizes[name] + len(graph.inputs) * len(paths)
        if self.nodes > MOST_RUN_NODES:
            reader.fail(f"the runs have more than {MOST_RUN_NODES:,} nodes", position[1])
        inputs: dict[str, tuple[str, int, str]] = {}
        if reader.skip(": "):
            while True:
                start = reader.pos
                own = reader.read_ref().name
                node = graph.by_name.get(own)
                if node is None or node.kind != "placeholder" or own in inputs:
                    reader.fail(f"{name!r} has no input %{own}, or it is given twice", start)
                reader.expect(" = ")
                inputs[own] = self._read_source()
                if not reader.skip(", "):
                    break
        is_forward = graph.kind != "backward"
        starts = not self.runs and not graph.eager and not cut.direct
        self.runs.append(
            _RunLine(
                graph, paths, inputs, None if starts or not is_forward else cut, module, position
            )
        )

    def _read_result(self) -> None:
        start = self.reader.pos
        label = self.reader.read_text()
        if label in self.results:
            self.reader.fail(f"{label!r} is given twice", start)
        self.reader.expect(" = ")
        self.results[label] = None if self.reader.skip("none") else self._read_source()

    def _read_inputs(self) -> tuple[str, ...]:
        reader, names = self.reader, dict[str, None]()
        while True:
            start = reader.pos
            name = reader.read_ref().name
            if name in names:
                reader.fail(f"%{name} is given twice", start)
            names[name] = None
            if not reader.skip(", "):
                return tuple(names)

    def _read_call(self) -> tuple[str, int]:
        name = self.reader.read_name()
        number = 1
        if self.reader.skip("["):
            number = int(self.reader.match(_NUMBER, "the number of a run"))
            self.reader.expect("]")
        return name, number

    def _read_source(self) -> tuple[str, int, str]:
        start = self.reader.pos
        name, number = self._read_call()
        self.reader.expect(" ")
        value = self.reader.read_ref().name
        if name in INPUT_OPS and number == 1:
            return name, 0, value
        graph = self.graphs.get(name)
        node = None if graph is None else graph.by_name.get(value)
        if node is None or node.kind == "output":
            self.reader.fail(f"the text has no value %{value} of a graph {name!r}", start)
        return name, number, value

    def _linked(self) -> tuple[Graph, ...]:
        order = _Order([run.graph for run in self.runs])
        calls: dict[str, list[StepCall]] = {name: [] for name in self.graphs}
        for number, run in enumerate(self.runs):
            links = order.inputs(number, run.paths)
            for name, source in run.inputs.items():
                links[name] = self._link(source, order, run.position)
                if links[name].call >= number:
                    row, pos = run.position
                    self.reader.fail(f"%{name} comes from a later run", pos, row)
            order.links[number] = links
            in_order = () if number else self.inputs
            calls[run.graph.name].append(
                StepCall(number, links, run.cut, run.module, order=in_order)
            )
        results = order.results()
        for label, given in self.results.items():
            results.pop(label, None)
            if given is not None:
                results[label] = self._link(given, order, (self.reader.row, 0))
        for name, graph in self.graphs.items():
            if not calls[name] or (
                (graph.counted or graph.eager) and graph.runs != len(calls[name])
            ):
                self.reader.fail(
                    f"{name!r} has {len(calls[name])} runs here, and {graph.runs} in its title",
                    0,
                    self.reader.row - 1,
                )
        self._give_results(calls, results)
        return tuple(replace(graph, calls=tuple(calls[n])) for n, graph in self.graphs.items())

    def _give_results(self, calls: dict[str, list[StepCall]], results: Mapping[str, Link]) -> None:
        """Add the results to the last call of each phase."""
        for phase in PHASES:
            numbers = [
                (call.number, name, k)
                for name, of_graph in calls.items()
                if phase_of(self.graphs[name]) == phase
                for k, call in enumerate(of_graph)
            ]
            if numbers:
                _, name, k = max(numbers)
                calls[name][k] = replace(calls[name][k], results=results)

    def _link(self, source: tuple[str, int, str], order: _Order, position: tuple[int, int]) -> Link:
        name, number, value = source
        if not number:
            return Link(OUTSIDE, value, name)
        runs = order.numbers.get(name, [])
        if number > len(runs):
            row, pos = position
            self.reader.fail(f"{name!r} has no run {number}", pos, row)
        return Link(runs[number - 1], value)
