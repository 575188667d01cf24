"""Ops that were exchanged where a module came, or went, right after them.

An MLP that gets another activation *and* a gate has two edits, although all new ops are connected:
`gelu(x)` became `silu(x) * gate(y)`. The activation is the op that takes what the other one took.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from .correspondence import REACH, Correspondence
from .moves import GIVEN


def exchanged(matching: Correspondence) -> Iterator[tuple[int, int]]:
    """Pairs of nodes without partner, old and new, of which one was exchanged for the other.

    Both take the same values, have equal results and are in one module. Around one of them is a
    module that only its graph has; what is there takes values of its own, and none of these. So an
    op that was written out as several ops is no exchange: these take what the op took.
    """
    paths = [{node.module for node in flat.nodes} for flat in (matching.a, matching.b)]
    taken: set[int] = set()
    for i, node in enumerate(matching.a.nodes):
        if not node.is_call or not matching.is_open(0, i):
            continue
        for j in _candidates(matching, i):
            around_old = _around(matching, 0, i, paths[1])
            around_new = _around(matching, 1, j, paths[0])
            separate = around_old is not None and around_new is not None
            if separate and bool(around_old) != bool(around_new) and j not in taken:
                taken.add(j)
                yield i, j
                break


def _candidates(m: Correspondence, i: int) -> Iterator[int]:
    """The nodes of the new graph without partner that take what a node took, in its module."""
    node, operands = m.a.nodes[i], m.a.operands[i]
    partners = [m.forward[p] for p in operands]
    flow = [p for p in operands if m.a.nodes[p].op not in GIVEN]
    if not flow or -1 in partners:
        return
    for j, _ in m.b.users[m.forward[flow[0]]]:
        other = m.b.nodes[j]
        if (
            other.is_call
            and m.is_open(1, j)
            and m.b.operands[j] == partners
            and other.module == node.module
            and other.result == node.result
        ):
            yield j


def _around(m: Correspondence, side: int, start: int, paths: Set[str]) -> set[str] | None:
    """The modules around a node that only its graph has, through nodes without partner.

    `None` if a node there takes a value that `start` takes: then all is one edit. Empty if they
    take nothing but the result of `start`: then one op was written out as a chain of ops.

    Args:
        m: which nodes correspond.
        side, start: the node, of the old graph (0) or of the new one (1).
        paths: the modules of the other graph.
    """
    flat = m.b if side else m.a
    partner = m.backward if side else m.forward
    own = {p for p in flat.operands[start] if flat.nodes[p].op not in GIVEN}
    modules: set[str] = set()
    takes_more = False
    seen, todo = {start}, [user for user, _ in flat.users[start]]
    while todo and len(seen) <= REACH:
        i = todo.pop()
        if i in seen or partner[i] != -1 or not flat.nodes[i].is_call:
            continue
        seen.add(i)
        if not own.isdisjoint(flat.operands[i]):
            return None
        if flat.nodes[i].module not in paths:
            modules.add(flat.nodes[i].module)
        takes_more = takes_more or any(
            partner[p] != -1 or not flat.nodes[p].is_call for p in flat.operands[i]
        )
        todo.extend(flat.operands[i])
        todo.extend(user for user, _ in flat.users[i])
    return modules if takes_more else set()
