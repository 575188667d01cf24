"""Graphs in which the bodies of `nested_compile_region` stand where they are called.

Dynamo itself inlines a body that is called once. A block whose body is shared and one that was
inlined compute the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .census import Homes, bodies_of, operands_of, outputs_of, projects
from .higher_order import body_names
from .model import Arg, Effect, Graph, Node, Ref

INVOKE = "higher_order.invoke_subgraph"
"""The op that calls the body of a region."""


def inlined(graph: Graph) -> Graph:
    """Return the graph with the ops of each region in the place of its call."""
    if not any(node.op == INVOKE for node in graph.nodes):
        return graph
    homes = Homes(graph)
    nodes: list[Node] = []
    names: set[str] = {node.name for node in graph.nodes}
    values: dict[str, Arg] = {}
    results: dict[str, list[Arg]] = {}
    for node in graph.nodes:
        bodies = bodies_of(graph, node) if node.op == INVOKE else []
        body = inlined(bodies[0]) if len(bodies) == 1 else None
        if body is not None and len(operands := operands_of(node)) == len(body.inputs):
            home, caller = homes.move(node, bodies[0]) or ("", "")
            inner = {
                taken.name: mapped(operand, values)
                for taken, operand in zip(body.inputs, operands, strict=True)
            }
            for each in body.nodes:
                if each.kind not in ("placeholder", "output"):
                    name = _moved(each.name, home, caller)
                    while name in names:
                        name += "'"
                    names.add(name)
                    inner[each.name] = Ref(name)
                    module = _moved(each.module, home, caller)
                    nodes.append(replace(_with_values(each, inner), name=name, module=module))
            results[node.name] = [mapped(output, inner) for output in outputs_of(body)]
        elif node.refs and node.refs[0] in results and projects(graph, node):
            values[node.name] = results[node.refs[0]][node.args[1]]
        else:
            nodes.append(_with_values(node, values))
    used = {name for node in nodes for name in body_names(node)}
    bodies_left = tuple(body for body in graph.subgraphs if body.name in used)
    saved = tuple(each for each in mapped(graph.saved, values) if isinstance(each, Ref))
    return replace(graph, nodes=tuple(nodes), subgraphs=bodies_left, saved=saved)


def _moved(path: str, home: str, caller: str) -> str:
    if home and path.startswith(home) and path[len(home) : len(home) + 1] in ("", ".", "/"):
        return caller + path[len(home) :]
    return path


def _with_values(node: Node, values: Mapping[str, Arg]) -> Node:
    effects = []
    for effect in node.effects:
        target = effect.target and values.get(effect.target.name, effect.target)
        effects.append(Effect(effect.kind, target if isinstance(target, Ref) else None))
    after = [values.get(before.name, before) for before in node.after]
    return replace(
        node,
        args=mapped(node.args, values),
        kwargs=mapped(node.kwargs, values),
        effects=tuple(effects),
        after=tuple(before for before in after if isinstance(before, Ref)),
    )


def mapped(value: Arg, values: Mapping[str, Arg]) -> Arg:
    """An argument with values in the place of references, by the names of their nodes."""
    if isinstance(value, Ref):
        return values.get(value.name, value)
    if isinstance(value, tuple):
        return tuple(mapped(item, values) for item in value)
    if isinstance(value, Mapping):
        return {key: mapped(item, values) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(mapped(end, values) for end in (value.start, value.stop, value.step)))
    return value
