"""`Ranks`: the captures of several ranks of one model, and what they have to have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, overload

from ..errors import GraphFormatError
from ..graph.collectives import Collective
from ..graph.text.files import parse_any_file, read_text
from ..graph.text.ranks import RanksDocument
from ..words import format_ranks
from .fake_group import coordinates

if TYPE_CHECKING:
    from ..api.result import Capture

MOST = 3
"""How many kinds of ranks that differ a message shows; the rest is counted."""
MOST_COLLECTIVES = 12
"""How many collectives of one order a message shows."""


class Ranks(Sequence["Capture"]):
    """The captures of several ranks, in the order in which they were asked for.

    A sequence: `ranks[0]` is the first capture, and `.rank` of each capture is its rank.

    Attributes:
        mesh: the sizes of the mesh by the names of its dimensions.
        ranks: the numbers of the ranks.
    """

    def __init__(self, captures: Sequence[Capture], mesh: Mapping[str, int]):
        self._captures = tuple(captures)
        self.mesh = dict(mesh)
        self.ranks = tuple(each.rank for each in captures)

    @classmethod
    def load(cls, path: str | Path) -> Ranks:
        """The ranks that a stored file holds; of `load`, the graphs of one capture.

        Raises:
            GraphFormatError: if the file is malformed, with line and column; and if it holds the
                graphs of one capture, or op counts only.
            OSError: if it cannot be read.
        """
        from ..api.existing import loaded

        file = Path(path)
        document = parse_any_file(read_text(file), file)
        if not isinstance(document, RanksDocument):
            raise GraphFormatError(
                "the graphs of one capture, no ranks: read them with pytest_torchgraph.load",
                path=str(path),
            )
        captures = []
        for rank in document.ranks:
            made = loaded(document.of_rank[rank], file)
            made.settle(rank)
            captures.append(made)
        return cls(captures, document.mesh)

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
        mesh = ", ".join(f"{name}={size}" for name, size in self.mesh.items())
        return f"<Ranks of {mesh}: {format_ranks(self.ranks)}>"

    def assert_same_graphs(self, across: str | None = None) -> None:
        """Assert that ranks have the same graphs.

        Args:
            across: a dimension of the mesh: only ranks that differ in no other coordinate are
                compared with each other. None compares all.

        Raises:
            AssertionError: with the ranks that differ and how; and where they do not communicate in
                the same order, with both orders, for then they would wait for each other for ever.
            ValueError: for a dimension that the mesh does not have, and where no two of the ranks
                are to be compared.
        """
        __tracebackhide__ = True
        groups = self._alike_but_for(across)
        problems = [line for group in groups for line in self._differences(group)]
        if problems:
            of = "" if across is None else f" across {across!r}"
            raise AssertionError("\n".join([f"ranks have different graphs{of}:", *problems]))

    def assert_same_collectives(self, across: str | None = None) -> None:
        """Assert that ranks communicate in the same order: kinds, groups and bytes.

        Less than `assert_same_graphs`: each rank may compute on numbers of its own, as on the part
        of a vocabulary that it has. Ranks of a pipeline, which send and receive, are not alike.

        Args:
            across: as in `assert_same_graphs`.

        Raises:
            AssertionError: with the ranks that differ, and both orders; and where no rank
                communicates at all.
            ValueError: as `assert_same_graphs`.
        """
        __tracebackhide__ = True
        groups = self._alike_but_for(across)
        if not any(each.collectives for each in self._captures):
            raise AssertionError("no rank communicates, so that they have no order to agree on")
        problems: list[str] = []
        for group in groups:
            first, *others = classes_of(group, lambda each: list(map(_sent, each.collectives)))
            for other in others[:MOST]:
                problems.append(f"  {self._named(other)} beside {self._named(first)}:")
                problems += [f"      {line}" for line in _orders(first[0], other[0])]
        if problems:
            of = "" if across is None else f" across {across!r}"
            raise AssertionError("\n".join([f"ranks communicate differently{of}:", *problems]))

    def _alike_but_for(self, across: str | None) -> list[list[Capture]]:
        """The captures to compare with each other, in groups.

        Raises:
            ValueError: for a dimension that the mesh does not have, and where there are no two.
        """
        if across is not None and across not in self.mesh:
            raise ValueError(
                f"the mesh has no dimension {across!r}: it has {', '.join(map(repr, self.mesh))}"
            )
        groups = self._groups(across)
        if all(len(group) < 2 for group in groups):
            of = "" if across is None else f" that differ in {across!r} alone"
            raise ValueError(f"there are no two ranks{of}, so nothing can be compared: {self!r}")
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
        from ..api.existing import diff

        first, *others = classes_of(captures)
        for other in others[:MOST]:
            what = diff(first[0], other[0])
            yield f"  {self._named(other)} beside {self._named(first)}:"
            yield from (f"      {line}" for line in _orders(first[0], other[0]))
            yield from (f"      {line}" for line in str(what).splitlines())
        if others[MOST:]:
            rest = [each for other in others[MOST:] for each in other]
            yield f"  and {self._named(rest)} in {len(others) - MOST} more ways"

    def _named(self, captures: Sequence[Capture]) -> str:
        ranks = [_rank(each) for each in captures]
        if len(ranks) > 1:
            return format_ranks(ranks)
        at = ", ".join(f"{name}={n}" for name, n in coordinates(ranks[0], self.mesh).items())
        return f"rank {ranks[0]} ({at})"

    @property
    def world_size(self) -> int:
        """How many ranks the mesh has, captured or not."""
        return math.prod(self.mesh.values())


def classes_of(
    captures: Sequence[Capture], by: Callable[[Capture], object] = lambda capture: capture
) -> list[list[Capture]]:
    """The captures in classes of equal ones, each class where its first one stands.

    Args:
        by: what is compared of each.
    """
    classes: list[list[Capture]] = []
    for each in captures:
        for known in classes:
            if by(known[0]) == by(each):
                known.append(each)
                break
        else:
            classes.append([each])
    return classes


def _rank(capture: Capture) -> int:
    assert capture.rank is not None
    return capture.rank


def _orders(first: Capture, other: Capture) -> Iterator[str]:
    """Where two ranks communicate in another order: both orders, from the first difference on."""
    left, right = ([_sent(each) for each in capture.collectives] for capture in (first, other))
    if left == right:
        return
    pairs = list(zip_longest(left, right))
    start = next(number for number, (one, two) in enumerate(pairs) if one != two)
    yield (
        "they do not communicate in the same order, so that they would wait for each other for "
        f"ever, from collective {start} on:"
    )
    width = max(len(one or "nothing") for one, _ in pairs)
    for number, (one, two) in enumerate(pairs[start : start + MOST_COLLECTIVES], start):
        yield f"  {number:>3}  {two or 'nothing':<{width}}  beside  {one or 'nothing'}"
    if len(pairs) > start + MOST_COLLECTIVES:
        yield f"  ... and {len(pairs) - start - MOST_COLLECTIVES} more"


def _sent(each: Collective) -> str:
    size = "?" if each.bytes is None else f"{each.bytes}"
    return f"{each.kind} over {each.group or '?'}, {size} bytes"
