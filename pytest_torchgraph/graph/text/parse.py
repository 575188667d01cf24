r"""Parser of the `.tgraph` text form. It evaluates no code, and rejects malformed text.

    document  = "torchgraph" version NL [origin NL] { NL graph } [NL links]
    origin    = "via" word | "torch" release | "detail" word | "digits" number, separated by ", "
    graph     = name [":" kind] ["@" level] ["given"] ["×" runs] "{" NL
                { graph | place | node | output | save } "}" NL
    place     = ( "parameters" | "buffers" | "constants" ) ["from" "%" name] NL
    node      = "%" name "=" op [ "[" string [", " string] "]" ] [ "(" args ")" ] [ ":" result ]
                suffix NL
              | "return" value suffix NL
              | "return [" NL { value "," NL } "]" suffix NL
    output    = "output" name "=" value NL
    save      = "save" "%" name NL
    suffix    = { "!" effect [ "%" name ] } [ "after" "%" name { "," "%" name } ] [ "in" string ]

A top-level graph named `eager_` plus a number, without a level in its title, is an eager graph. Its
level is "dispatch" and its default kind is "forward". A number of runs in its title is at least 2.

Versions:

- 2 adds eager graphs, and repeated modules written once. `expand` writes these modules out before
  this module reads the lines.
- 3 adds the graphs of several ranks (see `ranks`).
- 4 adds `output` lines, `given` graphs, runs of compiled graphs (0, or at least 2), the values of
  constants, the options of modules, and `digits`. In a graph of an older version these facts are
  unknown, not empty. Version 4 also adds inputs that are declared where they are used (see
  `inputs`), instances that give sizes or have their number inside a path component, and blocks of
  several stages (see `expand`).

`links` has the grammar of links, and `nodes` that of names, values and results. With `detail ops` a
graph has lines `count op` instead of nodes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

from ...errors import GraphFormatError
from ...ops.matching import LEVELS, Level
from ...words import MOST_DIGITS, one_line
from ..cost import with_savers
from ..digits import with_digits
from ..model import (
    GRAPH_KINDS,
    Arg,
    Detail,
    Graph,
    GraphKind,
    Node,
    Ref,
    iter_refs,
)
from ..program import Program
from .expand import expand_lines
from .format import (
    EAGER_KINDS,
    EAGER_NAME,
    EAGER_VERSION,
    FACTS_VERSION,
    GIVEN,
    RANKS_VERSION,
    TIMES,
    VERSION,
    VIA_LEVELS,
    Header,
)
from .inputs import PLACED, sort_inputs
from .links import LINKS, UNKNOWN, LinksReader
from .nodes import MAX_DEPTH, WORD, Declared, NodeReader, lines_of

_FIELD_VALUE = re.compile(r"[^\s,]+")
_DIGITS = re.compile(r"[0-9]{1,2}\Z")
_PLACE = re.compile(rf"({'|'.join(PLACED.values())})(?:( from )(?=%)|\Z)")
_ROLES = {word: role for role, word in PLACED.items()}
_CONFLICT = re.compile(r"(?:<<<<<<<|\|\|\|\|\|\|\||=======|>>>>>>>)(?: |\Z)")
"""A line of git's conflict markers; no line of a graph begins like this."""


def parse_document(text: str, room: list[int] | None = None) -> Program:
    """Parse a whole `.tgraph` text, folded or with one line a node.

    Args:
        room: see `expand_lines`.

    Raises:
        GraphFormatError: with line and column.
    """
    lines = lines_of(text)
    refuse_conflict(lines)
    expanded = expand_lines(lines, room)
    if expanded is None:
        return _Parser(lines).read_document()
    try:
        document = _Parser(expanded.lines).read_document()
    except GraphFormatError as error:
        raise expanded.located(error) from None
    return replace(document, folded=True)


