"""The blocks of a graph: kinds of equal blocks, differences of odd blocks, and inlined bodies.

A block is a module whose path matches a glob, in which `*` is one component. The graph of a block
consists of the ops of the module and its submodules. Its inputs are the values from outside. Its
outputs are the results that the block does not use itself.

A step that graph breaks divide is read as one. Dynamo shares the body of a region between several
calls, but inlines a body that is called once. Shared bodies are inlined here too, so that blocks
that compute the same are equal.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ..errors import CaptureError
from ..words import grouped
from .census import is_projection_node, moved
from .diff import holds, instances_of, natural_key
from .higher_order import body_names
from .inline import inline_regions
from .model import Arg, Graph, Node, Ref, map_node, phase_of, substituting
from .module_paths import common_path
from .select import NO_PATHS, ancestors, module_hint, nodes_of, path_prefix
from .step import joined

if TYPE_CHECKING:
    from .diff import GraphDiff

_SEED = "prims.inductor_lookup_seed.default"
"""Op that selects a dropout's seed from the seeds of the whole graph.

It becomes an input of the block, because the index of the seed differs from block to block.
"""
_OWNED = ("parameter", "buffer")
_SUMS = ("aten.add.Tensor", "aten.add_.Tensor")


@dataclass(frozen=True, slots=True)
class BlockKind:
    """Blocks of a model with equal graphs.

    Attributes:
        members: module paths, in natural order.
        graph: the ops of the first member. If graph breaks divide them among several graphs of a
            watch, only the ops in the first of these graphs.
        diff: the difference from the most common kind; `None` for that kind.
        parts: the ops of the first member in each graph, in program order.
    """

    members: tuple[str, ...]
    graph: Graph
    diff: GraphDiff | None = None
    parts: tuple[Graph, ...] = field(default=(), repr=False)


def match_modules(paths: Iterable[str], glob: str) -> list[str]:
    """Return the module paths that match a glob, in natural order.

    Args:
        paths: module paths.
        glob: a glob in which each component matches one component of a path.

    Raises:
        TypeError: if the glob is not a string.
        ValueError: if it matches fewer than two modules.
    """
    if not isinstance(glob, str):
        raise TypeError(f"{glob!r} is not a glob of module paths: pass a string such as 'layers.*'")
    known_paths = set(paths)
    members = sorted((path for path in known_paths if _matches(path, glob)), key=natural_key)
    if not members:
        counts = Counter(re.sub(r"\b\d+\b", "*", path) for path in known_paths)
        globs = sorted((form for form, count in counts.items() if count > 1), key=len)
        hint = module_hint(glob, globs, globs) or (
            "no two paths differ only in a number" if known_paths else NO_PATHS
        )
        raise ValueError(f"no module matches {glob!r} (* is one component of a path): {hint}")
    if len(members) == 1:
        raise ValueError(
            f"{glob!r} matches only one module, {members[0]}, so there is nothing to compare: pass "
            "a glob of all blocks, such as 'layers.*'"
        )
    return members


def _matches(path: str, glob: str) -> bool:
    parts, patterns = path.split("."), glob.split(".")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def lists_of(graphs: Sequence[Graph]) -> list[str]:
    """Return the globs of the outermost module lists with at least two members: `"layers.*"`."""
    counts: Counter[str] = Counter()
    paths = _module_paths(graphs)
    # The last of the instances around a path is the outermost.
    for instance in {instances[-1] for instances in map(instances_of, paths) if instances}:
        parent, _, _ = instance.rpartition(".")
        counts[f"{parent}.*" if parent else "*"] += 1
    return sorted(glob for glob, count in counts.items() if count > 1)


def kinds_of(
    graphs: Sequence[Graph], glob: str, *, backward: bool = False, explained: bool = True
) -> tuple[BlockKind, ...]:
    """Return the kinds of blocks in graphs, most common first.

    Args:
        graphs: the graphs of a step.
        glob: see `match_modules`.
        backward: True to also compare the backward.
        explained: False omits the differences, which take the most time to compute.

    Raises:
        TypeError, ValueError: see `match_modules`.
        CaptureError: if a body of a higher-order op runs ops of several blocks.
    """
    from .diff import diff_graphs

    graphs = [
        inline_regions(graph)
        for graph in joined(graphs).graphs
        if phase_of(graph) in ("forward", "backward" if backward else "forward")
    ]
    members = match_modules(_module_paths(graphs), glob)
    sides = [_BlockSide(graph, glob) for graph in graphs]
    # All blocks get the names of the first block, because parameters are paired by name.
    first = members[0]
    groups = grouped((_block_graphs(sides, member, first), member) for member in members)
    # Equally common kinds keep their order.
    ordered = sorted(groups.values(), key=lambda group: -len(group))
    common = ordered[0][0]
    kinds = []
    for group in ordered:
        parts = _block_graphs(sides, group[0], group[0])
        diff = None
        # Both sides have the names of the odd block, which the difference is about.
        if explained and group[0] != common:
            diff = _drop_inputs_and_outputs(
                diff_graphs(_block_graphs(sides, common, group[0]), parts)
            )
        kinds.append(BlockKind(tuple(group), parts[0], diff, parts))
    return tuple(kinds)


def _drop_inputs_and_outputs(diff: GraphDiff) -> GraphDiff:
    """Return a difference without the block's inputs and outputs, which follow from its ops."""
    edits = []
    for finding in diff.findings:
        places = tuple(
            replace(place, changes=ops)
            for place in finding.places
            if (ops := tuple(change for change in place.changes if change.node.is_call))
        )
        if places:
            edits.append(replace(finding, places=places))
    # If only inputs or outputs differ, keep them: they are the whole difference.
    return replace(diff, findings=tuple(edits)) if edits else diff


