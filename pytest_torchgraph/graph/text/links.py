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
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

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
    """Yield the lines of a step's links; none if the step needs none, or if nothing is known.

    A watch records no calls, which is written as `UNKNOWN`. Links and results that the reader would
    take as the default are left out.
    """
    if not needs_links(graphs) or any(graph.calls is None for graph in graphs):
        return
    calls = calls_of(graphs)
    yield ""
    if calls is None:
        yield UNKNOWN
        return
    yield LINKS
    order = _Order()
    if calls[0][0].order:
        yield f"  inputs {', '.join(f'%{format_name(name)}' for name in calls[0][0].order)}"
    for call, graph in calls:
        if call.cut is not None and call.cut.direct and call.cut.graph_break is not None:
            yield _break_line(call.cut.graph_break)
        paths = renamed_paths(graph, call.inputs)
        default = order.defaults(graph, paths)
        given = {**default, **call.inputs}
        links = {node.name: given[node.name] for node in graph.inputs if node.name in given}
        order.add(graph, links)  # also makes the label of the run
        line = f"  run {order.labels[-1]}"
        line += f" in {format_name(call.module)}" if call.module else ""
        if paths:
            pairs = [f"{format_name(old)} as {format_name(new)}" for old, new in paths]
            line += f" with {', '.join(pairs)}"
        inputs = [
            f"%{format_name(name)} = {_source(link, order.labels)}"
            for name, link in links.items()
            if link != default.get(name)
        ]
        yield line + (f": {', '.join(inputs)}" if inputs else "")
    results = {label: link for call, _ in calls for label, link in call.results.items()}
    expected = order.results()
    for label in {**expected, **results}:
        link = results.get(label)
        if link != expected.get(label):
            source = "none" if link is None else _source(link, order.labels)
            yield f"  result {quote(label)} = {source}"


def _source(link: Link, labels: Sequence[str]) -> str:
    """Format a link as a `source`; `labels` are those of the runs so far."""
    origin = link.role if link.call == OUTSIDE else labels[link.call]
    return f"{origin} %{format_name(link.name)}"


def _break_line(cause: GraphBreak) -> str:
    function = f" in {format_name(cause.function)}" if cause.function else ""
    return f"  break{function}: {quote(cause.kind.removeprefix(SKIPPED))}"


class _Order:
    """The runs of a step so far, in program order, and what their links are by default.

    Attributes:
        graphs: the graph of each run.
        links: the links of each run.
        labels: the text that stands for each run.
        numbers: the runs of each graph, by its name.
    """

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self.links: list[Mapping[str, Link]] = []
        self.labels: list[str] = []
        self.numbers: defaultdict[str, list[int]] = defaultdict(list)

    def add(self, graph: Graph, links: Mapping[str, Link]) -> None:
        """Add a run."""
        runs = self.numbers[graph.name]
        runs.append(len(self.graphs))
        self.graphs.append(graph)
        self.links.append(links)
        self.labels.append(format_name(graph.name) + (f"[{len(runs)}]" if len(runs) > 1 else ""))

    def defaults(self, graph: Graph, paths: Sequence[tuple[str, str]]) -> dict[str, Link]:
        """Return the default link of each input of the next run, a run of `graph`.

        A constant has none, unless its name has that of an earlier graph: it is the graph's own.

        Args:
            graph: the graph.
            paths: module paths that the run has in place of the graph's; see `renamed_paths`.
        """
        number = len(self.graphs)
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
        """Return the default link of each result of the step, by label; see `StepCall.results`.

        The outputs are what the last forward returns. A backward returns one gradient for each
        input of its forward, in their order.
        """
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
            # A backward in an edited text may return more or fewer values than that.
            for node, value in zip(self.graphs[forward].inputs, values, strict=False):
                link = self.links[forward].get(node.name)  # a constant has none
                if link is not None and link.call == OUTSIDE and isinstance(value, Ref):
                    results[f"grad {link.name}"] = self._resolve(number, value.name)
        return results

    def _resolve(self, number: int, name: str) -> Link:
        """Return the source of a value that a run returns: an input of the run is not its own."""
        return self.links[number].get(name) or Link(number, name)


