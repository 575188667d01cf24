"""The blocks of a series: `fold_series` decides which instances of a container share lines.

Instances with equal skeletons form a cluster. A cluster has its own block, or joins the block of
another cluster with exceptions. Sizes are part of a line: instances of other sizes share a block
only if few lines have them. Blocks with sizes as formals were half as long for a convolutional
network, and one edit changed hundreds of their lines.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...words import grouped
from .block_writer import BlockWriter
from .runs import MIN_INSTANCES, LineRun, Lines

MIN_SAVED = 6
"""Minimum number of lines that a block must save."""
MIN_SHARE = 0.4
"""Minimum share of the instances' lines that a block must save. Below it, folding hurts reading."""
MIN_SHARE_OF_TWO = 0.25
"""The same for two instances, of which a block saves at most half.

An edit of one of two equal layers changes few lines as long as it needs changes of at most half of
them. Then the block stays, and the edited layer has exceptions."""
MIN_SAVED_BY_TWO = 10
"""Minimum number of lines that a block must save if there are only two instances."""
MAX_CHANGES = 0.75
"""Maximum changes of a single instance, as a share of the block's lines.

An instance with more changes is written out.
"""
MAX_CHANGES_OF_SEVERAL = 0.4
"""Maximum changes of several equal instances, as a share of the block's lines.

Equal instances with more changes have their own block.
"""
FEW_CHANGES = 4
"""Number of changes that are always written as exceptions, even in a short block."""
MAX_BLOCKS = 8
"""Maximum number of blocks per container. It also limits the comparisons per instance."""
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
    return [
        one_series
        for one_series in series
        if len(one_series) >= MIN_INSTANCES
        or (len(one_series) == 2 and min(map(len, one_series)) > MIN_SAVED_BY_TWO)
    ]


def fold_series(runs: Sequence[LineRun], depth: int) -> list[BlockWriter]:
    """Return the blocks of a series, with their instances.

    Args:
        runs: runs of one container, each instance once.
        depth: number of enclosing blocks plus one.
    """
    by_skeleton = grouped((run.skeleton_and_names[0], run) for run in runs if run.foldable)
    clusters = _sort_clusters(list(by_skeleton.values()))
    if sum(map(len, clusters)) < 2:
        return []
    blocks: list[BlockWriter] = []
    for cluster in clusters:
        block, written = _closest_block(blocks, cluster)
        if block is None:
            is_most_typical = cluster is clusters[0]
            # A block with one instance saves nothing. Only the most typical cluster may begin such
            # a block: the other instances are likely to join it with exceptions.
            if (len(cluster) == 1 and not is_most_typical) or len(blocks) == MAX_BLOCKS:
                continue
            letter = chr(ord("a") + len(blocks)) if blocks else ""
            others = [run for run in runs if run is not cluster[0] and run.foldable]
            block = BlockWriter(cluster, letter, depth, others)
            blocks.append(block)
            written = [(block.names_of(run), ()) for run in cluster]
        for run, (names, changes) in zip(cluster, written, strict=True):
            block.add(run, names, changes)
    # Two short layers read better in full. Two blocks of a transformer do not.
    least = MIN_SAVED if len(runs) >= MIN_INSTANCES else MIN_SAVED_BY_TWO
    return [
        block for block in blocks if len(block.instances) > 1 and _saves_enough(block, runs, least)
    ]


def _saves_enough(block: BlockWriter, runs: Sequence[LineRun], least: int) -> bool:
    """Return True if a block saves at least `least` lines, and a share of all its lines."""
    lines = sum(map(len, block.instances))
    share = MIN_SHARE if len(block.instances) > 2 else MIN_SHARE_OF_TWO
    return block.count_saved_lines(runs) >= max(least, share * lines)


Written = list[tuple[tuple[str | None, ...], tuple[str, ...]]]
"""Names and exceptions of each run of a cluster."""


def _closest_block(
    blocks: list[BlockWriter], cluster: Cluster
) -> tuple[BlockWriter | None, Written]:
    """Return the block that needs the fewest changes for a cluster.

    Also return the names and exceptions of each run. The block is `None` if every block needs too
    many changes.
    """
    run = cluster[0]
    # With a limit of 0.4 for single instances, one more op in T5's first layer added 150 lines to
    # the text and removed 47. With 0.75, it adds 10.
    share = MAX_CHANGES if len(cluster) == 1 else MAX_CHANGES_OF_SEVERAL
    closest: BlockWriter | None = None
    written: Written = []
    for block in blocks:
        max_changes = max(FEW_CHANGES, share * len(block.slots))
        if written:
            max_changes = min(max_changes, len(written[0][1]) - 1)
        if max(len(run), len(block.first)) - run.count_common(block.first) > max_changes:
            continue
        # The first run stands for the cluster. The other runs have the same skeleton, so they need
        # more changes only if their names do not fit the formals.
        names, changes = block.names_and_changes(run)
        if len(changes) <= max_changes:
            closest, written = block, [(names, changes)]
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