def _module_paths(graphs: Sequence[Graph]) -> set[str]:
    modules = {node.module for node in nodes_of(graphs) if node.is_call}
    return {path for module in modules for path in ancestors(module)}


# -- the ops of a block ----------------------------------------------------------------------------


class _BlockSide:
    """A graph, with the ops of each block.

    Attributes:
        graph: the graph.
        ops_by_block: ops of each block, by the block's path and by their name.
        saved: names of the values that the graph saves.
        shared: names of the outer values that all blocks take, such as a mask, sorted.
    """

    def __init__(self, graph: Graph, glob: str) -> None:
        self.graph = graph
        all_ops_by_block = _assign_ops_to_blocks(graph, glob)
        _refuse_bodies_of_several(graph, glob, all_ops_by_block)
        self.saved = {ref.name for ref in graph.saved}
        is_backward = graph.kind == "backward"
        filter_ops = self._drop_escaping_sums if is_backward else self._drop_saved_only
        self.ops_by_block = {
            block: remaining
            for block, ops in all_ops_by_block.items()
            if (remaining := filter_ops(ops))
        }
        outer_names = [
            {name for node in ops.values() for name in _names_taken_by(node) if name not in ops}
            for ops in self.ops_by_block.values()
        ]
        self.shared = sorted(set.intersection(*outer_names)) if outer_names else []

    def _drop_saved_only(self, ops: dict[str, Node]) -> dict[str, Node]:
        """Return a block's ops without the ops whose results only the backward needs.

        Equal blocks differ in such ops if only some of them require gradients: a frozen block, for
        example, saves no statistics of a norm.
        """
        remaining = dict(ops)
        for name in reversed(ops):
            node, users = ops[name], self.graph.users.get(name, ())
            is_projection = is_projection_node(self.graph, node)
            # An op whose result nothing takes is not for the backward: the model itself runs it.
            is_for_backward = bool(users) or name in self.saved or is_projection
            unused = not any(user in remaining or user not in ops for user in users)
            if unused and is_for_backward and not node.effects:
                del remaining[name]
        return remaining

    def _drop_escaping_sums(self, ops: dict[str, Node]) -> dict[str, Node]:
        """Return the ops of a block's backward without the sums of gradients of the block's inputs.

        If several blocks use a value, such as a mask, autograd adds up its gradients, and any of
        the blocks can contain a sum. The gradients themselves stay.
        """
        remaining = dict(ops)
        for name in reversed(ops):
            is_sum = ops[name].op in _SUMS and len(ops[name].refs) == 2
            if is_sum and not any(user in remaining for user in self.graph.users.get(name, ())):
                del remaining[name]
        return remaining


def _names_taken_by(node: Node) -> list[str]:
    """Return the names of the nodes whose values a node takes or writes."""
    targets = [effect.target.name for effect in node.effects if effect.target is not None]
    return [*node.refs, *targets]


def _assign_ops_to_blocks(graph: Graph, glob: str) -> dict[str, dict[str, Node]]:
    """Return the ops of each block, by the block's path and by their name, in graph order."""
    bodies = graph.subgraphs_by_name
    depth = glob.count(".") + 1
    ops_by_block: dict[str, dict[str, Node]] = {}
    block_of: dict[str, str] = {}
    for node in graph.nodes:
        if not node.is_call or node.op == _SEED:
            continue
        if node.refs and node.refs[0] in block_of and is_projection_node(graph, node):
            # A projection belongs to the block of its producer, even if its own path differs.
            block = block_of[node.refs[0]]
        else:
            block = path_prefix(node.module, depth)
            inner = [bodies[name] for name in body_names(node) if name in bodies]
            if inner and not _matches(block, glob):
                # For a checkpointed block, Dynamo records the call in the enclosing module, and the
                # ops of the body in the block.
                calls = [call for call in nodes_of(inner) if call.is_call]
                block = path_prefix(common_path(call.module for call in calls), depth)
        if block and _matches(block, glob):
            ops_by_block.setdefault(block, {})[node.name] = node
            block_of[node.name] = block
    return ops_by_block


