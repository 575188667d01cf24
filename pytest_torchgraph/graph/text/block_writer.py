"""`BlockWriter`: the lines of a block, and its instances as names and exceptions.

Each instance has a line of its own. Several on one line are shorter, but two branches that edit
different layers would then change the same line, and git could not merge them. An instance that
differs from its block has exceptions: the lines of a `but`. The docstring of `expand` has their
grammar.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from ...words import grouped
from ..diff import align_items
from .names import key_of, outward
from .runs import OTHER, OWN, LineRun

Written = tuple[tuple[str | None, ...], tuple[str, ...]]
"""Name of each formal, `None` if no shared line uses the formal, and exceptions of an instance."""


class BlockWriter:
    """Writer of a block, and of its instances as names and exceptions.

    Attributes:
        letter: distinguishes the block from other blocks of the container; "" for the first block.
        sign: sign of the block's formals.
        first: the run that gives the block its lines.
        formal_columns: for each formal, the index of its first use among the names that
            `LineRun.skeleton_and_names` returns.
        slots: for each line, the values of its placeholders: the number of a formal, from 0, or a
            name that all instances share.
        instances: names and exceptions of the instances added so far.
    """

    def __init__(self, cluster: Sequence[LineRun], depth: int, others: Sequence[LineRun]):
        self.letter = ""
        self.sign = "$" * depth
        self.first = cluster[0]
        self.instances: dict[LineRun, Written] = {}
        columns: list[tuple[str, ...]]
        if len(cluster) > 1:
            columns = list(zip(*(run.skeleton_and_names[1] for run in cluster), strict=True))
            fixed = {column for column in columns if len(set(column)) == 1}
        else:
            columns = [(name,) for name in self.first.skeleton_and_names[1]]
            # A single run has one name per column. The most similar run shows which names vary.
            fixed = set(columns) - {(name,) for name in _differing_names(self.first, others)}
        # Columns with the same names in every run share one formal.
        numbers: dict[tuple[str, ...], int] = {}
        slots: list[int | str] = []
        self.formal_columns: list[int] = []
        for column_number, column in enumerate(columns):
            if column in fixed:
                slots.append(outward(column[0]))
                continue
            if column not in numbers:
                numbers[column] = len(numbers)
                self.formal_columns.append(column_number)
            slots.append(numbers[column])
        queue = iter(slots)
        self.slots = [[next(queue) for _ in names] for names in self.first.others]

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the block, indented like the lines of a run."""
        names = [
            [slot if isinstance(slot, str) else f"{self.sign}{slot + 1}" for slot in slots]
            for slots in self.slots
        ]
        return list(map(_fill_names, self.first.skeleton, names))

    def lines_of(self, run: LineRun) -> list[str]:
        """Return the line of an instance, followed by its exceptions."""
        names, changes = self.instances[run]
        line = f"{run.indent}{run.instance}"
        if self.letter:
            line += f" {self.letter}"
        given = [f"{self.sign}{number} = {name}" for number, name in enumerate(names, 1) if name]
        if given:
            line += f": {', '.join(given)}"
        if not changes:
            return [line]
        indented = [f"{run.indent}  {change}" for change in changes]
        return [line, f"{run.indent}but {run.instance} {{", *indented, f"{run.indent}}}"]

    def names_of(self, run: LineRun) -> tuple[str, ...]:
        """Return the name that a run of the same cluster gives for each formal."""
        return tuple(
            run.skeleton_and_names[1][column_number] for column_number in self.formal_columns
        )

    def names_and_changes(self, run: LineRun) -> Written:
        """Describe a run of another cluster as an instance of this block.

        `expand` has the forms of exceptions, for the lines that differ.
        """
        names_by_slot: dict[int, str] = {}
        shared: dict[int, int] = {}
        for k, j in sorted(align_items(self.first.skeleton, run.skeleton)):
            new = dict(names_by_slot)
            for slot, name in zip(self.slots[k], run.others[j], strict=True):
                if isinstance(slot, str):
                    # All instances have this name. A line with a different name becomes an
                    # exception.
                    if slot != outward(name):
                        break
                # The first aligned line that uses a formal decides its name for this instance. A
                # later line with a different name becomes an exception.
                elif new.setdefault(slot, name) != name:
                    break
            else:
                names_by_slot = new
                shared[k] = j
        # Exceptions contain sizes as numbers, because a number can equal a size by chance.
        formals = {
            name: f"{self.sign}{slot + 1}"
            for slot, name in names_by_slot.items()
            if name[0] in "%@$"
        }

        def write_line(j: int) -> str:
            names = [formals.get(name, outward(name)) for name in run.others[j]]
            return _fill_names(run.skeleton[j], names).lstrip(" ")

        lines = [line.lstrip(" ") for line in self.lines]
        changes = tuple(_exceptions(lines, shared, len(run), write_line))
        return tuple(names_by_slot.get(slot) for slot in range(len(self.formal_columns))), changes


