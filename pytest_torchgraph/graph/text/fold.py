"""`fold`: write repeated modules once. `expand` is the inverse.

The lines of a graph keep their order. Consecutive lines of one instance form a run. Runs with equal
lines become one block and one line that lists the instances. A run with almost equal lines shares
the block, and the lines that differ follow as exceptions. The docstring of `expand` has the
grammar.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeGuard

from ...errors import GraphFormatError
from ..diff import align_items
from ..model import INPUT_OPS
from .expand import expand
from .format import EAGER_VERSION, FACTS_VERSION, VERSION
from .ranges import Instance, merge_ranges
from .runs import (
    MIN_INSTANCES,
    NAME,
    OTHER,
    OWN,
    STRING,
    LineRun,
    Lines,
    key_of,
    outward,
    shared_path,
    split_runs,
)

MIN_SAVED = 6
"""Minimum number of lines that a block must save."""
MIN_SHARE = 0.4
"""Minimum share of the instances' lines that a block must save. Below it, folding hurts reading."""
MIN_SAVED_BY_TWO = 20
"""Minimum number of lines that a block must save if there are only two instances."""
MAX_SIZES = 12
"""Maximum number of sizes that an instance gives. With more sizes, its line is hard to read."""
MAX_CHANGES = 0.75
"""Maximum changes of a single instance, as a share of the block's lines.

An instance with more changes is written out.
"""
OWN_BLOCK = 0.4
"""Maximum changes of several equal instances, as a share of the block's lines.

Equal instances with more changes get their own block.
"""
FEW_CHANGES = 4
"""Number of changes that are always written as exceptions, whatever their share."""
MAX_BLOCKS = 8
"""Maximum number of blocks per container. It also limits the comparisons per instance."""
MAX_BASES = 12
"""Number of clusters that are compared to find the most typical one. The largest are chosen."""

Cluster = list[LineRun]
"""Runs with the same skeleton."""


class SeriesPattern:
    """A block under construction. Its methods write instances as names and exceptions.

    Attributes:
        letter: distinguishes the block from other blocks of the container; "" for the first block.
        sign: sign of the block's formals.
        first: the run that gives the block its lines.
        bag: lines of the skeleton of `first`, with the number of their occurrences.
        formal_columns: for each formal, the index of its first use among a run's names from outside
            the instance, as in `LineRun.parts`.
        size: number of formals.
        slots: for each line, its values in order. A value is the number of a formal, from 0, or a
            name that all instances share.
    """

    def __init__(self, cluster: Cluster, letter: str, depth: int, others: Sequence[LineRun]):
        self.letter = letter
        self.sign = "$" * depth
        self.first = cluster[0]
        self.bag = Counter(self.first.skeleton)
        columns: list[tuple[str, ...]]
        if len(cluster) > 1:
            columns = list(zip(*(run.parts[1] for run in cluster), strict=True))
            fixed = {column for column in columns if len(set(column)) == 1}
        else:
            columns = [(name,) for name in self.first.parts[1]]
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
        self.size = len(numbers)
        queue = iter(slots)
        self.slots = [[next(queue) for _ in names] for names in self.first.others]

    def block_lines(self) -> list[str]:
        """Return the lines of the block, indented like the lines of an instance."""
        return [self.block_line(k) for k in range(len(self.slots))]

    def block_line(self, k: int) -> str:
        """Return one line of the block."""
        names = [
            slot if isinstance(slot, str) else f"{self.sign}{slot + 1}" for slot in self.slots[k]
        ]
        return fill_names(self.first.skeleton[k], names)

    def instance(
        self, run: LineRun, names: tuple[str | None, ...], changes: tuple[str, ...]
    ) -> Instance:
        """Return an instance of the block with its names and exceptions."""
        return Instance(
            *(run.container, run.number, self.letter, self.sign, names, changes, run.indent)
        )

    def names_of(self, run: LineRun) -> tuple[str, ...]:
        """Return the name that a run of the same cluster gives for each formal."""
        return tuple(run.parts[1][column_number] for column_number in self.formal_columns)

    def names_and_changes(self, run: LineRun) -> tuple[tuple[str | None, ...], tuple[str, ...]]:
        """Return the names and the exceptions of a run of another cluster.

        The name is `None` for a formal that no shared line uses.
        """
        names_by_slot: dict[int, str] = {}
        same: dict[int, int] = {}
        for k, j in sorted(align_items(self.first.skeleton, run.skeleton)):
            new = dict(names_by_slot)
            for slot, name in zip(self.slots[k], run.others[j], strict=True):
                if isinstance(slot, str):
                    # A fixed name is equal in all instances. A line with a different name becomes
                    # an exception.
                    if slot != outward(name):
                        break
                # A formal has one name per instance. The first aligned line that uses the formal
                # decides the name; a later line with a different name becomes an exception.
                elif new.setdefault(slot, name) != name:
                    break
            else:
                names_by_slot = new
                same[k] = j
        # An exception writes its sizes as numbers: a dimension can be equal to a size by chance.
        formals = {
            name: f"{self.sign}{slot + 1}"
            for slot, name in names_by_slot.items()
            if name[0] in "%@$"
        }

        def write_line(j: int) -> str:
            names = [formals.get(name, outward(name)) for name in run.others[j]]
            return fill_names(run.skeleton[j], names).lstrip(" ")

        lines = [self.block_line(k).lstrip(" ") for k in range(len(self.slots))]
        changes = tuple(_exceptions(lines, same, len(run), write_line))
        return tuple(names_by_slot.get(slot) for slot in range(self.size)), changes


