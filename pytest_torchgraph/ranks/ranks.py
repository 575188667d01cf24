"""`Ranks`: captures of several ranks of one model, and assertions that compare the ranks."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from ..api.many_ranks import NO_RANKS
from ..graph.failures import UnexpectedOps, failed, shown_by
from ..graph.text import format_mesh, parse_file, read_text
from ..words import first_lines, format_ranks
from .agreement import (
    DeadlockedRank,
    channels_between,
    describe_unpaired,
    find_deadlocks,
    format_orders,
    format_place,
    format_signature,
    share_a_group,
    signature_of,
)
from .fake_group import coordinates

if TYPE_CHECKING:
    from ..api.result import Capture
    from ..api.torch_files import Truncated
    from ..graph.diff import GraphDiff
    from ..graph.model import Node

MAX_CLASSES = 3
"""Maximum number of classes of differing ranks in a message. Further classes are counted."""
USE_THE_MESH = "check that build(mesh) distributes the target over the mesh"
MAX_DEADLOCKED = 8
"""Maximum number of deadlocked ranks in a message. Further ranks are counted."""


class Ranks(Sequence["Capture"]):
    """The captures of several ranks, in the order in which they were requested.

    `ranks[0]` is the first capture, and `ranks[0].rank` is its rank.

    Methods raise `TypeError` for an argument of a wrong type, and `ValueError` for a wrong value.

    Attributes:
        mesh: mesh sizes by dimension name.
        ranks: rank numbers.
    """

    def __init__(self, captures: Sequence[Capture], mesh: Mapping[str, int]):
        self._captures = tuple(captures)
        self.mesh = dict(mesh)
        self.ranks = tuple(map(_rank, captures))

    @overload
    def __getitem__(self, index: int) -> Capture: ...

    @overload
    def __getitem__(self, index: slice) -> Ranks: ...

    def __getitem__(self, index: int | slice) -> Capture | Ranks:
        if isinstance(index, slice):
            return Ranks(self._captures[index], self.mesh)
        return self._captures[index]

    def __len__(self) -> int:
        return len(self._captures)

    def __iter__(self) -> Iterator[Capture]:
        return iter(self._captures)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ranks):
            return NotImplemented
        return (self.mesh, self.ranks, self._captures) == (
            other.mesh,
            other.ranks,
            other._captures,
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        mesh = format_mesh(self.mesh) or "unknown mesh"
        return f"<Ranks of {mesh}: {format_ranks(self.ranks)}>"

    # Type checkers would accept any attribute of a class with `__getattr__`.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("assert_"):
                raise AttributeError(
                    f"Ranks has no {name}: assert on every capture, `for capture in ranks: "
                    f"capture.{name}(...)`, or on one capture, `ranks[0].{name}(...)`"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def assert_collectives(
        self,
        expected: Mapping[str, Any],
        group: str | None = None,
        bytes: Any = None,
        exact: bool = True,
    ) -> None:
        """Assert the collectives of each rank, as `Capture.assert_collectives` does for one rank.

        Args:
            expected, group, bytes, exact: see `Capture.assert_collectives`. `bytes` is the number
                of bytes moved by one rank.

        Raises:
            AssertionError: if any rank fails. The message names the failing ranks; ranks with the
                same failure share one text.
            TypeError, ValueError: see `Capture.assert_collectives`. Also a ValueError if there are
                no ranks, e.g. in an empty slice.
        """
        if not self._captures:
            raise ValueError(f"nothing to check: {NO_RANKS}")
        # Check every rank: ranks with the same failure share one message.
        captures_by_message: dict[str, list[Capture]] = {}
        first_error: AssertionError | None = None
        for capture in self._captures:
            try:
                capture.assert_collectives(expected, group, bytes, exact)
            except AssertionError as error:
                first_error = first_error or error
                captures_by_message.setdefault(str(error), []).append(capture)
        if first_error is not None:
            lines: list[str] = []
            for message, failing in captures_by_message.items():
                lines.append(f"{self._format_members(failing)}:")
                lines += [f"  {line}" for line in message.split("\n")]
            raise failed("\n".join(lines), shown_by(first_error))

    def assert_same_graphs(self, across: str | None = None) -> None:
        """Assert that ranks have the same graphs.

        Args:
            across: a mesh dimension. Compare only ranks that agree in all other coordinates.
                `None` compares all ranks.

        Raises:
            AssertionError: if graphs differ. The message names the ranks and the differences. If
                the order of collectives differs, it shows both orders and says whether the ranks
                deadlock.
            ValueError: if the mesh has no dimension `across`, or if fewer than two ranks can be
                compared.
        """
        groups = self._comparable_groups(across)
        if problems := [*self._problems(groups, lambda capture: capture, self._differences)]:
            message = "\n".join([f"ranks have different graphs{_across(across)}:", *problems])
            raise failed(message, self._first_difference(groups))

    def assert_same_collectives(self, across: str | None = None) -> None:
        """Assert that ranks run the same collectives in order: kinds, groups, bytes and dtypes.

        Reductions and the roots of broadcasts must also agree. This check is weaker than
        `assert_same_graphs`: the ops between the collectives may differ, for example if each rank
        computes on its shard of a vocabulary. For pipelines use `assert_matching_collectives`,
        because one rank sends where the next rank receives.

        Args:
            across: see `assert_same_graphs`.

        Raises:
            AssertionError: if collectives differ. The message names the ranks and shows both
                orders. Also if none of the compared ranks communicates.
            ValueError: see `assert_same_graphs`.
        """
        groups = self._comparable_groups(across)
        # A group of one rank is not compared, so its collectives prove nothing.
        compared = [capture for group in groups if len(group) > 1 for capture in group]
        if not any(capture.collectives for capture in compared):
            scope = "of the compared ranks" if len(compared) < len(self) else "of the ranks"
            raise AssertionError(
                f"none {scope} runs a collective, so there is no order of collectives to compare: "
                f"{USE_THE_MESH}"
            )
        if problems := [*self._problems(groups, _signatures)]:
            head = f"ranks communicate differently{_across(across)}:"
            raise AssertionError("\n".join([head, *problems]))

    def assert_matching_collectives(self) -> None:
        """Assert that collectives match between ranks, even if the ranks run different graphs.

        All ranks of a group must enter the same collectives in the same order, otherwise they
        deadlock. Each send of a pipeline must have a receive of the same size. Only communication
        between captured ranks is checked. The order of sends and receives is not checked, because
        whether a wrong order deadlocks depends on how the program waits for them.

        Raises:
            AssertionError: if ranks deadlock, or if a send has no matching receive or a receive no
                matching send. For each deadlocked rank, the message names the collective that the
                rank waits in. Also if no rank communicates.
            ValueError: if no two of the captured ranks communicate with each other.
        """
        if not any(capture.collectives for capture in self._captures):
            raise AssertionError(
                "no rank runs a collective, a send or a receive, so there is nothing to match: "
                f"{USE_THE_MESH}"
            )
        if not channels_between(self._captures) and not share_a_group(self._captures):
            raise ValueError(
                "no two of these ranks communicate with each other, so there is nothing to match: "
                f"capture all ranks of a process group, not only {format_ranks(self.ranks)}"
            )
        deadlocks = find_deadlocks(self._captures)
        lines = [f"  {format_deadlock(deadlock, deadlocks)}" for deadlock in deadlocks]
        problems = first_lines(lines, MAX_DEADLOCKED, "deadlocked rank")
        problems += describe_unpaired(self._captures)
        if problems:
            raise AssertionError("\n".join(["collectives of the ranks do not match:", *problems]))

    def _problems(
        self,
        groups: Iterable[Sequence[Capture]],
        key_of: Callable[[Capture], object],
        details: Callable[[Capture, Capture], Iterable[str]] = lambda first, other: (),
    ) -> Iterator[str]:
        """Yield lines about each class of ranks that differs from the first of its group.

        Args:
            groups: the captures to compare with each other.
            key_of: returns the key of a capture. Captures with equal keys are equal.
            details: returns further lines about two captures.
        """
        for group in groups:
            first, *others = classes_of(group, key_of)
            # Of all captures, because a rank may wait for one of another group.
            deadlocks = find_deadlocks(self._captures) if others else []
            deadlocked = {deadlock.capture.rank for deadlock in deadlocks}
            members = self._format_members(first)
            for other in others[:MAX_CLASSES]:
                yield f"  {self._format_members(other)} compared with {members}:"
                waits = any(capture.rank in deadlocked for capture in other)
                lines = [*format_orders(first[0], other[0], waits=waits)]
                lines += details(first[0], other[0])
                yield from (f"      {line}" for line in lines)
            if omitted := others[MAX_CLASSES:]:
                ranks = self._format_members([capture for c in omitted for capture in c])
                yield f"  ... and {len(omitted)} more differences, of {ranks}"

    def _comparable_groups(self, across: str | None) -> list[list[Capture]]:
        """Return the groups of captures within which ranks are compared.

        Raises:
            ValueError: if the mesh has no dimension `across`, or if no group has two ranks.
        """
        if across is not None and across not in self.mesh:
            raise ValueError(
                f"the mesh has no dimension {across!r}; dimensions: "
                f"{', '.join(map(repr, self.mesh))}"
            )
        groups = self._groups(across)
        if all(len(group) < 2 for group in groups):
            reason = "fewer than two ranks were captured"
            if across is not None:
                reason = f"no two of the captured ranks differ only in {across!r}"
            raise ValueError(f"nothing to compare, because {reason} ({self!r}): capture more ranks")
        return groups

    def _groups(self, across: str | None) -> list[list[Capture]]:
        """Return the captures, grouped so that ranks of a group differ only in `across`."""
        if across is None:
            return [list(self._captures)]
        groups: dict[tuple[int, ...], list[Capture]] = {}
        for capture in self._captures:
            position = coordinates(_rank(capture), self.mesh)
            key = tuple(n for name, n in position.items() if name != across)
            groups.setdefault(key, []).append(capture)
        return list(groups.values())

    @staticmethod
    def _differences(first: Capture, other: Capture) -> list[str]:
        """Return the lines of the diff of two ranks."""
        from ..api.differences import diff

        text = str(diff(first, other))
        # A diff labels its nodes `before` and `after`, but ranks are two sides of one run.
        for label, capture in (("before", first), ("after ", other)):
            text = re.sub(rf"(?m)^    {label}  ", f"    rank {_rank(capture)}  ", text)
        return text.splitlines()

    def _first_difference(self, groups: Iterable[Sequence[Capture]]) -> UnexpectedOps:
        """Return the ops in which two ranks differ, for the first group with a difference."""
        from ..api.differences import diff

        first_class, second_class, *_ = next(c for c in map(classes_of, groups) if len(c) > 1)
        first_capture, second_capture = first_class[0], second_class[0]
        # UnexpectedOps shows the nodes of one side. If the second rank has none to show, swap.
        if not (nodes := _only_in(diff(first_capture, second_capture))):
            first_capture, second_capture = second_capture, first_capture
            nodes = _only_in(diff(first_capture, second_capture))
        ranks = (self._format_members([capture]) for capture in (second_capture, first_capture))
        title = " compared with ".join(ranks)
        return UnexpectedOps(second_capture.graphs, nodes, title)

    def _format_members(self, captures: Sequence[Capture]) -> str:
        """Return the numbers of some ranks; for a single one, with its coordinates."""
        ranks = [_rank(capture) for capture in captures]
        if len(ranks) > 1:
            return format_ranks(ranks)
        place = format_mesh(coordinates(ranks[0], self.mesh))
        return f"rank {ranks[0]} ({place})" if place else f"rank {ranks[0]}"

    @property
    def world_size(self) -> int:
        """Number of ranks in the mesh, captured or not."""
        return math.prod(self.mesh.values())


def load(path: str | Path, *, truncated: Truncated = "refuse") -> Capture | Ranks:
    """Return the graphs in a file: a `Capture`, or `Ranks` if it stores several ranks.

    The file is recognised by its content:

    - a `.tgraph` file;
    - a log of `TORCH_TRACE`, plain or compressed by gzip, or a directory with such logs. The result
      has what a watch has, except what only calls show. If several processes compiled graphs, it is
      `Ranks`, by rank or, if the processes have no distinct ranks, in the order of their records;
    - a program stored by `torch.export.save`, of which nothing is unpickled or evaluated;
    - text of `print_readable()`, of `fx_graph_readable.py`, and of `TORCH_LOGS` for `graph_code`,
      `aot_graphs` and `post_grad_graphs`.

    Args:
        path: the file.
        truncated: "refuse" (default) raises an error if a log ends inside a record or inside a
            compilation. "allow" reads the rest, see `Capture.log.truncated`: a check of it may miss
            what is not there.

    Raises:
        TypeError: if `path` is not a path.
        ValueError: if no file can have this path; for another value of `truncated`.
        GraphFormatError: if the file is malformed (with line and column), truncated, holds only op
            counts, or no graph that can be read.
        OSError: if the file cannot be read.
    """
    from ..api.existing import capture_of
    from ..api.torch_files import captures_in

    file = Path(path)
    # `captures_in` returns `None` for a `.tgraph` file. Only that stores the mesh of ranks.
    if (found := captures_in(file, truncated)) is not None:
        return found[0] if len(found) == 1 else Ranks(found, {})
    program = parse_file(read_text(file), file)
    if not program.sections:
        return capture_of(program, file)
    captures = []
    for rank, rank_program in program.of_rank.items():
        capture = capture_of(rank_program, file)
        # A file stores equal ranks once, so the program itself has no rank.
        capture.finish_for_rank(rank)
        captures.append(capture)
    return Ranks(captures, program.mesh)


def _across(across: str | None) -> str:
    return "" if across is None else f" across {across!r}"


def _signatures(capture: Capture) -> object:
    """Return the key by which ranks with the same collectives are equal."""
    return [*map(signature_of, capture.collectives)]


def _only_in(difference: GraphDiff) -> list[Node]:
    """Return the nodes of the second side that were added, changed or rewired."""
    return [
        *difference.added,
        *(node for _, node in difference.changed),
        *(n for _, n in difference.rewired),
    ]


def classes_of(
    captures: Sequence[Capture], key_of: Callable[[Capture], object] = lambda capture: capture
) -> list[list[Capture]]:
    """Partition captures into classes of equal captures, in order of first occurrence.

    Args:
        key_of: returns the key of a capture. Captures with equal keys share a class.
    """
    classes: list[tuple[object, list[Capture]]] = []
    for capture in captures:
        key = key_of(capture)
        # A key may be an unhashable list of signatures, and there are few classes.
        for class_key, class_members in classes:
            if class_key == key:
                class_members.append(capture)
                break
        else:
            classes.append((key, [capture]))
    return [class_members for _, class_members in classes]


def format_deadlock(deadlock: DeadlockedRank, deadlocks: Iterable[DeadlockedRank]) -> str:
    """Format the collective that a deadlocked rank waits in, and the ranks that it waits for.

    Args:
        deadlocks: all deadlocked ranks. If ranks of one group wait in collectives with the same
            kind and bytes that differ otherwise, their details are shown.
    """
    awaited = format_ranks([rank for rank in deadlock.ranks if rank != deadlock.capture.rank])
    # Without the details, two deadlocked ranks would seem to wait in the same collective.
    peers = (signature_of(peer.collective) for peer in deadlocks if peer.ranks == deadlock.ranks)
    description = format_signature(signature_of(deadlock.collective), peers)
    rank, place = deadlock.capture.rank, format_place(deadlock.collective)
    return f"rank {rank} waits forever for {awaited} in {description}: {place}"


def _rank(capture: Capture) -> int:
    """Return the rank of a capture of several ranks, which always has one."""
    assert capture.rank is not None
    return capture.rank