def _fill_names(skeleton: str, names: Sequence[str]) -> str:
    """Return a line of a skeleton with names in place of its placeholders."""
    parts = skeleton.replace(OWN, "%").split(OTHER)
    return "".join(part + name for part, name in zip(parts, [*names, ""], strict=True))


def _differing_names(run: LineRun, others: Sequence[LineRun]) -> set[str]:
    """Return the names in which a run differs from the most similar of other runs."""
    most_similar = max(others, key=run.count_common)
    return {
        own_name
        for k, j in align_items(run.skeleton, most_similar.skeleton)
        for own_name, other_name in zip(run.others[k], most_similar.others[j], strict=True)
        if own_name != other_name
    }


def _exceptions(
    block: list[str], shared: dict[int, int], length: int, write_line: Callable[[int], str]
) -> Iterator[str]:
    """Yield the exceptions that turn a block into one instance.

    Args:
        block: lines of the block.
        shared: maps the index of each shared line in the block to its index in the instance. Both
            indices increase.
        length: number of lines of the instance.
        write_line: returns a line of the instance, given its index.
    """
    keys = [key_of(line) for line in block]
    indices_by_key = grouped((key, index) for index, key in enumerate(keys))
    # The reader (`expand`) has consumed the block's lines up to this index. Only exceptions advance
    # the reader, so it has not yet consumed the shared lines that follow the last exception.
    reader_position = 0

    def reach(index: int) -> Iterator[str]:
        """Emit anchors, so that the reader skips earlier lines with the same key as a line."""
        nonlocal reader_position
        equal = indices_by_key[keys[index]]
        for passed in equal[bisect_left(equal, reader_position) : bisect_left(equal, index)]:
            yield f"@ {keys[passed]}"
            reader_position = passed + 1

    def pass_lines(position: int) -> Iterator[str]:
        """Emit anchors, so that the reader passes all lines before a position."""
        nonlocal reader_position
        if reader_position < position:
            yield from reach(position - 1)
            yield f"@ {keys[position - 1]}"
            reader_position = position

    k = j = 0
    # Each pass handles one gap: the lines of block and instance between two shared lines.
    for next_k, next_j in [*sorted(shared.items()), (len(block), length)]:
        texts = [write_line(index) for index in range(j, next_j)]
        # The next added line belongs before this line of the block.
        block_position: int = k
        text_indices = {key_of(text): index for index, text in enumerate(texts)}
        # Number of the instance's lines in this gap that have been written so far.
        written_count = 0
        for index in range(k, next_k):
            text_index = text_indices.get(keys[index], -1)
            # The instance has no line with this key (-1), or has it before a line that is written
            # already. Exceptions follow the order of the block, so the line cannot be replaced.
            if text_index < written_count:
                yield from reach(index)
                yield f"- {keys[index]}"
            else:
                # The reader adds lines at its own position. Before an addition it must pass the
                # shared lines in front of the gap, because no exception has moved it past them. A
                # replacement alone needs no anchor: its key moves the reader.
                if text_index > written_count:
                    yield from pass_lines(block_position)
                yield from (f"+ {text}" for text in texts[written_count:text_index])
                yield from reach(index)
                yield f"~ {texts[text_index]}"
                written_count = text_index + 1
            reader_position = block_position = index + 1
        if texts[written_count:]:
            yield from pass_lines(block_position)
            yield from (f"+ {text}" for text in texts[written_count:])
        k, j = next_k + 1, next_j + 1