def fill_names(skeleton: str, names: Sequence[str]) -> str:
    """Return a line of a skeleton with names in place of its placeholders."""
    parts = skeleton.replace(OWN, "%").split(OTHER)
    return "".join(part + name for part, name in zip(parts, [*names, ""], strict=True))


def _differing_names(run: LineRun, others: Sequence[LineRun]) -> set[str]:
    """Return the names of a run that differ from the names of the most similar other run."""
    bag = Counter(run.skeleton)
    most_similar = max(others, key=lambda other: _count_common(bag, Counter(other.skeleton)))
    return {
        own_name
        for k, j in align_items(run.skeleton, most_similar.skeleton)
        for own_name, other_name in zip(run.others[k], most_similar.others[j], strict=True)
        if own_name != other_name
    }


def _exceptions(
    block: list[str], same: dict[int, int], length: int, write_line: Callable[[int], str]
) -> Iterator[str]:
    """Return the exceptions that turn a block into one instance.

    Args:
        block: lines of the block.
        same: maps the index of each shared line in the block to its index in the instance. Both
            indices increase.
        length: number of lines of the instance.
        write_line: returns a line of the instance, given its index.
    """
    keys = [key_of(line) for line in block]
    indices_by_key: defaultdict[str, list[int]] = defaultdict(list)
    for index, key in enumerate(keys):
        indices_by_key[key].append(index)
    # `expand` has passed all lines of the block before this index. Only exceptions move it, so it
    # has not passed the shared lines since the last exception.
    reader_position = 0

    def reach(index: int) -> Iterator[str]:
        """Emit anchors, so that the reader skips earlier lines with the same key."""
        nonlocal reader_position
        equal = indices_by_key[keys[index]]
        for passed in equal[bisect_left(equal, reader_position) : bisect_left(equal, index)]:
            yield f"@ {keys[passed]}"
            reader_position = passed + 1

    anchors = [*sorted(same.items()), (len(block), length)]
    k = j = 0
    # Each pass handles one gap: the lines of block and instance between two shared lines.
    for next_k, next_j in anchors:
        removed, added = range(k, next_k), range(j, next_j)
        texts = [write_line(line) for line in added]
        # The next added line belongs before this line of the block.
        block_position: int = k
        text_indices = {key_of(text): index for index, text in enumerate(texts)}
        # Number of the instance's lines in this gap that have been written so far.
        written_count = 0
        for index in removed:
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
                if text_index > written_count and reader_position < block_position:
                    yield from reach(block_position - 1)
                    yield f"@ {keys[block_position - 1]}"
                    reader_position = block_position
                yield from (f"+ {text}" for text in texts[written_count:text_index])
                yield from reach(index)
                yield f"~ {texts[text_index]}"
                written_count = text_index + 1
            reader_position = block_position = index + 1
        if texts[written_count:]:
            if reader_position < block_position:
                yield from reach(block_position - 1)
                yield f"@ {keys[block_position - 1]}"
                reader_position = block_position
            yield from (f"+ {text}" for text in texts[written_count:])
        k, j = next_k + 1, next_j + 1


