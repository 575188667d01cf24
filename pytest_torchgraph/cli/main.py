"""`python -m pytest_torchgraph`: read, compare and draw stored graphs.

    show FILE                print the graphs; as git's textconv
    diff OLD NEW             print the difference of two files or directories; as git's difftool
    review [DIR]             go through the graphs that differ, by cause, and store them
    render FILE OUT          draw the graphs, or with --against=OLD the difference
    export FILE [NEW]        write graphs for model-explorer, of two files with what corresponds
    merge FILE... -o OUT     put together the pages, or the audit baselines, of several runs

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
from . import diff, export, merge, render, review, show
from .formats import SAME, TROUBLE, printable

COMMANDS = (show, diff, review, render, export, merge)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: the words of the command line; None (the default) for those of this process.

    Returns:
        the exit code, see `exit_codes`.

    Raises:
        SystemExit: with code 2 for arguments that argparse refuses, 0 after `--help`.
    """
    words = _today(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(words)
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


def _today(words: Sequence[str]) -> Sequence[str]:
    """Translate the commands of release 0.2, which stay for one release."""
    match list(words):
        case ["compare", *rest]:
            return ["diff", *rest]
        case ["accept", *rest]:  # a directory was given as --from=DIR or --from DIR
            rest = [word for word in rest if word != "--from"]
            ours = [word for word in rest if not word.startswith("--from=")]
            theirs = [word.removeprefix("--from=") for word in rest if word.startswith("--from=")]
            return ["review", "--accept", *ours, *theirs]
        case ["audit", "merge", output, *shards]:
            return ["merge", *shards, "-o", output]
    return words


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pytest_torchgraph", description="Stored graphs (.tgraph files)."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_command(commands)
    return parser