def refuse_conflict(lines: list[str]) -> None:
    """Reject a text with git conflict markers.

    Raises:
        GraphFormatError: at the first conflict marker.
    """
    # Any other text is rejected for its first line.
    if not lines[0].startswith(("torchgraph ", "<<<<<<<")):
        return
    for row, line in enumerate(lines):
        if line[:1] in "<|=>" and _CONFLICT.match(line):
            raise GraphFormatError(
                f"merge conflict at {line[:20]!r}: take the file of one side (`git checkout "
                "--ours FILE` or `--theirs`), or store the graph again with --torchgraph-update",
                row + 1,
                1,
            )


class _Title(NamedTuple):
    """The first line of a graph. The fields have the names of the attributes of `Graph`."""

    name: str
    kind: GraphKind
    level: Level
    eager: bool
    runs: int
    given: bool


@dataclass(slots=True)
class _Body:
    """The lines of one graph that have been read so far.

    Attributes:
        nodes: its nodes; the last is the output if `returned` is set.
        names: names of the nodes.
        output: paths and values of its `output` lines.
        saved: values of its `save` lines.
        subgraphs: its subgraphs, which precede the nodes.
        subgraph_names: names of the subgraphs.
        returned: True after its `return` line.
        declared: inputs that are declared where they are used, each with the number of nodes before
            the node that declares it.
        places: places of these inputs. Each has the number of nodes before it, the role, the name
            of its first input ("" for the first input of the role), and the index of its line.
    """

    nodes: list[Node] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    output: dict[str, Arg] = field(default_factory=dict)
    saved: list[Ref] = field(default_factory=list)
    subgraphs: list[Graph] = field(default_factory=list)
    subgraph_names: set[str] = field(default_factory=set)
    returned: bool = False
    declared: list[tuple[Declared, int]] = field(default_factory=list)
    places: list[tuple[int, str, str, int]] = field(default_factory=list)