# -- series ----------------------------------------------------------------------------------------


def fold_series(
    runs: Sequence[LineRun], depth: int
) -> tuple[dict[Lines, Instance], list[SeriesPattern]]:
    """Fold the instances of a container.

    An instance first tries the blocks that have its own sizes. Instances left over share a block if
    they differ only in sizes.

    Args:
        runs: runs of one container, each instance once.
        depth: number of enclosing blocks plus one.

    Returns:
        The folded instances by run, and the blocks.
    """
    folded = _fold_same_sizes(runs, depth)
    best = _fold_other_sizes(runs, depth, *folded)
    # Two equal instances among several of other sizes: one block for all of them may be shorter.
    members = Counter(instance.letter for instance in folded[0].values())
    if 2 in members.values() and len(runs) > 2:
        alternative = _fold_other_sizes(runs, depth, {}, [])
        best = max(best, alternative, key=lambda result: _count_all_saved_lines(runs, *result))
    return best


def _fold_other_sizes(
    runs: Sequence[LineRun],
    depth: int,
    instances_by_run: dict[Lines, Instance],
    patterns: list[SeriesPattern],
) -> tuple[dict[Lines, Instance], list[SeriesPattern]]:
    """Fold instances that differ in sizes; return them together with the folded ones.

    Args:
        runs, depth: see `fold_series`.
        instances_by_run, patterns: the instances that are folded already, and their blocks.
    """
    instances_by_run, patterns = {**instances_by_run}, [*patterns]
    left = [run for run in runs if run.foldable and run not in instances_by_run]
    counts = Counter(run.own_names for run in left)
    by_skeleton: defaultdict[str, Cluster] = defaultdict(list)
    # Stages of a convolutional network differ only in sizes. Folding them, and declaring inputs
    # where they are used, shortens resnet18 from 178 lines to 78.
    for run in left:
        if counts[run.own_names] > 1:
            by_skeleton[run.sized.parts[0]].append(run)
    sized_patterns: list[SeriesPattern] = []
    for cluster in by_skeleton.values():
        if len(cluster) == 1 or len(patterns) == MAX_BLOCKS:
            continue
        letter = (
            chr(max(ord(existing.letter or "a") for existing in patterns) + 1) if patterns else ""
        )
        pattern = SeriesPattern([run.sized for run in cluster], letter, depth, ())
        instances: dict[Lines, Instance] = {
            run: pattern.instance(run, pattern.names_of(run.sized), ()) for run in cluster
        }
        sizes = sum(name[0] not in "%@$" for name in pattern.names_of(cluster[0].sized))
        saved = _count_saved_lines(pattern, cluster, instances)
        min_saved = MIN_SAVED_BY_TWO if len(cluster) == 2 else MIN_SAVED
        if sizes <= MAX_SIZES and saved >= max(min_saved, MIN_SHARE * sum(map(len, cluster))):
            instances_by_run.update(instances)
            patterns.append(pattern)
            sized_patterns.append(pattern)
    if sized_patterns:
        longest = max(len(pattern.slots) for pattern in sized_patterns)
        for run in left:
            # A run of twice the length needs more than `MAX_CHANGES`.
            if run in instances_by_run or len(run) > 2 * longest:
                continue
            closest, written = _closest_pattern(sized_patterns, [run.sized])
            # The exceptions take three more lines: the instance, `but` and its `}`.
            if closest is not None and len(run) - len(written[0][1]) - 3 >= MIN_SAVED:
                instances_by_run[run] = closest.instance(run, *written[0])
    return instances_by_run, patterns


