"""The public `diff`, which compares saved runs, and all that `api.differences` compares."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, overload

from ..api import differences
from ..api.torch_files import Truncated
from ..graph.diff import GraphDiff
from .stored import is_run


@overload
def diff(
    a: str | os.PathLike[str], b: str | os.PathLike[str], *, truncated: Truncated = ...
) -> Any: ...
@overload
def diff(a: Any, b: Any = ..., *, truncated: Truncated = ...) -> GraphDiff: ...
def diff(a: Any, b: Any = None, *, truncated: Truncated = "refuse") -> Any:
    """Return the structural difference from `a` to `b`; false if they have the same dataflow.

    `print(diff(capture(old, x), capture(new, x)))` lists the findings, one for each edit.

    For captures, the diff covers the `program`: eager graphs are compared with eager graphs,
    including their run counts. If one of two graphs has no shapes at all, for example the result of
    a `torch.fx.Transformer`, shapes and dtypes are not compared.

    For ranks, each edit is one finding, and its `ranks` lists the ranks with the edit. For two
    watches or two logs of torch, a graph break or a recompile that only one side has is a finding,
    and explains the graphs of its function, which are then not compared op by op.

    For directories, including subdirectories, files with the same relative path are compared. Each
    edit is one finding, and its `files` lists the files with the edit; `GraphDiff.files` lists
    files that exist on only one side and unreadable files. Paths of `.tgraph` files are compared
    without importing torch.

    For two directories written by `--torchgraph-save-run`, the result is a `RunDiff`: each cause
    over all tests, also without importing torch.

    Args:
        a, b: two graphs or captures (a `Graph`, a `Capture`, or any argument of `from_fx`), two
            `Ranks`, or the paths of two `.tgraph` files or two directories. A graph, a capture or
            `Ranks` can also be compared with the path of a file. Without `b`, `a` is a directory
            written by `--torchgraph-artifacts`: stored graphs are compared with captured graphs.
            Other files that `load` reads may stand in place of `.tgraph` files.
        truncated: for logs, see `load`.

    Raises:
        TypeError: for other arguments, for example ranks and a capture, a file and a directory, or
            only one file.
        ValueError: if no file can have the path.
        GraphFormatError: if a file is malformed, with line and column; if one file holds a capture
            and the other ranks, or the ranks differ.
        TorchGraphError: if the ranks have different meshes or numbers, or there are no ranks; or if
            neither directory has a `.tgraph` file, because the comparison would be vacuous.
        AssertionError: for two watches without graphs, with the cause; for a watch in which code
            ran that was compiled before it.
        OSError: if a path does not exist or cannot be read.
    """
    if b is not None and (is_run(a) or is_run(b)):
        if not isinstance(a, str | os.PathLike) or not isinstance(b, str | os.PathLike):
            raise TypeError("a saved run can only be compared with a saved run")
        from .run_diff import diff_runs  # not needed for graphs

        return diff_runs(Path(a), Path(b))
    return differences.diff(a, b, truncated=truncated)
