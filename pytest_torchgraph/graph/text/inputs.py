"""Parameters, buffers and constants that a text declares where they are first used.

    %fc/t = aten.t.default(%fc.weight: f32[4, 16]) : f32[16, 4]

One line per parameter would be more than half of a convolutional network's text. The order of the
inputs is kept, because parameters that were renamed are paired in their order:

- A line `parameters`, `buffers` or `constants` among the inputs has the place of all that are
  declared elsewhere. If they are in several places, `parameters from %x` has those from `%x` on.
- An input follows the one declared before it if both are of one module. Any other input follows
  all inputs without `after`. `%x: f32[2] after %y` follows `%y`.

`find_placed_inputs` decides for a graph what is declared where, `sort_inputs` restores the order.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..model import Graph, Node, Ref, TensorMeta, iter_refs
from ..module_paths import module_of

PLACED = {"parameter": "parameters", "buffer": "buffers", "constant": "constants"}
"""Line that has the place of the inputs of a role that are declared where they are used."""
MOST_AT_FRONT = 3
"""Maximum number of inputs with a line of their own because they come before others of their module
that are used first.
"""

_NUMBERED = re.compile(r".*(?<![A-Za-z0-9])(?:0|[1-9][0-9]{0,8})(?=[./])")
"""Path of the innermost instance at the start of a name."""


@dataclass
class Placed:
    """Inputs of a graph that are declared where they are used.

    Attributes:
        after: these inputs, and for each the input it follows; "" by default.
        lines: role and name of each input that begins a run; the name is "" for the run of its role
            that the text declares first.
    """

    after: dict[str, str] = field(default_factory=dict)
    lines: dict[str, tuple[str, str]] = field(default_factory=dict)


def find_placed_inputs(graph: Graph, full: bool) -> Placed:
    """Decide which inputs of a graph are declared where they are used.

    Args:
        full: True if the text has module paths that differ from the names.
    """
    result = Placed()
    if graph.kind == "backward":  # uses them in reverse, and its forward has declared them
        return result
    candidates = {node.name: node for node in graph.inputs if _can_be_placed(node, full)}
    if not candidates:
        return result
    used = _sort_by_use(graph, candidates)
    starts: set[str] = set()
    for role in PLACED:
        by_use = [name for name in used if candidates[name].op == role]
        by_declaration = [
            name for name, node in candidates.items() if node.op == role and name in used
        ]
        after = _find_predecessors(by_declaration, by_use)
        result.after.update(after)
        starts.update(sort_inputs((name, after[name]) for name in by_use if name in after)[:1])
    role_before = ""
    for node in graph.nodes:
        role_of_node = node.op if node.name in result.after else ""
        if role_of_node and (role_of_node != role_before or node.name in starts):
            result.lines[node.name] = role_of_node, "" if node.name in starts else node.name
        role_before = role_of_node
    return result


def _can_be_placed(node: Node, full: bool) -> bool:
    return (
        node.op in PLACED
        and isinstance(node.result, TensorMeta)
        and len(node.args) <= (node.op == "constant")
        and not (node.kwargs or node.effects or node.after)
        and not (full and node.module != module_of(node.name))
    )


def _sort_by_use(graph: Graph, candidates: dict[str, Node]) -> dict[str, None]:
    """Return the inputs that can be declared in the arguments of a call, in order of first use.

    An input that an instance shares with other modules has a line of its own: declared in one
    instance, it would make that one differ.
    """
    nodes_with_inputs = [
        (node, names)
        for node in graph.nodes
        if node.kind != "placeholder"
        and ((names := _input_names_of(node, candidates)) or node.after or node.effects)
    ]
    uses = Counter(name for _, names in nodes_with_inputs for name in {*names})
    used: dict[str, None] = {}
    undeclared = set(candidates)
    for node, names in nodes_with_inputs:
        first_used = [name for name in names if name in undeclared]
        if first_used:
            undeclared.difference_update(first_used)
            instance = _NUMBERED.match(node.name)
            prefixes = (f"{instance.group()}.", f"{instance.group()}/") if instance else ("",)
            used.update(
                (name, None)
                for name in first_used
                if node.is_call and (uses[name] == 1 or name.startswith(prefixes))
            )
        if node.after or node.effects:
            undeclared.difference_update(ref.name for ref in node.after)
            undeclared.difference_update(
                e.target.name for e in node.effects if e.target is not None
            )
    return used


def _input_names_of(node: Node, candidates: Mapping[str, Node]) -> list[str]:
    """Return the inputs among the operands of a node, in order, with repetition."""
    names: list[str] = []
    for value in (*node.args, *node.kwargs.values()) if node.kwargs else node.args:
        if type(value) is Ref:
            if value.name in candidates:
                names.append(value.name)
        elif isinstance(value, (tuple, dict, slice)):
            names += [ref.name for ref in iter_refs(value) if ref.name in candidates]
    return names


def _find_predecessors(declared: list[str], used: list[str]) -> dict[str, str]:
    """Return for each input the one that it must say it follows; "" if it is where a reader expects
    it.

    Args:
        declared: the inputs in their order.
        used: the same inputs in the order of first use.
    """
    for _ in range(MOST_AT_FRONT + 1):
        number_of = {name: number for number, name in enumerate(declared)}
        heads = _find_heads([number_of[name] for name in used], used)
        start = next((index for index, head in enumerate(heads) if head == (0, False)), None)
        if start is not None or not declared:
            break
        used = [name for name in used if name != declared[0]]
        declared = declared[1:]
    if start is None:
        return {}
    # The reader may begin with those that come later, see `Placed.lines`.
    chain = _longest_rising(
        [number for number, same in (*heads[start:], *heads[:start]) if not same]
    )
    in_chain = set(chain)
    after = dict.fromkeys(declared, "")
    for number, _ in heads:
        if number not in in_chain:
            after[declared[number]] = declared[number - 1]
    return after


def _find_heads(numbers: Sequence[int], names: Sequence[str]) -> list[tuple[int, bool]]:
    """Return the number of each input that does not simply follow the one used before it, and True
    if it is of the same module.
    """
    heads: list[tuple[int, bool]] = []
    last = -1
    module: str | None = None
    for number, name in zip(numbers, names, strict=True):
        owner = owner_of(name)
        if owner != module:
            heads.append((number, False))
        elif number != last + 1:
            heads.append((number, True))
        last, module = number, owner
    return heads


def owner_of(name: str) -> str:
    """Return the path of the module that has a parameter."""
    return name.rpartition(".")[0]


def _longest_rising(numbers: Sequence[int]) -> list[int]:
    tails: list[int] = []
    previous: dict[int, int] = {}
    for number in numbers:
        length = bisect_left(tails, number)
        previous[number] = tails[length - 1] if length else -1
        tails[length : length + 1] = [number]
    chain: list[int] = []
    last = tails[-1] if tails else -1
    while last >= 0:
        chain.append(last)
        last = previous[last]
    return chain[::-1]


def sort_inputs(declared: Iterable[tuple[str, str]]) -> list[str]:
    """Return inputs of one role in their order; fewer if some follow no input, or each other.

    Args:
        declared: name of each input, in the order of the text, and of the input it follows.
    """
    first: list[str] = []
    followers: defaultdict[str, list[str]] = defaultdict(list)
    last = ""
    for name, after in declared:
        if after:
            followers[after].append(name)
        elif last and owner_of(name) == owner_of(last):
            followers[last].append(name)
        else:
            first.append(name)
        last = name
    ordered: list[str] = []
    stack = first[::-1]
    while stack:
        name = stack.pop()
        ordered.append(name)
        stack.extend(reversed(followers[name]))
    return ordered