def _fold_same_sizes(
    runs: Sequence[LineRun], depth: int
) -> tuple[dict[Lines, Instance], list[SeriesPattern]]:
    """Fold instances with equal sizes. Instances with few exceptions share a block."""
    by_skeleton: defaultdict[str, Cluster] = defaultdict(list)
    for run in runs:
        if run.foldable:
            by_skeleton[run.parts[0]].append(run)
    clusters = _sort_clusters(list(by_skeleton.values()))
    if sum(map(len, clusters)) < MIN_INSTANCES:
        return {}, []
    patterns: list[SeriesPattern] = []
    instances_by_run: dict[Lines, Instance] = {}
    for cluster in clusters:
        pattern, written = _closest_pattern(patterns, cluster)
        if pattern is None:
            is_most_typical = cluster is clusters[0]
            # A block with one instance saves nothing. Only the most typical cluster may begin such
            # a block: the other instances are likely to join it with exceptions.
            if (len(cluster) == 1 and not is_most_typical) or len(patterns) == MAX_BLOCKS:
                continue
            letter = chr(ord("a") + len(patterns)) if patterns else ""
            others = [run for run in runs if run is not cluster[0] and run.foldable]
            pattern = SeriesPattern(cluster, letter, depth, others)
            patterns.append(pattern)
            written = [(pattern.names_of(run), ()) for run in cluster]
        for run, (names, changes) in zip(cluster, written, strict=True):
            instances_by_run[run] = pattern.instance(run, names, changes)
    return instances_by_run, _keep_worthwhile(runs, instances_by_run, patterns)


def _keep_worthwhile(
    runs: Sequence[LineRun], instances_by_run: dict[Lines, Instance], patterns: list[SeriesPattern]
) -> list[SeriesPattern]:
    """Return the blocks that save enough lines. Drop the instances of the other blocks in place."""
    worthwhile: list[SeriesPattern] = []
    for pattern in patterns:
        members = [
            run
            for run in runs
            if run in instances_by_run and instances_by_run[run].letter == pattern.letter
        ]
        # Two short layers read better in full. Two blocks of a transformer do not.
        least = MIN_SAVED if len(runs) >= MIN_INSTANCES else MIN_SAVED_BY_TWO
        min_saved = max(least, MIN_SHARE * sum(map(len, members)))
        if len(members) > 1 and _count_saved_lines(pattern, members, instances_by_run) >= min_saved:
            worthwhile.append(pattern)
        else:
            for run in members:
                del instances_by_run[run]
    return worthwhile


def _count_all_saved_lines(
    runs: Sequence[LineRun], instances: dict[Lines, Instance], patterns: Sequence[SeriesPattern]
) -> int:
    return sum(
        _count_saved_lines(pattern, members, instances)
        for pattern in patterns
        if (
            members := [
                run for run in runs if run in instances and instances[run].letter == pattern.letter
            ]
        )
    )


def _count_saved_lines(
    pattern: SeriesPattern, runs: Sequence[LineRun], instances: dict[Lines, Instance]
) -> int:
    ranges = merge_ranges(instances[run] for run in runs)
    cost = len(pattern.slots) + 2 + sum(len(instance_range.lines()) for instance_range in ranges)
    return sum(map(len, runs)) - cost


Written = list[tuple[tuple[str | None, ...], tuple[str, ...]]]
"""Names and exceptions of each run of a cluster."""


