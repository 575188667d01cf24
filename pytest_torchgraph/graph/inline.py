"""Bodies in place of their calls: copies of their nodes in one graph, under unique names.

Whoever needs the nodes of a body where its call is, a divided step (`step`) or equal blocks of
which some share a body (`blocks`), gets them here. Counts, costs and values follow bodies without
copies, see `census` and `dataflow`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ..ops.views import shared_argument
from .census import (
    Homes,
    Move,
    bodies_of,
    is_projection_node,
    moved,
    operands_of,
    outputs_of,
)
from .higher_order import body_names
from .model import Arg, Graph, Node, Ref, SubgraphRef, map_node, substituting

INVOKE = "higher_order.invoke_subgraph"
"""Op that calls the body of a region."""


class Copies:
    """Copies of nodes of several graphs, under names that are unique among all of them.

    Args:
        names: names that no copy takes.

    Attributes:
        nodes: the copies.
        subgraphs: copies of the bodies that they call.
    """

    def __init__(self, names: Iterable[str] = ()):
        self.nodes: list[Node] = []
        self.subgraphs: list[Graph] = []
        self._taken = {"output", *names}
        self._counts: Counter[str] = Counter()

    def claim(self, name: str) -> str:
        """Return a name that nothing has, and keep it."""
        unique = name
        while unique in self._taken:
            self._counts[name] += 1
            unique = f"{name}.{self._counts[name]}"
        self._taken.add(unique)
        return unique

    def add(
        self,
        graph: Graph,
        values: dict[str, Arg],
        name_of: Callable[[str], str],
        module_of: Callable[[str], str],
        *,
        regions: bool = False,
        added: Callable[[Node, Node], None] = lambda node, copy: None,
    ) -> None:
        """Add copies of the ops of a graph.

        Args:
            graph: the graph.
            values: value of each input, by name. The ops are added to it. A value that keeps its
                name is left out, so that what uses it needs no copy.
            name_of: returns the name of the copy of a node.
            module_of: returns the module path of a copy.
            regions: also put the bodies of regions in place of their calls.
            added: takes each op and its copy.
        """
        kept = {body.name: self.claim(body.name) for body in graph.subgraphs}
        self.subgraphs += [replace(body, name=kept[body.name]) for body in graph.subgraphs]
        value_of = substituting(values)
        homes = Homes(graph) if regions else None
        results: dict[str, list[Arg]] = {}

        def change(value: Arg) -> Arg:
            return SubgraphRef(kept[value.name]) if type(value) is SubgraphRef else value_of(value)

        for node in graph.nodes:
            if node.kind in ("placeholder", "output"):
                continue
            body = region_of(graph, node) if homes else None
            if body is not None and homes is not None:
                operands = map(change, operands_of(node))
                inside = dict(zip((n.name for n in body.inputs), operands, strict=True))
                move = homes.move(node, body) or ("", "")  # which moves nothing

                def inner_name(name: str, move: Move = move) -> str:
                    return self.claim(moved(name, move))

                def inner_module(path: str, move: Move = move) -> str:
                    return moved(path, move)

                self.add(body, inside, inner_name, inner_module, regions=True, added=added)
                results[node.name] = [*map(substituting(inside), outputs_of(body))]
            elif (
                results
                and node.refs
                and node.refs[0] in results
                and is_projection_node(graph, node)
            ):
                values[node.name] = results[node.refs[0]][node.args[1]]
            else:
                name = name_of(node.name)
                if name != node.name:
                    values[node.name] = Ref(name)
                copy = map_node(node, change, name=name, module=module_of(node.module))
                self.nodes.append(copy)
                added(node, copy)


def region_of(graph: Graph, node: Node) -> Graph | None:
    """Return the body of a region that a node calls on as many values as it takes, or `None`."""
    bodies = bodies_of(graph, node) if node.op == INVOKE else []
    whole = len(bodies) == 1 and len(operands_of(node)) == len(bodies[0].inputs)
    return bodies[0] if whole else None


def inline_regions(graph: Graph) -> Graph:
    """Return the graph with each region's call replaced by its ops."""
    if not any(node.op == INVOKE for node in graph.nodes):
        return graph
    copies = Copies(node.name for node in graph.nodes)
    values: dict[str, Arg] = {}
    copies.add(graph, values, str, str, regions=True)
    used = {name for node in copies.nodes for name in body_names(node)}
    ends = [node for node in graph.nodes if node.kind == "output"]
    change = substituting(values)
    return replace(
        graph,
        nodes=(*graph.inputs, *copies.nodes, *(map_node(node, change) for node in ends)),
        subgraphs=tuple(body for body in copies.subgraphs if body.name in used),
        saved=tuple(ref for ref in map(change, graph.saved) if isinstance(ref, Ref)),
    )


def with_order_of_writes(nodes: Sequence[Node], run_of: Callable[[Node], int]) -> list[Node]:
    """Return nodes of several runs, each `after` the write of an earlier run that it must follow.

    A graph has the order of its own writes only. Without it, `y.add_(1)` and `y.mul_(2)` in two
    runs would have no order.

    Args:
        nodes: the nodes, in the order in which they ran.
        run_of: returns the number of a node's run.
    """
    if not any(effect.target for node in nodes for effect in node.effects):
        return [*nodes]
    ordered: list[Node] = []
    owners: dict[str, str] = {}  # of the storage of each value, if another value made it
    made: dict[str, int] = {}  # position of each value, 0 for an input
    # The last write by owner: the writer, its position, and the value through which it wrote.
    writers: dict[str, tuple[str, int, str]] = {}
    for position, node in enumerate(nodes):
        refs, run = node.refs, run_of(node)
        after = dict.fromkeys(node.after)
        for name in refs:
            # A storage without a write has the position -1, which is before every value.
            writer, written, value = writers.get(owners.get(name, name), ("", -1, ""))
            if writer in refs or written < made.get(name, 0):  # then the node follows it anyway
                continue
            # A run does not know that two of its inputs share a storage.
            if run_of(nodes[written]) != run or value != name:
                after[Ref(writer)] = None
        ordered.append(node if len(after) == len(node.after) else replace(node, after=tuple(after)))
        made[node.name] = position
        namespace, _, name = node.op.partition(".")
        # A graph of Dynamo calls `torch.relu_`, whose storage `shared_argument` knows as ATen's op.
        op = f"aten.{name}" if namespace in ("Tensor", "torch") else node.op
        is_item = op == "operator.getitem"  # of a list, perhaps of views
        shared = 0 if is_item else shared_argument(op)
        base = node.args[shared] if shared is not None and shared < len(node.args) else None
        # An item of a list that is no view is a value of its own.
        if isinstance(base, Ref) and (base.name in owners or not is_item):
            owners[node.name] = owners.get(base.name, base.name)
        for effect in node.effects:
            if effect.target is not None:
                written_to = effect.target.name
                writers[owners.get(written_to, written_to)] = node.name, position, written_to
    return ordered