class _Parser(NodeReader):
    """Reader of whole lines. Each method starts at its element and stops after it.

    Call `read_document` once.

    Attributes:
        version: version in the first line.
        runs: run count of each graph read so far, by name.
        at_use: True if a graph declares inputs where they are used.
    """

    def __init__(self, lines: list[str]):
        super().__init__(lines)
        self.runs: dict[str, int] = {}
        self.at_use = False

    # -- document --------------------------------------------------------------------------------

    def read_document(self) -> Program:
        """Read the whole text."""
        if not self.skip("torchgraph "):
            self.fail(f"not a graph: the first line must be 'torchgraph {FACTS_VERSION}'")
        version = self.match(re.compile(r"\d{1,9}"), "a version")
        # The line with the mesh follows the first line, or the origin.
        has_mesh = int(version) == FACTS_VERSION and any(
            line.startswith("mesh ") for line in self.lines[1:3]
        )
        if int(version) == RANKS_VERSION or has_mesh:
            self.fail(
                "the file contains the graphs of several ranks, not of a single capture: use one "
                "rank, such as pytest_torchgraph.load(path)[0]"
            )
        if int(version) not in (VERSION, EAGER_VERSION, FACTS_VERSION):
            self.fail(
                f"version {version} is not supported, only {VERSION} to {FACTS_VERSION}: upgrade "
                "pytest-torchgraph, or store the graph again with --torchgraph-update"
            )
        self.version = int(version)
        self.allows_facts = self.version >= FACTS_VERSION
        self.expect_end_of_line()
        self.next_line()
        header = self.read_header()
        self.has_no_floats = header.digits == 0
        graphs: list[Graph] = []
        counts: list[tuple[str, dict[str, int]]] = []
        default = VIA_LEVELS.get(header.via)
        while self.text or self.next_line(skip_blank=True):
            if not self.text:  # the last line
                break
            if self.allows_facts and graphs and self.text in (LINKS, UNKNOWN):
                graphs = self.read_links(graphs)
            elif header.detail == "ops":
                counts.append(self.read_op_counts(default))
            else:
                graph = self.read_graph(default, 0)
                graphs.append(with_digits(graph, header.digits))
            self.next_line()
        if not graphs and not counts:
            self.fail("the file contains no graph: it is empty or truncated")
        return Program(
            header, tuple(graphs), tuple(counts), self.runs, self.version, folded=self.at_use
        )

    def read_links(self, graphs: list[Graph]) -> list[Graph]:
        """Read the links of a step, which end the text. Return the graphs with their calls."""
        if self.text == UNKNOWN:
            return [replace(graph, calls=()) for graph in graphs]
        return [*LinksReader(self, with_savers(graphs)).read()]

    def read_header(self) -> Header:
        """Read the second line and move to the next line. Return the default for a blank line."""
        if not self.text:
            return Header()
        fields: dict[str, str] = {}
        while True:
            start = self.pos
            key = self.match(WORD, "'via', 'torch' or 'detail'")
            if key in fields:
                self.fail(f"{key!r} occurs twice in this line: remove one", start)
            # Only version 4 has `digits`.
            if key not in ("via", "torch", "detail", *["digits"] * self.allows_facts):
                self.fail(f"expected 'via', 'torch' or 'detail', found {key!r}", start)
            self.expect(" ")
            fields[key] = one_line(self.match(_FIELD_VALUE, "a word"))
            if not self.skip(", "):
                break
        self.expect_end_of_line()
        self.next_line()
        detail = fields.get("detail", "dataflow")
        if detail not in ("ops", "dataflow", "full"):
            self.fail(f"unknown detail {detail!r}: use ops, dataflow, full")
        via, release = fields.get("via", ""), fields.get("torch", "")
        return Header(via, release, cast(Detail, detail), self.read_digits(fields.get("digits")))

    def read_digits(self, text: str | None) -> int | None:
        if text is None:
            return None
        if not _DIGITS.match(text) or int(text) > MOST_DIGITS:
            self.fail(f"'digits' must be a number from 0 to {MOST_DIGITS}, not {text!r}", 0)
        return int(text)

    def read_title(self, default: Level | None, *, inside: bool = False) -> _Title:
        """Read the first line of a graph.

        Args:
            default: level of a title without a level.
            inside: True for a graph inside another graph, which is never eager.
        """
        start = self.pos
        name = self.read_name()
        kind = self.match(WORD, "a kind of graph") if self.skip(": ") else ""
        eager = EAGER_NAME.match(name) is not None and not inside and not self.at(" @ ")
        kind = kind or (EAGER_KINDS[0] if eager else name)
        kinds = EAGER_KINDS if eager else GRAPH_KINDS
        if kind not in kinds:
            noun = "eager graph" if eager else "graph"
            self.fail(f"unknown kind of {noun} {kind!r} (known: {', '.join(kinds)})")
        level: str = "dispatch" if eager else default or ""
        if self.skip(" @ "):
            level = self.match(WORD, "a level")
        if level not in LEVELS:
            self.fail(f"unknown level {level!r}: use {', '.join(LEVELS)}")
        if eager and self.version < EAGER_VERSION:
            self.fail(
                f"{name!r} is the name of an eager graph, which version {self.version} does not "
                f"have: write 'torchgraph {FACTS_VERSION}' in the first line, or a level after the "
                f"name, such as '{name}: forward @ aot'",
                start,
            )
        given = self.allows_facts and not eager and self.skip(f" {GIVEN}")
        counted = eager or (self.allows_facts and not inside)
        runs = self.read_run_count(name, eager=eager, counted=counted)
        self.expect(" {")
        self.expect_end_of_line()
        if counted:
            self.runs[name] = runs
        return _Title(name, kind, level, eager, runs, given)

    def read_run_count(self, name: str, *, eager: bool, counted: bool) -> int:
        """Read the run count of a graph; 1 if the title has no count."""
        start = self.pos + 1
        if not self.skip(f" {TIMES} "):
            return 1
        if not counted:
            why = f"version {self.version} allows it only for eager graphs"
            if self.allows_facts:
                why = "it is the body of a higher-order op"
            self.fail(
                f"{name!r} cannot have a run count ({why}): remove '{TIMES}' and the number", start
            )
        runs = int(self.match(re.compile(r"[0-9]{1,18}"), "a number of runs"))
        # A compiled graph may not have run, which 0 says. An eager graph exists only if it ran.
        if runs < 2 and (eager or runs):
            advice = "remove the number, because 1 is the default" if runs else "remove the graph"
            self.fail(f"the run count must be at least 2, not {runs}: {advice}", start)
        return runs

    def read_op_counts(self, default: Level | None) -> tuple[str, dict[str, int]]:
        """Read a graph with `count op` lines."""
        name = self.read_title(default).name
        counts: dict[str, int] = {}
        while self.next_line() and not self.at_end():
            if self.skip("}"):
                self.expect_end_of_line()
                return name, counts
            self.expect("  ")
            number = int(self.match(re.compile(r"\d{1,9}"), "a count"))
            self.expect(" ")
            op = self.read_op()
            if op in counts:
                self.fail(f"{op} is counted twice")
            counts[op] = number
            self.expect_end_of_line()
        self.fail("the graph has no closing '}': the file is truncated")

    # -- graphs ----------------------------------------------------------------------------------

    def read_graph(self, default: Level | None, depth: int) -> Graph:
        """Read a graph and its subgraphs.

        Args:
            default: level of a title without a level.
            depth: number of enclosing graphs.
        """
        if depth > MAX_DEPTH:
            self.fail_too_deep("graphs")
        title = self.read_title(default, inside=depth > 0)
        name, level = title.name, title.level
        closing = "  " * depth + "}"
        indent = "  " * (depth + 1)
        body = _Body()
        while self.next_line() and not self.at_end():
            if self.skip(closing):
                self.expect_end_of_line()
                if not body.returned:
                    self.fail(f"graph {name!r} has no 'return'")
                if body.declared or body.places:
                    self.place_inputs(body)
                # Without an `output` line, such a graph returns its outputs: `()`, not unknown.
                facts = self.allows_facts and depth == 0 and not title.eager
                returns = facts and title.kind in ("forward", "inference")
                return Graph(
                    tuple(body.nodes),
                    name,
                    title.kind,
                    level,
                    tuple(body.saved),
                    tuple(body.subgraphs),
                    eager=title.eager,
                    runs=title.runs,
                    counted=facts,
                    output=tuple(body.output.items()) if returns or body.output else None,
                    given=title.given,
                )
            self.expect(indent)
            if self.skip("save "):
                self.read_save_line(body)
            elif self.allows_facts and depth == 0 and self.skip("output "):
                self.read_output_line(body)
            elif body.returned:
                self.fail("expected 'save' or '}' after 'return'")
            elif self.at("%") or self.at("return "):
                self.read_node_line(body)
            elif self.allows_facts and (place := _PLACE.match(self.text, self.pos)) is not None:
                self.pos = place.end()
                name_of_first = self.read_ref().name if place[2] else ""
                body.places.append((len(body.nodes), _ROLES[place[1]], name_of_first, self.row))
            elif body.nodes:
                self.fail(f"expected a node, 'return' or '}}', found {self.describe_rest()}")
            else:  # bodies come before the nodes
                self.read_subgraph(body, level, depth + 1)
            self.expect_end_of_line()
        self.fail(f"graph {name!r} has no closing '}}': the file is truncated")

    def place_inputs(self, body: _Body) -> None:
        """Insert the inputs that are declared where they are used at their places."""
        self.at_use = True
        # The inputs of each place, by the number of nodes before it and the index of its line.
        inserted: dict[tuple[int, int], list[Node]] = {}
        for role, word in PLACED.items():
            own = {d.node.name: (d, position) for d, position in body.declared if d.node.op == role}
            order = dict.fromkeys(sort_inputs([(d.node.name, d.after) for d, _ in own.values()]))
            for declared, _ in own.values():
                # `sort_inputs` leaves such an input out, with the inputs that follow it.
                if declared.after and declared.node.name not in order:
                    problem = f"'after %{declared.after}' names no {role} that is declared at its"
                    problem += f" first use, or %{declared.node.name} follows itself"
                    self.fail(problem, declared.pos, declared.row)
            place_of: dict[str, tuple[int, int]] = {}
            for position, place_role, first, row in body.places:
                if place_role == role:
                    name = first or next(iter(order), "")
                    if name not in own or name in place_of:
                        self.fail(
                            "this line marks the place of inputs that are declared at their first "
                            f"use, but no {role} is left to be placed here: remove this line",
                            0,
                            row,
                        )
                    place_of[name] = position, row
            # Each place has the inputs from its first one up to the first one of the next.
            place: tuple[int, int] | None = None
            for name in order:
                declared, position = own[name]  # of the node that declares it
                place = place_of.get(name, place)
                if place is None:
                    self.fail(
                        f"%{name} is declared here, at its first use, but the list of inputs has "
                        f"no line {word!r} for it: add it where the {word} belong",
                        declared.pos,
                        declared.row,
                    )
                if position < place[0]:
                    problem = f"%{name} is used before its line {word!r}"
                    self.fail(problem, declared.pos, declared.row)
                inserted.setdefault(place, []).append(declared.node)
        nodes: list[Node] = []
        copied = 0
        for (position, _), own_nodes in sorted(inserted.items()):
            nodes += [*body.nodes[copied:position], *own_nodes]
            copied = position
        body.nodes = nodes + body.nodes[copied:]

    def read_output_line(self, body: _Body) -> None:
        start = self.pos - len("output ")
        path = self.read_name()
        self.expect(" = ")
        value = self.read_value()
        for ref in iter_refs(value):
            self.check_defined(ref, body, start)
        if not body.returned or body.saved:
            self.fail("an 'output' line must be after 'return' and before 'save'", start)
        if path in body.output:
            self.fail(f"output {path!r} is given twice", start)
        body.output[path] = value

    def read_save_line(self, body: _Body) -> None:
        start = self.pos - len("save ")
        ref = self.read_ref()
        self.check_defined(ref, body, start)
        if not body.returned:
            self.fail("'save' before 'return'", start)
        if ref.name == body.nodes[-1].name:
            self.fail("'save' of the output itself", start)
        body.saved.append(ref)

    def read_node_line(self, body: _Body) -> None:
        """Read a node or `return`. Fail if it refers to a node that no earlier line defines."""
        start = self.pos
        names = body.names
        self.subgraphs = body.subgraph_names
        declared: list[Declared] = []
        if self.skip("return "):
            node = self.read_output()
        else:
            self.declared = declared if self.allows_facts else None
            node = self.read_node()
            self.declared = None
            for declared_input in declared:
                if declared_input.node.name in names:
                    self.fail(f"%{declared_input.node.name} is defined twice", start)
                names.add(declared_input.node.name)
                body.declared.append((declared_input, len(body.nodes)))
        for ref in iter_refs((node.args, node.kwargs, node.after)):
            self.check_defined(ref, body, start)
        for effect in node.effects:
            if effect.target is not None:
                self.check_defined(effect.target, body, start)
        if node.name in names:
            self.fail(f"%{node.name} is defined twice", start)
        self.check_levels(node.module, start)
        self.check_levels(node.target, start)
        names.add(node.name)
        body.nodes.append(node)
        body.returned = node.kind == "output"

    def read_subgraph(self, body: _Body, level: Level, depth: int) -> None:
        start = self.pos
        graph = self.read_graph(level, depth)
        if graph.name in body.subgraph_names:
            self.fail(f"two subgraphs are named {graph.name!r}", start)
        body.subgraph_names.add(graph.name)
        body.subgraphs.append(graph)

    def check_defined(self, ref: Ref, body: _Body, pos: int) -> None:
        """Fail for a reference to a node that no earlier line of the graph defines."""
        if ref.name not in body.names:
            self.fail(f"%{ref.name} is used before it is defined", pos)
