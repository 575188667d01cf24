"""Consequences of a moved op or module.

If a norm moves from before a layer to after the layer, the norm is rewired, and so are its old and
new users. The rewiring of the users follows from this one edit: if the comparison looks through the
moved norm in both graphs, the users read the same values as before. An op that is dead code in one
of the graphs has no users there. It was not moved, and its new users are an edit of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..equality import NumberedGraph, reachable
from ..module_paths import common_path
from .correspondence import REACH, Correspondence

OWN_VALUES = ("parameter", "buffer", "get_attr")
"""Roles of an op's own values, which are not operands from the data flow."""


@dataclass(frozen=True, eq=False)
class MovedUnit:
    """A possibly moved unit: a module without submodules, or an op, that takes one value.

    Attributes:
        number: number of the unit's first rewired node in the old graph.
        path: the module path of its nodes.
        nodes: the nodes of the unit in the old and in the new graph.
        operands: number of the unit's operand in the old and in the new graph.
    """

    number: int
    path: str
    nodes: tuple[frozenset[int], frozenset[int]]
    operands: tuple[int, int]


def find_moves(
    matching: Correspondence, rewired: Iterable[int]
) -> tuple[dict[int, int], dict[int, int]]:
    """Return the rewired nodes that are not edits of their own.

    Args:
        matching: the correspondence of the nodes.
        rewired: the nodes of the old graph with a different operand in the new graph, in order.

    Returns:
        Two maps. The first maps each consequence to the number of the moved unit that causes it.
        The second maps each rewired node of a unit that takes the unit's operand to the number of
        the unit.
    """
    differing = {
        i: operand_pairs for i in rewired if (operand_pairs := _differing_operands(matching, i))
    }
    units = [*_find_units(matching, differing)]
    # `all_units` looks through every candidate, `moved_units` only through those that moved.
    all_units = _MovedUnits(matching)
    for unit in units:
        all_units.add(unit)
    moved_units = _MovedUnits(matching)
    for unit in units:
        # If a unit reads the same value when all candidates are looked through, another unit moved,
        # not this one.
        if not all_units.explains(*unit.operands):
            moved_units.add(unit)
    # If two units changed places, each explains the other. The first of the two counts as moved.
    for unit in units:
        if unit.number not in moved_units.unit_of[0] and not moved_units.explains(*unit.operands):
            moved_units.add(unit)
    follow = {
        # Without consequences, a norm moved from before a residual to after it would be six
        # findings.
        i: moved_units.nearest_unit(i, others).number
        for i, others in differing.items()
        if i not in moved_units.unit_of[0] and all(moved_units.explains(p, q) for p, q in others)
    }
    # All units count here. If a module reads one value in several ops, a rewired value is one edit,
    # even if the module did not move.
    parts = {
        i: unit.number
        for unit in units
        for i in unit.nodes[0]
        if i in differing and i not in follow and {*differing[i]} == {unit.operands}
    }
    return follow, parts


class _MovedUnits:
    """Units that a comparison of operands looks through.

    Attributes:
        m: the correspondence of the nodes.
        unit_of: the unit of each node, in the old and in the new graph.
    """

    def __init__(self, matching: Correspondence):
        self.m = matching
        self.unit_of: tuple[dict[int, MovedUnit], dict[int, MovedUnit]] = {}, {}

    def add(self, unit: MovedUnit) -> None:
        """Look through a unit from now on."""
        for unit_of, nodes in zip(self.unit_of, unit.nodes, strict=True):
            unit_of.update(dict.fromkeys(nodes, unit))

    def explains(self, p: int, q: int) -> bool:
        """Return True if two operands are the same value when moved units are looked through."""
        for unit in self.iter_units(0, p):
            p = unit.operands[0]
        for unit in self.iter_units(1, q):
            q = unit.operands[1]
        return self.m.edge_agrees(p, q)

    def nearest_unit(self, i: int, edges: Iterable[tuple[int, int]]) -> MovedUnit:
        """Return the unit nearest to a node, by module, of the units between it and its operands.

        A unit that a value passes through in only one graph is preferred, because it moved.
        """
        path = self.m.a.nodes[i].module
        passed: dict[MovedUnit, None] = {}
        for p, q in edges:
            before, after = [*self.iter_units(0, p)], [*self.iter_units(1, q)]
            only = [unit for unit in (*after, *before) if (unit in before) != (unit in after)]
            passed.update(dict.fromkeys(only or (*after, *before)))
        return max(passed, key=lambda unit: len(common_path((unit.path, path))))

    def iter_units(self, side: int, value: int) -> Iterator[MovedUnit]:
        """Yield the units that a value passes through, last unit first.

        Args:
            side: 0 for a value of the old graph, 1 for a value of the new graph.
            value: number of its node.
        """
        for _ in range(REACH):
            unit = self.unit_of[side].get(value)
            # This node precedes the operand of its unit, so it does not depend on the operand.
            if unit is None or unit.operands[side] >= value:
                return
            yield unit
            value = unit.operands[side]