def _closest_pattern(
    patterns: list[SeriesPattern], cluster: Cluster
) -> tuple[SeriesPattern | None, Written]:
    """Return the block that a cluster fits with the fewest changes.

    Also return the names and exceptions of each run. The block is `None` if the cluster would need
    too many changes in every block.
    """
    bag = Counter(cluster[0].skeleton)
    best: tuple[int, SeriesPattern, tuple[tuple[str | None, ...], tuple[str, ...]]] | None = None
    for pattern in patterns:
        # With a limit of 0.4 for single instances, one more op in T5's first layer added 150 lines
        # to the text and removed 47. With 0.75, it adds 10.
        share = MAX_CHANGES if len(cluster) == 1 else OWN_BLOCK
        max_changes = max(FEW_CHANGES, share * len(pattern.slots))
        if best is not None:
            max_changes = min(max_changes, best[0] - 1)
        common = _count_common(bag, pattern.bag)
        if max(bag.total() - common, pattern.bag.total() - common) > max_changes:
            continue
        # Only the first run is compared with the limit. The other runs have the same skeleton, so
        # they need more changes only if their names do not fit the formals.
        written = pattern.names_and_changes(cluster[0])
        if len(written[1]) <= max_changes:
            best = len(written[1]), pattern, written
    if best is None:
        return None, []
    pattern = best[1]
    return pattern, [best[2], *(pattern.names_and_changes(run) for run in cluster[1:])]


def _count_common(a: Counter[str], b: Counter[str]) -> int:
    if len(a) > len(b):
        a, b = b, a
    return sum(min(count, b[line]) for line, count in a.items() if line in b)


def _sort_clusters(clusters: list[Cluster]) -> list[Cluster]:
    """Sort clusters, the most typical first.

    The most typical cluster has the fewest lines that differ from the lines of the other instances.
    Of equally typical clusters, the cluster with the lowest instance number comes first. Clusters
    beyond the `MAX_BASES` largest come last.
    """
    clusters = sorted(clusters, key=lambda c: (-len(c), min(run.number for run in c)))
    bags = [(Counter(c[0].skeleton), len(c)) for c in clusters]
    bases = bags[:MAX_BASES]

    def distance(bag: Counter[str]) -> int:
        return sum(
            # The symmetric difference. When clusters were sorted by size, T5's irregular first
            # layer became the block. The overlap would favour supersets.
            count * (bag.total() + other.total() - 2 * _count_common(bag, other))
            for other, count in bases
        )

    distances = [distance(bag) if index < MAX_BASES else 0 for index, (bag, _) in enumerate(bags)]
    return [
        cluster
        for _, cluster in sorted(
            enumerate(clusters),
            key=lambda item: (
                item[0] >= MAX_BASES,
                distances[item[0]],
                min(run.number for run in item[1]),
            ),
        )
    ]


MAX_INSIDE = 20
"""Maximum nesting of instances that is searched. Networks have three or four levels."""

_VERSION = re.compile(rf"torchgraph [{VERSION}{EAGER_VERSION}{FACTS_VERSION}](?:\n|\Z)")
_ONLY_IN_FACTS = re.compile(r" +(?:each [^ ]*(?:_|\*[^ ]*)\*|[^% ][^{]*\$[0-9]+ = -?[0-9])")
"""A line that requires version 4.

It is an `each` line whose path ends in `_` or contains another `*`, or the line of an instance that
gives a size.
"""
_LINE = re.compile(
    rf"( +)(?:%({STRING}|{NAME})(?: = (\w+\.?|\x22)|,\Z)|save %({STRING}|{NAME})\Z|"
    rf"[^ ].*,\Z)"
)


def fold(text: str, parts: Iterable[str | Lines] | None = None) -> str:
    """Return the text with repeated modules written once, in version 2 or 4 of the format.

    `expand` restores the text byte for byte. Only the version in the first line may differ: it is 4
    if the folded text requires version 4. The text is returned unchanged if nothing repeats, if it
    is folded already, if it is malformed, or if it exceeds the limits of `expand`.

    Args:
        parts: the result of `split_sections(text)`, if already computed.
    """
    # These characters would not survive the round trip: skeletons use the two placeholders, and
    # reading changes line ends.
    if OWN in text or OTHER in text or "\r" in text:
        return text
    folded = folded_unchecked(text, parts)
    if folded is None:
        return text
    # Never write a text that does not expand to the original: such a file could not be compared.
    try:
        return folded if expand(folded) == _with_version_line(folded, text) else text
    except GraphFormatError:
        return text


