"""`Ranks`: captures of several ranks of one model, and assertions that compare the ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from ..graph.failures import UnexpectedOps, failed, shown_by
from ..graph.text import format_mesh, parse_file, read_text
from ..words import format_ranks
from .agreement import Stuck, channels, meeting, orders, place, sent, stuck, unpaired
from .fake_group import coordinates

if TYPE_CHECKING:
    from ..api.result import Capture
    from ..graph.diff import GraphDiff
    from ..graph.model import Node

MOST = 3
"""Maximum number of classes of differing ranks in a message; the rest is counted."""
MOST_STUCK = 8
"""Maximum number of deadlocked ranks in a message; the rest is counted."""


class Ranks(Sequence["Capture"]):
    """The captures of several ranks, in the order in which they were asked for.

    A sequence: `ranks[0]` is the first capture, and `.rank` of each capture is its rank.

    Attributes:
        mesh: mesh sizes by dimension name.
        ranks: rank numbers.
    """

    def __init__(self, captures: Sequence[Capture], mesh: Mapping[str, int]):
        self._captures = tuple(captures)
        self.mesh = dict(mesh)
        self.ranks = tuple(each.rank for each in captures)

    @staticmethod
    def load(path: str | Path) -> Capture | Ranks:
        """Load a `.tgraph` file; same as `pytest_torchgraph.load`."""
        return load(path)

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
        return f"<Ranks of {format_mesh(self.mesh)}: {format_ranks(self.ranks)}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("assert_"):
                raise AttributeError(
                    f"Ranks has no {name}: assert on every capture, `for capture in ranks: "
                    f"capture.{name}(...)`, or on one, `ranks[0].{name}(...)`"
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
            expected, group, bytes, exact: see `Capture.assert_collectives`. `bytes` counts the
                bytes moved by one rank.

        Raises:
            AssertionError: if any rank fails. Names the failing ranks; ranks with the same message
                share it.
            TypeError, ValueError: see `Capture.assert_collectives`. Also a ValueError if there are
                no ranks, e.g. in an empty slice.
        """
        __tracebackhide__ = True
        if not self._captures:
            raise ValueError(f"no ranks, so there is nothing to check: {self!r}")
        wrong: dict[str, list[Capture]] = {}
        first: AssertionError | None = None
        for each in self._captures:
            try:
                each.assert_collectives(expected, group, bytes, exact)
            except AssertionError as error:
                first = first or error
                wrong.setdefault(str(error), []).append(each)
        if first is not None:
            lines = [
                line
                for message, those in wrong.items()
                for line in (f"{self._named(those)}:", *(f"  {one}" for one in message.split("\n")))
            ]
            raise failed("\n".join(lines), shown_by(first))

    def assert_same_graphs(self, across: str | None = None) -> None:
        """Assert that ranks have the same graphs.

        Args:
            across: a mesh dimension. Compare only ranks that agree in all other coordinates.
                `None` compares all ranks.

        Raises:
            AssertionError: if graphs differ. Names the ranks and the differences. If the order of
                collectives differs, shows both orders and reports whether the ranks deadlock.
            ValueError: if the mesh has no dimension `across`, or if there are no two ranks to
                compare.
        """
        __tracebackhide__ = True
        groups = self._alike_but_for(across)
        problems = [line for group in groups for line in self._differences(group)]
        if problems:
            of = "" if across is None else f" across {across!r}"
            message = "\n".join([f"ranks have different graphs{of}:", *problems])
            raise failed(message, self._first_difference(groups))

    def assert_same_collectives(self, across: str | None = None) -> None:
        """Assert that ranks run the same collectives in order: kinds, groups, bytes and dtypes.

        Reductions and the roots of broadcasts must agree too. Weaker than `assert_same_graphs`:
        ranks may compute on different numbers, e.g. each on its shard of a vocabulary. Pipeline
        ranks send and receive and thus differ: see `assert_matching_collectives`.

        Args:
            across: see `assert_same_graphs`.

        Raises:
            AssertionError: if collectives differ, with the ranks and both orders. Also if none of
                the compared ranks communicates.
            ValueError: see `assert_same_graphs`.
        """
        __tracebackhide__ = True
        groups = self._alike_but_for(across)
        compared = [each for group in groups if len(group) > 1 for each in group]
        if not any(each.collectives for each in compared):
            some = "of the compared ranks" if len(compared) < len(self) else "of the ranks"
            raise AssertionError(
                f"none {some} runs a collective, so there is no order of collectives to compare"
            )
        problems: list[str] = []
        waiting = self._waiting()
        for group in groups:
            first, *others = classes_of(group, lambda each: list(map(sent, each.collectives)))
            for other in others[:MOST]:
                waits = any(each.rank in waiting for each in other)
                problems.append(f"  {self._named(other)} compared with {self._named(first)}:")
                problems += [f"      {line}" for line in orders(first[0], other[0], waits=waits)]
            problems += self._more(others)
        if problems:
            of = "" if across is None else f" across {across!r}"
            raise AssertionError("\n".join([f"ranks communicate differently{of}:", *problems]))

    def assert_matching_collectives(self) -> None:
        """Assert that collectives match between ranks, even if the ranks run different graphs.

        All ranks of a group must enter the same collectives in the same order, otherwise they
        deadlock. Each pipeline send must have a receive of the same size. Only communication
        between captured ranks is checked. The order of sends and receives is not checked, neither
        among each other nor relative to collectives: it depends on how they are waited for.

        Raises:
            AssertionError: if ranks deadlock, with the collective each one waits in; or if a send
                has no matching receive or vice versa. Also if no rank communicates.
            ValueError: if no two of the captured ranks communicate with each other.
        """
        __tracebackhide__ = True
        if not any(each.collectives for each in self._captures):
            raise AssertionError(
                "no rank runs a collective, a send or a receive, so there is nothing to match"
            )
        if not channels(self._captures) and not meeting(self._captures):
            raise ValueError(
                "no two of these ranks communicate with each other, so there is nothing to match: "
                f"{self!r}"
            )
        waiting = stuck(self._captures)
        problems = [f"  {format_stuck(each, waiting)}" for each in waiting[:MOST_STUCK]]
        if waiting[MOST_STUCK:]:
            problems.append(f"  ... and {len(waiting) - MOST_STUCK} more waiting")
        problems += unpaired(self._captures)
        if problems:
            raise AssertionError("\n".join(["sends and receives do not match:", *problems]))

    def _waiting(self) -> frozenset[int | None]:
        """Return the ranks that would deadlock."""
        return frozenset(each.capture.rank for each in stuck(self._captures))

    def _more(self, others: Sequence[Sequence[Capture]]) -> Iterator[str]:
        """Yield a line that counts the classes of ranks omitted from a message."""
        if others[MOST:]:
            rest = [each for other in others[MOST:] for each in other]
            yield f"  ... and {len(others) - MOST} more differences, of {self._named(rest)}"

    def _alike_but_for(self, across: str | None) -> list[list[Capture]]:
        """Return groups of captures to compare within each group.

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
            why = "fewer than two ranks were captured"
            if across is not None:
                why = f"no two of the captured ranks differ only in {across!r}"
            raise ValueError(f"nothing to compare, because {why}: {self!r}")
        return groups

    def _groups(self, across: str | None) -> list[list[Capture]]:
        if across is None:
            return [list(self._captures)]
        groups: dict[tuple[int, ...], list[Capture]] = {}
        for each in self._captures:
            at = coordinates(_rank(each), self.mesh)
            key = tuple(n for name, n in at.items() if name != across)
            groups.setdefault(key, []).append(each)
        return list(groups.values())

    def _differences(self, captures: Sequence[Capture]) -> Iterator[str]:
        from ..api.differences import diff

        first, *others = classes_of(captures)
        waiting = self._waiting() if others else frozenset()
        for other in others[:MOST]:
            what = diff(first[0], other[0])
            yield f"  {self._named(other)} compared with {self._named(first)}:"
            waits = any(each.rank in waiting for each in other)
            yield from (f"      {line}" for line in orders(first[0], other[0], waits=waits))
            yield from (f"      {line}" for line in str(what).splitlines())
        yield from self._more(others)

    def _first_difference(self, groups: Iterable[Sequence[Capture]]) -> UnexpectedOps:
        """Return the ops in which the first two differing ranks differ."""
        from ..api.differences import diff

        first, other, *_ = next(c for c in map(classes_of, groups) if len(c) > 1)
        one, two = first[0], other[0]
        # UnexpectedOps shows the nodes of one side. If the second rank has none to show, swap.
        if not (nodes := _only_in(diff(one, two))):
            one, two, nodes = two, one, _only_in(diff(two, one))
        title = f"{self._named([two])} compared with {self._named([one])}"
        return UnexpectedOps(two.graphs, nodes, title)

    def _named(self, captures: Sequence[Capture]) -> str:
        ranks = [_rank(each) for each in captures]
        if len(ranks) > 1:
            return format_ranks(ranks)
        return f"rank {ranks[0]} ({format_mesh(coordinates(ranks[0], self.mesh))})"

    @property
    def world_size(self) -> int:
        """Number of ranks in the mesh, captured or not."""
        return math.prod(self.mesh.values())


def load(path: str | Path) -> Capture | Ranks:
    """Return the graphs that a `.tgraph` file holds: a `Capture`, or `Ranks` if it has ranks.

    Raises:
        GraphFormatError: if the file is malformed, with line and column, or if it holds only op
            counts.
        OSError: if the file cannot be read.
    """
    from ..api.existing import loaded

    file = Path(path)
    program = parse_file(read_text(file), file)
    if not program.sections:
        return loaded(program, file)
    captures = []
    for rank, own in program.of_rank.items():
        made = loaded(own, file)
        made.settle(rank)
        captures.append(made)
    return Ranks(captures, program.mesh)


def _only_in(found: GraphDiff) -> list[Node]:
    """Return the nodes of the second side that were added, changed or rewired."""
    return [*found.added, *(node for _, node in found.changed), *(n for _, n in found.rewired)]


def classes_of(
    captures: Sequence[Capture], by: Callable[[Capture], object] = lambda capture: capture
) -> list[list[Capture]]:
    """Partition captures into classes of equal captures, in order of first occurrence.

    Args:
        by: key function; captures with equal keys share a class.
    """
    classes: list[tuple[object, list[Capture]]] = []
    for each in captures:
        key = by(each)
        for known, those in classes:
            if known == key:
                those.append(each)
                break
        else:
            classes.append((key, [each]))
    return [those for _, those in classes]


def format_stuck(each: Stuck, waiting: Iterable[Stuck]) -> str:
    """Format the collective that a deadlocked rank waits in, and the ranks that it waits for.

    Args:
        waiting: all deadlocked ranks. If two ranks of one group have the same kind and bytes but
            differ otherwise, the details are added.
    """
    others = format_ranks([rank for rank in each.ranks if rank != each.capture.rank])
    what = sent(each.collective)
    beside = (sent(other.collective) for other in waiting if other.ranks == each.ranks)
    differ = any(other.text == what.text and other != what for other in beside)
    said = f"{what.text} ({what.details})" if differ else what.text
    return f"rank {each.capture.rank} waits in {said} for {others}: {place(each.collective)}"


def _rank(capture: Capture) -> int:
    assert capture.rank is not None
    return capture.rank