def _refuse_bodies_of_several(
    graph: Graph, glob: str, ops_by_block: Mapping[str, Mapping[str, Node]]
) -> None:
    """Reject a body that runs ops of a block other than the calling block.

    Such ops are in no block's graph, so blocks that differ in them would compare as equal.

    Raises:
        CaptureError: for such a body, for example if `torch.cond` runs all blocks in a branch.
    """
    bodies = graph.subgraphs_by_name
    block_of = {name: block for block, ops in ops_by_block.items() for name in ops}
    depth = glob.count(".") + 1
    for node in graph.nodes if bodies else ():
        inner = [*nodes_of(bodies[name] for name in body_names(node) if name in bodies)]
        # torch.export records no module paths in bodies, so the block is found by the parameters.
        paths = [inner_node.module for inner_node in inner if inner_node.is_call]
        paths += [name for name in node.refs if inner and graph.by_name[name].op in _OWNED]
        for block in (path_prefix(path, depth) for path in paths):
            if _matches(block, glob) and block != block_of.get(node.name) and node.is_call:
                raise CaptureError(
                    f"blocks {glob} cannot be compared, because {node.op} (%{node.name} of "
                    f"{graph.name}) runs ops of {block} in a subgraph that other blocks share: "
                    "capture only the blocks, for example model.layers, and use the glob '*'"
                )


def _block_graphs(sides: Sequence[_BlockSide], block: str, new_path: str) -> tuple[Graph, ...]:
    """Return the graphs of a block, one for each side with ops of the block; see `_block_graph`."""
    return tuple(
        _block_graph(side, block, new_path) for side in sides if block in side.ops_by_block
    )


def _block_graph(side: _BlockSide, block: str, new_path: str) -> Graph:
    """Return the ops of a block as a graph.

    Args:
        side: the graph that contains the block.
        block: path of the block.
        new_path: path that replaces the block's path in names.
    """
    graph, ops, users = side.graph, side.ops_by_block[block], side.graph.users
    names: dict[str, str] = {}

    def move(path: str) -> str:
        return moved(path, (block, new_path))

    own_inputs: dict[str, Node] = {}
    # What all blocks take comes first, so that it has the same number in each of them.
    outer_inputs = {name: graph.by_name[name] for name in side.shared}
    for node in ops.values():
        for name in _names_taken_by(node):
            if name not in ops:
                outer = graph.by_name[name]
                is_own = not outer.is_call and holds(block, outer.name)
                (own_inputs if is_own else outer_inputs)[name] = outer
    # Another block may take its parameters in a different order.
    inputs = []
    for name in sorted(own_inputs, key=natural_key):
        names[name] = move(name)
        inputs.append(replace(own_inputs[name], name=names[name]))
    for number, (name, outer) in enumerate(outer_inputs.items()):
        names[name] = f"taken_{number}"
        if outer.is_call or outer.op in _OWNED:
            # A shared parameter is an ordinary input: its name does not identify the block.
            inputs.append(Node(names[name], "placeholder", "input", result=outer.result))
        else:
            inputs.append(replace(outer, name=names[name]))
    names |= {name: move(name) for name in ops}
    refs: dict[str, Arg] = {old: Ref(new) for old, new in names.items()}
    nodes = [
        map_node(
            replace(node, after=tuple(before for before in node.after if before.name in ops)),
            substituting(refs),
            name=names[node.name],
            module=move(node.module),
            target=move(node.target),  # via fx, the path of the called module
        )
        for node in ops.values()
    ]
    # A result that the block itself uses is never an output, because often only one block returns
    # it: for example, only the last block may return its attention weights.
    outputs = [refs[name] for name in ops if not any(user in ops for user in users.get(name, ()))]
    used = {name for node in ops.values() for name in body_names(node)}
    return Graph(
        (*inputs, *nodes, Node("output", "output", "output", (tuple(outputs),))),
        name=graph.name,
        kind=graph.kind,
        level=graph.level,
        subgraphs=tuple(body for body in graph.subgraphs if body.name in used),
        classes={move(path): name for path, name in graph.classes.items() if holds(block, path)},
        eager=graph.eager,
        given=graph.given,
        groups=graph.groups,
        own_modules={
            move(path): module for path, module in graph.own_modules.items() if holds(block, path)
        },
    )