def _with_version_line(folded: str, text: str) -> str:
    """Return the unfolded text with the first line that `expand` writes for the folded text."""
    first = f"torchgraph {FACTS_VERSION}\n"
    return first + text.partition("\n")[2] if folded.startswith(first) else text


def folded_unchecked(text: str, parts: Iterable[str | Lines] | None = None) -> str | None:
    """Return the folded text before the round-trip check, or `None` if nothing repeats."""
    if not _VERSION.match(text):
        return None
    out: list[str] = []
    changed = False
    for part in split_sections(text) if parts is None else parts:
        if isinstance(part, str):
            out.append(part)
        else:
            folded = _fold_lines(part, 1)
            changed = changed or len(folded) != len(part)
            out.extend(folded)
    if not changed:
        return None
    # Releases that know only version 2 must reject these blocks instead of misreading them.
    facts = out[0] == f"torchgraph {FACTS_VERSION}" or any(map(_ONLY_IN_FACTS.match, out))
    first = f"torchgraph {FACTS_VERSION if facts else EAGER_VERSION}"
    return "\n".join([first, *out[1:]])


def split_sections(text: str) -> list[str | Lines]:
    """Split a text into single lines and groups of lines in which modules may repeat.

    The groups are the inputs of a graph, its other nodes, the values of a long return, and the
    saved values.
    """
    parts: list[str | Lines] = []
    section = Lines([], [])
    section_kind: object = None
    for text_line in text.split("\n"):
        match = _LINE.match(text_line)
        if match is None:
            section_kind = None
            parts.append(text_line)
            continue
        indent, name, op, saved = match.groups()
        if op:
            line_kind: object = (len(indent), "input" if op in INPUT_OPS else "node")
        else:
            line_kind = (len(indent), "save" if saved else "value")
        if line_kind != section_kind:
            section_kind = line_kind
            section = Lines([], [])
            parts.append(section)
        section.texts.append(text_line)
        section.names.append(_unquoted_name(name or saved))
    return parts


def _fold_lines(lines: Lines, depth: int, inside: int = 0) -> list[str]:
    """Return the lines of a section or a block with repeated instances folded.

    Args:
        depth: number of enclosing blocks plus one.
        inside: number of enclosing instances, folded or not.
    """
    # A hostile name can have any number of numbered components, and each takes a nested call.
    if inside >= MAX_INSIDE or len(lines) < MIN_SAVED:
        return lines.texts
    return _Folder(depth).fold(split_runs(lines, ""), inside)


