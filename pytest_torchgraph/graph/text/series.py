"""The blocks of a series: `fold_series` decides which instances of a container share lines.

Instances with equal skeletons form a cluster. A cluster has its own block, or joins the block of
another cluster with exceptions. Sizes are part of a line: instances of other sizes share a block
only if few lines have them. Blocks with sizes as formals were half as long for a convolutional
network, and one edit changed hundreds of their lines.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from ...words import grouped
from .block_writer import BlockWriter, Written
from .runs import LineRun, Lines

MIN_SAVED = 5
"""Minimum number of lines that a block must save."""
MIN_SAVED_BY_TWO = 7
"""The same for two instances. Two short layers read better in full."""
MIN_SHARE = 0.8
"""Minimum number of lines that an instance has from a block, as a share of the lines of both."""
MIN_SHARE_OF_BLOCK = 0.7
"""The same as a share of the block's lines, for an instance that is not so alike with any other.

Edits move an instance across this limit, and change all its lines. With this value that happened in
9 of 270 edits of models, with 0.6 in 21.
"""
EDITED_LINES = 2
"""Number of lines in which an instance may always differ: those of an edited op and its reader."""
MAX_BLOCKS = 20
"""Maximum number of blocks per container. It also limits the comparisons per instance."""
MAX_ALIGNED = 3
"""Maximum number of blocks with which an instance is aligned, those with the most common lines."""
MAX_BASES = 12
"""Maximum number of clusters, largest first, among which the most typical one is chosen."""

Cluster = list[LineRun]
"""Runs with the same skeleton."""


def group_into_series(runs: Sequence[LineRun | Lines]) -> list[list[LineRun]]:
    """Group runs into series. A series has one container, and no instance repeats in it."""
    series: list[list[LineRun]] = []
    current: dict[str, list[LineRun]] = {}
    numbers: dict[str, set[int]] = {}
    for run in runs:
        if not isinstance(run, LineRun):
            continue
        # No reordering is needed: the lines of an instance are contiguous in forward and backward
        # graphs. A second call of a layer starts a new series.
        container = run.container
        if container not in current or run.number in numbers[container]:
            current[container] = []
            series.append(current[container])
            numbers[container] = set()
        current[container].append(run)
        numbers[container].add(run.number)
    return [one_series for one_series in series if len(one_series) > 1]


def fold_series(runs: Sequence[LineRun], depth: int) -> list[BlockWriter]:
    """Return the blocks of a series, with their instances.

    Args:
        runs: runs of one container, each instance once.
        depth: number of enclosing blocks plus one.
    """
    runs = [run for run in runs if run.foldable]
    if len(runs) < 2:
        return []
    by_skeleton = grouped((run.skeleton_and_names[0], run) for run in runs)
    clusters = _sort_clusters(list(by_skeleton.values()))
    blocks: list[BlockWriter] = []
    # Instances with much in common first. Otherwise two layers that lost their likeness by an edit
    # would each become an exception of a third.
    for share, of_block in ((MIN_SHARE, False), (MIN_SHARE_OF_BLOCK, True)):
        for cluster in clusters:
            if any(cluster[0] in block.instances for block in blocks):
                continue
            block, written = _closest_block(blocks, cluster, share, of_block=of_block)
            if block is None:
                if len(blocks) == MAX_BLOCKS:
                    continue
                others = [run for run in runs if run is not cluster[0]]
                block = BlockWriter(cluster, depth, others)
                blocks.append(block)
                written = [(block.names_of(run), ()) for run in cluster]
            block.instances.update(zip(cluster, written, strict=True))
        blocks = [block for block in blocks if _saves_enough(block)]
    # In the order of the text: an edit must not exchange the letters of two blocks.
    position = {run: index for index, run in enumerate(runs)}
    blocks.sort(key=lambda block: min(position[run] for run in block.instances))
    for number, block in enumerate(blocks):
        block.letter = chr(ord("a") + number) if number else ""
    return blocks


def _saves_enough(block: BlockWriter) -> bool:
    """Return True if a block is worth its lines.

    Exceptions do not count: otherwise one edit of an instance dissolves the block of all.
    """
    count = len(block.instances)
    saved = (count - 1) * len(block.slots) - 2 - count
    return saved >= (MIN_SAVED if count > 2 else MIN_SAVED_BY_TWO)


def _closest_block(
    blocks: list[BlockWriter], cluster: Cluster, share: float, *, of_block: bool
) -> tuple[BlockWriter | None, list[Written]]:
    """Return the block that needs the fewest changes for a cluster.

    Also return the names and exceptions of each run. The block is `None` if every block needs too
    many changes.

    Args:
        share: minimum number of lines that the cluster has from the block, as a share.
        of_block: the share is of the block's lines, not of the longer one's of both.
    """
    run = cluster[0]
    closest: BlockWriter | None = None
    written: list[Written] = []
    most = len(run)
    # Aligning two instances takes the time of their product.
    likely = heapq.nlargest(MAX_ALIGNED, blocks, key=lambda block: run.count_common(block.first))
    for block in likely:
        length = len(block.slots)
        if of_block:
            least = min(share * length, length - EDITED_LINES)
        else:
            least = share * max(len(run), length)
        if run.count_common(block.first) < least:
            continue
        # The first run stands for the cluster. The other runs have the same skeleton, so they need
        # more changes only if their names do not fit the formals.
        names, changes = block.names_and_changes(run)
        kept = len(run) - sum(change.startswith(("+", "~")) for change in changes)
        if kept >= least and len(changes) < min(most, len(run) - 1):
            closest, written, most = block, [(names, changes)], len(changes)
    if closest is not None:
        written += map(closest.names_and_changes, cluster[1:])
    return closest, written


def _sort_clusters(clusters: list[Cluster]) -> list[Cluster]:
    """Sort clusters, the most typical first.

    The most typical cluster has the fewest lines that differ from the lines of the other instances.
    Of equally typical clusters, the cluster with the lowest instance number comes first. Clusters
    beyond the `MAX_BASES` largest come last.
    """

    def number(cluster: Cluster) -> int:
        return min(run.number for run in cluster)

    def distance(cluster: Cluster) -> int:
        # The symmetric difference, because the overlap would favour supersets. Sorted by size
        # instead, T5's irregular first layer became the block.
        run = cluster[0]
        return sum(
            len(base) * (len(run) + len(base[0]) - 2 * run.count_common(base[0])) for base in bases
        )

    by_size = sorted(clusters, key=lambda cluster: (-len(cluster), number(cluster)))
    bases, rest = by_size[:MAX_BASES], by_size[MAX_BASES:]
    bases_by_distance = sorted(bases, key=lambda cluster: (distance(cluster), number(cluster)))
    return bases_by_distance + sorted(rest, key=number)
