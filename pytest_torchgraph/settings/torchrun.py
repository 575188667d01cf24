"""Which of several processes this one is, where `torchrun` or another launcher started them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def rank_of_process(environ: Mapping[str, str]) -> str:
    """The rank of this process as `rank-1-of-2`; "" where it is the only one.

    It is read once, when pytest starts: a test may set these variables for a group of its own.

    Args:
        environ: the environment, with the `RANK` and `WORLD_SIZE` that torchrun sets.
    """
    rank, world = environ.get("RANK", ""), environ.get("WORLD_SIZE", "")
    if not (rank.isascii() and rank.isdecimal() and world.isascii() and world.isdecimal()):
        return ""
    return f"rank-{int(rank)}-of-{int(world)}" if int(rank) < int(world) != 1 else ""


def pytest_command(rank: str) -> list[str]:
    """The words that start pytest, in as many processes as there are now.

    Args:
        rank: that of this process, see `rank_of_process`.
    """
    world = rank.rpartition("-")[2]
    return ["torchrun", f"--nproc-per-node={world}", "-m", "pytest"] if rank else ["pytest"]


def of_process(path: Path, rank: str) -> Path:
    """A report that each process writes: the first one that very file, another one beside it.

    Args:
        path: the file that was asked for.
        rank: that of this process, see `rank_of_process`.
    """
    return path if rank.startswith("rank-0-") else own_file(path, rank)


def own_file(path: Path, rank: str) -> Path:
    """A file that is kept, and that each of several processes has one of; the only one that file.

    Args:
        path, rank: as of `of_process`.
    """
    return path.with_name(f"{path.stem}@{rank}{path.suffix}") if rank else path
