"""`python -m pytest_torchgraph`: read, compare and draw stored graphs.

    show FILE              print the graphs; as git's textconv
    diff OLD NEW           print the difference; as git's difftool
    compare OLD NEW        the same over all files of two directories, by cause
    review [DIR]           go through the graphs that differ, by cause, and accept them
    accept --from=DIR      the same without asking
    merge PAGES -o FILE    put the pages of several runs together
    audit merge            put together what CI shards recorded with --torchgraph-audit
    render FILE OUT        draw the graphs, or with --against=OLD the difference
    export FILE [NEW]      write graphs for model-explorer, of two files with what corresponds

None imports torch but `show --cost` and `--heat=flops` of render and export, because the formulas
are torch's.

Exit codes are those of diff: 0 where nothing differs, 1 where something does, 2 for trouble.

Each command is a module beside this one, with `add_command`, which declares its arguments, and
`run`, which gives the exit code. What `run` needs it imports itself, so that `--help` is fast.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from ..errors import TorchGraphError
from . import accept, audit, compare, diff, export, merge, render, review, show
from .exit_codes import SAME, TROUBLE
from .formats import printable

COMMANDS = (show, diff, compare, review, accept, render, export, merge, audit)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: the words of the command line; None (the default) for those of this process.

    Returns:
        the exit code, see `exit_codes`.

    Raises:
        SystemExit: with code 2 for arguments that argparse refuses, 0 after `--help`.
    """
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the pager was left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return SAME
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        print("pytest_torchgraph: FLOPs need torch, which is not installed", file=sys.stderr)
        return TROUBLE
    except (TorchGraphError, OSError) as error:
        lines = str(error).splitlines()
        print(
            "\n".join(map(printable, [f"pytest_torchgraph: {lines[0]}", *lines[1:]])),
            file=sys.stderr,
        )
        return TROUBLE
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pytest_torchgraph", description="Stored graphs (.tgraph files)."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_command(commands)
    return parser