class _Folder:
    """Folds the lines of one section or block.

    Attributes:
        depth: number of enclosing blocks plus one.
        instances: folded instances, by run.
        heads: lines of each block, by the first run that uses the block.
    """

    def __init__(self, depth: int):
        self.depth = depth
        self.instances: dict[Lines, Instance] = {}
        self.heads: dict[Lines, list[str]] = {}

    def fold(self, runs: Sequence[LineRun | Lines], inside: int) -> list[str]:
        """Return the lines of runs with repeated instances folded.

        Args:
            inside: number of enclosing instances, folded or not.
        """
        for series in _group_into_series(runs):
            # A stage with instances of a shared block has no blocks of its own.
            if not any(run in self.instances for run in series):
                self.add(series[0].container, series, fold_series(series, self.depth), inside)
        inner_runs: dict[Lines, list[LineRun | Lines]] = {}
        if inside + 1 < MAX_INSIDE:
            for run in runs:
                if self.is_unfolded(run) and len(run) >= MIN_SAVED:
                    inner_runs[run] = split_runs(run, run.instance)
            self.fold_stages([*chain.from_iterable(inner_runs.values())], inside + 1)
        out: list[str] = []
        # Instances that may still share a line with the next instance.
        waiting: list[Instance] = []

        def flush() -> None:
            for instance_range in merge_ranges(waiting):
                out.extend(instance_range.lines())
            waiting.clear()

        for run in runs:
            instance = self.instances.get(run)
            if instance is None or run in self.heads:
                flush()
            if instance is not None:
                out.extend(self.heads.get(run, ()))
                waiting.append(instance)
            elif run in inner_runs:
                out.extend(self.fold(inner_runs[run], inside + 1))
            else:
                out.extend(run.texts)
        flush()
        return out

    def is_unfolded(self, run: LineRun | Lines) -> TypeGuard[LineRun]:
        """Return True for an instance that is not folded."""
        return isinstance(run, LineRun) and run not in self.instances

    def fold_stages(self, runs: Sequence[LineRun | Lines], inside: int) -> None:
        """Fold instances of several stages together, if this saves enough lines.

        A Swin transformer has the layers `features.1.0` to `features.7.1`. The first number is the
        stage, and stages differ in sizes. All stages can share the block `features.*.*`.
        """
        for series in _group_into_series(runs, shared_path):
            if len({run.container for run in series}) == 1:
                continue
            # `kinds`: the lines that stay if each stage folds its equal layers. `by_names`: fewer
            # lines cannot stay if the stages also share blocks.
            kinds = {(run.container, run.parts[0]): run for run in series}
            by_names = {run.own_names: run for run in kinds.values()}
            lines_apart = sum(map(len, kinds.values()))
            if lines_apart - sum(map(len, by_names.values())) < MIN_SAVED_BY_TWO:
                continue
            together = _fold_other_sizes(series, self.depth, {}, [])
            saved_apart = sum(map(len, series)) - lines_apart
            if _count_all_saved_lines(series, *together) >= saved_apart + MIN_SAVED_BY_TWO:
                self.add(shared_path(series[0].container), series, together, inside)

    def add(
        self,
        path: str,
        runs: Sequence[LineRun],
        folded: tuple[dict[Lines, Instance], list[SeriesPattern]],
        inside: int,
    ) -> None:
        """Add folded instances and their blocks.

        Args:
            path: path of the blocks up to their last `*`.
            runs: runs that were folded.
            folded: their result: the instances by run, and the blocks.
            inside: number of instances around the runs, folded or not.
        """
        instances, patterns = folded
        self.instances.update(instances)
        for pattern in patterns:
            first = next(
                run for run in runs if run in instances and instances[run].letter == pattern.letter
            )
            letter = f" {pattern.letter}" if pattern.letter else ""
            body = _fold_lines(_block_to_lines(pattern.block_lines()), self.depth + 1, inside + 1)
            self.heads[first] = [
                f"{first.indent}each {path}*{letter} {{",
                *(f"  {line}" for line in body),
                f"{first.indent}}}",
            ]


def _group_into_series(
    runs: Sequence[LineRun | Lines], path_of: Callable[[str], str] = lambda container: container
) -> list[list[LineRun]]:
    """Group runs whose blocks have the same path into series in which no instance repeats.

    Args:
        path_of: returns the path of a container's blocks.
    """
    series: list[list[LineRun]] = []
    current: dict[str, list[LineRun]] = {}
    instances: defaultdict[str, set[str]] = defaultdict(set)
    for run in runs:
        if not isinstance(run, LineRun):
            continue
        path = path_of(run.container)
        # No reordering is needed: the lines of an instance are contiguous in forward and backward
        # graphs. A second call of a layer starts a new series.
        if path not in current or run.instance in instances[path]:
            current[path] = []
            series.append(current[path])
            instances[path] = set()
        current[path].append(run)
        instances[path].add(run.instance)
    return [
        one_series
        for one_series in series
        if len(one_series) >= MIN_INSTANCES
        or (len(one_series) == 2 and min(map(len, one_series)) > MIN_SAVED_BY_TWO)
    ]


def _block_to_lines(texts: list[str]) -> Lines:
    """Return the lines of a block. Names of the instance begin with a dot or a slash in it."""
    matches = map(_LINE.match, texts)
    return Lines(texts, [_unquoted_name(match and (match[2] or match[4])) for match in matches])


def _unquoted_name(name: str | None) -> str:
    """Return the name of a line, or "" for a quoted name, which belongs to no instance."""
    # A quoted name among the lines of an instance once made the whole text unfoldable.
    return "" if name is None or name[0] == '"' else name