class LinksReader:
    """Reads the lines after `links`.

    Call `read` once. The other methods each read an element, and add it to the attributes.

    Args:
        reader: the reader of the text, at the line `links`.
        graphs: the graphs of the text.

    Attributes:
        sizes: number of nodes of each graph, by its name.
        order: the runs so far.
        calls: the calls of each graph, by its name.
        results: the `result` lines, by label; `None` for "none".
        inputs: names in the line `inputs`, in order.
        nodes: number of nodes of all runs so far; see `MOST_RUN_NODES`.
    """

    def __init__(self, reader: NodeReader, graphs: Sequence[Graph]):
        self.reader = reader
        self.graphs = {graph.name: graph for graph in graphs}
        self.sizes = {graph.name: count_nodes(graph) for graph in graphs}
        self.order = _Order()
        self.calls: dict[str, list[StepCall]] = {name: [] for name in self.graphs}
        self.results: dict[str, Link | None] = {}
        self.inputs: dict[str, None] = {}
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
            elif not self.order.graphs and not self.inputs and reader.skip("inputs "):
                reader.read_items(self._read_input)
            else:
                reader.fail(f"expected 'run', 'break' or 'result', found {reader.describe_rest()}")
            reader.expect_end_of_line()
        for name, graph in self.graphs.items():
            runs = len(self.calls[name])
            if not runs or ((graph.counted or graph.eager) and graph.runs != runs):
                problem = f"{name!r} has {runs} runs here, and {graph.runs} in its title"
                reader.fail(problem, 0, reader.row - 1)
        self._give_results()
        return tuple(replace(graph, calls=tuple(self.calls[n])) for n, graph in self.graphs.items())

    def _read_break(self) -> GraphBreak:
        reader = self.reader
        function = reader.read_name() if reader.skip(" in ") else ""
        reader.expect(": ")
        kind = reader.read_text()
        # The other facts of a break are not stored.
        return GraphBreak(kind, "", "", "", 0, "", function, (), "", "")

    def _read_run(self, cut: Cut) -> None:
        """Read a run and add its call. `cut` is the cut before it, unless the run begins a step."""
        reader, order = self.reader, self.order
        start = reader.pos
        name, number = self._read_call()
        graph = self.graphs.get(name)
        if graph is None or number != len(order.numbers[name]) + 1:
            reader.fail(f"the text has no graph {name!r}, or its runs are not in order", start)
        module = reader.read_name() if reader.skip(" in ") else ""
        paths = reader.read_items(self._read_paths) if reader.skip(" with ") else []
        self.nodes += self.sizes[name] + len(graph.inputs) * len(paths)
        if self.nodes > MOST_RUN_NODES:
            reader.fail(f"the runs have more than {MOST_RUN_NODES:,} nodes", start)
        links = order.defaults(graph, paths)
        if reader.skip(": "):
            given: set[str] = set()
            reader.read_items(lambda: self._read_link(graph, given, links))
        # Nothing divides the step before a first compiled run, unless a break is written there.
        is_start = not order.graphs and not graph.eager and not cut.direct
        call = StepCall(
            len(order.graphs),
            links,
            cut=None if is_start or graph.kind == "backward" else cut,
            module=module,
            order=() if order.graphs else tuple(self.inputs),
        )
        self.calls[name].append(call)
        order.add(graph, links)

    def _read_paths(self) -> tuple[str, str]:
        old = self.reader.read_name()
        self.reader.expect(" as ")
        return old, self.reader.read_name()

    def _read_link(self, graph: Graph, given: set[str], links: dict[str, Link]) -> None:
        start = self.reader.pos
        name = self.reader.read_ref().name
        node = graph.by_name.get(name)
        if node is None or node.kind != "placeholder" or name in given:
            self.reader.fail(f"{graph.name!r} has no input %{name}, or it is given twice", start)
        given.add(name)
        self.reader.expect(" = ")
        source = self._read_source()
        # Files of earlier versions name the first of equal views of one value, which are equal.
        if not self._is_equal_view(source, links.get(name)):
            links[name] = source

    def _is_equal_view(self, source: Link, own: Link | None) -> bool:
        """Return True if the link of a file is to an op equal to that of the default link."""
        if own is None or own.call == OUTSIDE or own.call != source.call:
            return False
        nodes = self.order.graphs[own.call].by_name
        # The input `forward:add.1` is `add` of a second run, which has no node of the name.
        one, other = nodes.get(own.name), nodes[source.name]
        if one is None or not one.is_call:
            return False
        return (one.op, one.args, one.kwargs) == (other.op, other.args, other.kwargs)

    def _read_result(self) -> None:
        start = self.reader.pos
        label = self.reader.read_text()
        if label in self.results:
            self.reader.fail(f"{label!r} is given twice", start)
        self.reader.expect(" = ")
        self.results[label] = None if self.reader.skip("none") else self._read_source()

    def _read_input(self) -> None:
        start = self.reader.pos
        name = self.reader.read_ref().name
        if name in self.inputs:
            self.reader.fail(f"%{name} is given twice", start)
        self.inputs[name] = None

    def _read_call(self) -> tuple[str, int]:
        """Read a graph's name and the number of its run, counted from 1."""
        name = self.reader.read_name()
        number = 1
        if self.reader.skip("["):
            number = int(self.reader.match(_NUMBER, "the number of a run"))
            self.reader.expect("]")
        return name, number

    def _read_source(self) -> Link:
        start = self.reader.pos
        name, number = self._read_call()
        self.reader.expect(" ")
        value = self.reader.read_ref().name
        if name in INPUT_OPS and number == 1:  # a role, which looks like the first run of a graph
            return Link(OUTSIDE, value, name)
        runs = self.order.numbers[name]  # empty for an unknown graph
        node = self.graphs[name].by_name.get(value) if number <= len(runs) else None
        if node is None or node.kind == "output":
            problem = f"no earlier run {number} of a graph {name!r} has a value %{value}"
            self.reader.fail(problem, start)
        return Link(runs[number - 1], value)

    def _give_results(self) -> None:
        """Add the results to the last call of each phase."""
        given = {**self.order.results(), **self.results}
        results = {label: link for label, link in given.items() if link is not None}
        for phase in PHASES:
            of_phase = [n for n, graph in enumerate(self.order.graphs) if phase_of(graph) == phase]
            if of_phase:
                calls = self.calls[self.order.graphs[of_phase[-1]].name]
                calls[-1] = replace(calls[-1], results=results)
