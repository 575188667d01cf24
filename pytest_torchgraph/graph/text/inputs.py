"""Parameters, buffers and constants that a text declares where they are first used.

    %fc/t = aten.t.default(%fc.weight: f32[4, 16]) : f32[16, 4]

One line per parameter would be more than half of a convolutional network's text. The text keeps the
order of the inputs, because a comparison pairs renamed parameters by their order:

- A line `parameters`, `buffers` or `constants` among the inputs marks the place of the inputs that
  are declared where they are used. If a role has several places, `parameters from %x` marks the
  place of `%x` and of the parameters after it.
- An input follows the input declared before it if both belong to one module. An input of another
  module comes after all inputs declared so far. `%x: f32[2] after %y` follows `%y`.

`find_placed_inputs` decides which inputs are declared where they are used. `sort_inputs` restores
their order.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..diff import longest_increasing
from ..model import Graph, Node, Ref, TensorMeta, iter_refs
from ..module_paths import module_of

PLACED = {"parameter": "parameters", "buffer": "buffers", "constant": "constants"}
"""For each role, the line that marks the place of inputs declared where they are used."""
MOST_AT_FRONT = 3
"""Maximum number of inputs at the front of a role that get their own line.

Such an input is used only after a later input of the same module.
"""

_NUMBERED = re.compile(r".*(?<![A-Za-z0-9])(?:0|[1-9][0-9]{0,8})(?=[./])")
"""Path of the innermost instance at the start of a name."""


@dataclass
class Placed:
    """Inputs of a graph that are declared where they are used.

    Attributes:
        after: maps each of these inputs to the input that its declaration states after `after`; ""
            if the declaration has no `after`.
        lines: maps each input that begins a run of these inputs to its role and its name: the
            line that marks their place. The name is "" for the input that `sort_inputs` puts first,
            whose line needs no name.
    """

    after: dict[str, str] = field(default_factory=dict)
    lines: dict[str, tuple[str, str]] = field(default_factory=dict)


def find_placed_inputs(graph: Graph, full: bool) -> Placed:
    """Decide which inputs of a graph are declared where they are used.

    Args:
        full: True for detail "full", whose text states an input's module path where its name does
            not imply the path.
    """
    result = Placed()
    # A backward uses the inputs in reverse, and the forward's text declares them. In an update,
    # `lists` writes them once.
    if graph.kind in ("backward", "update"):
        return result
    candidates = {node.name: node for node in graph.inputs if _can_be_placed(node, full)}
    if not candidates:
        return result
    used = _sort_by_use(graph, candidates)
    starts: set[str] = set()  # the first input of each role, in the order of `sort_inputs`
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
    """Return True if a declaration can state all that is known of an input."""
    return (
        node.op in PLACED
        and isinstance(node.result, TensorMeta)
        and len(node.args) <= (node.op == "constant")  # which has its value as an argument
        and not (node.kwargs or node.effects or node.after)
        and not (full and node.module != module_of(node.name))
    )


def _sort_by_use(graph: Graph, candidates: dict[str, Node]) -> dict[str, None]:
    """Return the inputs that can be declared in the arguments of a call, in order of first use.

    An input that an instance shares with other modules has its own line. Declared in one instance,
    it would make this instance differ from the others. The same holds for an input whose first use
    is an effect or an `after`, which have no arguments.
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
            # "" begins every name: outside of instances, any input may be declared.
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
    """Map each input to the input that its declaration must state after `after`.

    The value is "" if the declaration needs no `after`. Inputs that are missing in the map need
    their own line.

    Args:
        declared: the inputs in their order.
        used: the same inputs in the order of first use.
    """
    for _ in range(MOST_AT_FRONT + 1):
        number_of = {name: number for number, name in enumerate(declared)}
        heads = _find_heads([number_of[name] for name in used], used)
        # The first input must begin a chain, because no other input comes before it.
        start = next((index for index, head in enumerate(heads) if head == (0, False)), None)
        if start is not None or not declared:
            break
        # It gets its own line, and the second input is tried as the first.
        used = [name for name in used if name != declared[0]]
        declared = declared[1:]
    if start is None:
        return {}
    # The text may begin with inputs of a later place, because the lines in `Placed.lines` restore
    # the places. So the order is compared from the first declared input on.
    # An input of another module comes after all inputs declared so far, which is right for the
    # longest ascending chain of them. The first input is always in it.
    numbers = [number for number, same in (*heads[start:], *heads[:start]) if not same]
    in_chain = {number for _, number in longest_increasing(list(enumerate(numbers)))}
    after = dict.fromkeys(declared, "")
    for number, _ in heads:
        if number not in in_chain:
            after[declared[number]] = declared[number - 1]
    return after


def _find_heads(numbers: Sequence[int], names: Sequence[str]) -> list[tuple[int, bool]]:
    """Return the inputs whose place does not follow from the input used before them.

    Args:
        numbers: the position of each input in the order of the inputs, by first use.
        names: their names.

    Returns:
        The number of each, and False for an input of another module than the input used before it.
        True is an input of the same module that does not follow the other one.
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


def sort_inputs(declared: Iterable[tuple[str, str]]) -> list[str]:
    """Return the inputs of one role in their original order.

    Inputs are missing if they follow each other, or an input that is not declared.

    Args:
        declared: for each input in the order of the text, its name and the input that its
            declaration states after `after`, or "".
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
    # Each input, then all that follow it. Not by recursion, which a long chain would exceed. Inputs
    # that follow each other are never reached.
    ordered: list[str] = []
    stack = first[::-1]
    while stack:
        name = stack.pop()
        ordered.append(name)
        stack.extend(reversed(followers[name]))
    return ordered