def _differing_operands(m: Correspondence, i: int) -> list[tuple[int, int]]:
    """Return the differing operands of a node; [] if anything else of the node differs too."""
    j = m.forward[i]
    a, b = m.a, m.b
    if a.nodes[i].kind == "output":
        # If the graphs return different numbers of values, the slots of the outputs do not
        # correspond.
        if len(a.returned) != len(b.returned):
            return []
    elif a.arity[i] != b.arity[j] or (
        [m.forward[p] for p in a.operands[i][a.arity[i] :]] != b.operands[j][b.arity[j] :]
    ):
        return []
    return [(p, q) for p, q in m.edges(i, j) if not m.edge_agrees(p, q)]


def _find_units(matching: Correspondence, rewired: Iterable[int]) -> Iterator[MovedUnit]:
    """Yield the units of the rewired nodes, each once, in order."""
    covered: set[int] = set()
    finders = _UnitFinder(matching.a), _UnitFinder(matching.b)
    live_nodes: tuple[list[bool], list[bool]] | None = None
    for i in rewired:
        if i in covered or not matching.a.nodes[i].is_call:
            continue
        # The module moved if it takes one value in both graphs; otherwise the op may have moved.
        for unit_of in (_UnitFinder.module_unit, _UnitFinder.op_unit):
            before, after = (
                unit_of(side, number)
                for side, number in zip(finders, (i, matching.forward[i]), strict=True)
            )
            old_operand, new_operand = finders[0].operand_of(before), finders[1].operand_of(after)
            if old_operand is not None and new_operand is not None:
                live_nodes = live_nodes or (matching.a.live(), matching.b.live())
                # A unit that is dead code in one graph did not move. Its users were added or
                # removed, which is an edit. Counting it as moved would leave it in
                # `GraphDiff.rewired` without a finding. Do not try the op alone (`break`): it is
                # the same dead code.
                if not (live_nodes[0][i] and live_nodes[1][matching.forward[i]]):
                    break
                covered |= before
                path, operands = matching.a.nodes[i].module, (old_operand, new_operand)
                yield MovedUnit(i, path, (before, after), operands)
                break


class _UnitFinder:
    """Finds the units of one graph.

    Attributes:
        flat: the graph.
        module_units: the units found so far, by node.
        unit_operands: result of `operand_of` for each unit.
        containers: paths of the modules that have submodules.
    """

    def __init__(self, flat: NumberedGraph):
        self.flat = flat
        self.module_units: dict[int, frozenset[int]] = {}
        self.unit_operands: dict[frozenset[int], int | None] = {}
        self.containers: set[str] = set()
        for path in {node.module for node in flat.nodes if node.is_call}:
            # Ends at "", which every path leads to, or at a path whose outer paths are known.
            while (path := path.rpartition(".")[0]) not in self.containers:
                self.containers.add(path)

    def module_unit(self, i: int) -> frozenset[int]:
        """Return the nodes of one call of a node's module; empty if it has submodules."""
        flat, path = self.flat, self.flat.nodes[i].module
        if not path or path in self.containers:
            return frozenset()
        if i in self.module_units:
            return self.module_units[i]

        def neighbours(k: int) -> list[int]:
            near = (*flat.operands[k][: flat.arity[k]], *(user for user, _ in flat.users[k]))
            return [n for n in near if flat.nodes[n].module == path and flat.nodes[n].is_call]

        call = frozenset(reachable([i], neighbours))
        self.module_units.update(dict.fromkeys(call, call))
        return call

    def op_unit(self, i: int) -> frozenset[int]:
        """Return a node and the `getitem` nodes of its results."""
        nodes = self.flat.nodes
        users = (user for user, _ in self.flat.users[i])
        return frozenset((i, *(k for k in users if nodes[k].op == "operator.getitem")))

    def operand_of(self, unit: frozenset[int]) -> int | None:
        """Return the only operand of a unit; `None` if it has several operands, or none."""
        if unit not in self.unit_operands:
            flat = self.flat
            operands = {
                p
                for i in unit
                for p in flat.operands[i][: flat.arity[i]]
                if p not in unit and flat.nodes[p].op not in OWN_VALUES
            }
            self.unit_operands[unit] = operands.pop() if len(operands) == 1 else None
        return self.unit_operands[unit]
