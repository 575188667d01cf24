"""`pytest-torchgraph`: read, compare and draw stored graphs.

    show FILE                print the graphs; as git's textconv
    diff OLD NEW             print the difference of two files or directories; as git's difftool
    review [DIR]             review the graphs that differ, by cause, and store them
    render FILE OUT          draw the graphs, or with --against=OLD the difference
    merge FILE... -o OUT     combine the pages, audit baselines or saved runs of several shards

`python -m pytest_torchgraph` would do the same, but puts the working directory first on the import
path, and so runs an `argparse.py` of a stranger's branch.

Only `show --cost` and `render --heat=flops` import torch, for its FLOP formulas.

The exit codes are as in the `diff` utility: 0 if nothing differs, 1 if something differs, 2 after
an error.

Each command is a module of this package. Its `add_command` declares the arguments, and its `run`
returns the exit code. `run` imports the modules that it needs, so that `--help` is fast.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from ..errors import TorchGraphError
from ..words import printable
from . import diff, merge, render, review, show
from .formats import EXIT_PIPE, EXIT_TROUBLE

COMMANDS = (show, diff, review, render, merge)


class _SafeStream:
    """A stream that prints the text of a stranger's files without commands; see `words.one_line`.

    Args:
        stream: stdout or stderr.
    """

    def __init__(self, stream: Any):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> None:
        """Write a text."""
        self._stream.write(printable(text))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: the words of the command line; `None` (the default) for the arguments of this
            process.

    Returns:
        the exit code, see `formats`.

    Raises:
        SystemExit: with code 2 for arguments that argparse refuses, 0 after `--help`.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # Windows encodings may lack characters of a name
            stream.reconfigure(errors="backslashreplace")
    safe: Any = _SafeStream
    # A stream is `None` if the shell closed it, as by `>&-`.
    out, err = (safe(stream or io.StringIO()) for stream in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    """Run one command. An error that a user can mend is a line on stderr, without a traceback."""
    options = _parser().parse_args(arguments)
    code: int = EXIT_PIPE
    try:
        code = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the user quit the pager
        # Python flushes stdout again at exit. That flush must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        print("pytest_torchgraph: FLOPs require torch, which is not installed", file=sys.stderr)
        return EXIT_TROUBLE
    except (TorchGraphError, OSError) as error:
        print(f"pytest_torchgraph: {error}", file=sys.stderr)
        return EXIT_TROUBLE
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pytest-torchgraph", description="Commands for stored graphs (.tgraph files)."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_command(commands)
    return parser
