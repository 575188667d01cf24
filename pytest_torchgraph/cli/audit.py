"""`audit merge`: put together the baselines that the shards of a CI run recorded."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .exit_codes import SAME


def add_command(commands: Any) -> None:
    """Declare the command and its arguments.

    Args:
        commands: the subparsers of argparse.
    """
    parser = commands.add_parser("audit", help="work with baselines of --torchgraph-audit")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    merging = actions.add_parser(
        "merge",
        help="put together what several CI shards recorded",
        description="Write into BASELINE what several runs of pytest --torchgraph-audit=record, "
        "which all began with that file (or all without one), have recorded, each in a copy of it.",
    )
    merging.add_argument("baseline", metavar="BASELINE", type=Path, help="the file to write")
    merging.add_argument("shards", metavar="SHARD", type=Path, nargs="+", help="what a run wrote")
    merging.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Merge the baselines.

    Raises:
        BaselineError: for a file that is no baseline.
        TorchGraphError: where the result cannot be written.
    """
    from ..audit.baseline import merge, read, to_text
    from ..snapshot.files import write_text

    base = read(options.baseline) if options.baseline.exists() else None
    merged = merge([read(path) for path in options.shards], base)
    write_text(options.baseline, to_text(merged))
    tests = sum(len(section.tests) for section in merged.values())
    print(f"{options.baseline}: {tests} {'test' if tests == 1 else 'tests'}")
    return SAME
