"""Conversion of a compared value to a program, and the check for syrupy.

The package does not require syrupy, because syrupy does not work in every project. pytest-snapshot
and snapshottest define the same option, `--snapshot-update`, and pytest refuses to start with both.
syrupy also fails a run if another tool has unused files in a `__snapshots__` directory.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata, util

import pytest

from ..api.many_ranks import NO_RANKS, ManyRanks, are_ranks
from ..graph import Graph
from ..graph.equality import canonical
from ..graph.program import Program
from ..graph.text import Header
from ..words import with_article


def program_of(value: object, function: str = "graph_snapshot") -> Program:
    """Convert a compared value to a program in canonical form.

    Args:
        value: a capture; `Ranks`; a `Graph`; a `GraphModule`, `fx.Graph` or `ExportedProgram` of
            torch.
        function: the name of the function that the user called, for messages.

    Raises:
        TypeError: for any other value, with the accepted types.
        AssertionError: for a capture without graphs; for a `watch()` capture if code ran eagerly
            instead of compiled; for `Ranks` without a capture.
    """
    if are_ranks(value):
        return _of_ranks(value)
    return _of_capture(value, function)


def _of_ranks(value: ManyRanks) -> Program:
    """Convert `Ranks`, see `program_of`. Each rank is a section; a file has equal ranks in one."""
    if not len(value):
        raise AssertionError(f"nothing to compare: {NO_RANKS}")
    # In order: the file must not depend on the order in which the test asked for ranks.
    captures = dict(sorted(zip(value.ranks, value, strict=True)))
    sections = [((rank,), _of_capture(capture)) for rank, capture in captures.items()]
    return Program.of_ranks(dict(value.mesh), sections)


def _of_capture(value: object, function: str = "graph_snapshot") -> Program:
    """Convert any value except `Ranks`, see `program_of`."""
    if isinstance(value, Graph):
        return Program(Header(torch=_running_torch()), canonical((value,)))
    if _is_fx(value):
        from ..api.existing import from_fx

        return Program(Header(torch=_running_torch()), canonical((from_fx(value),)))
    # By its attributes, not `isinstance`: the class `Capture` imports torch. Refuse a class: the
    # class `Capture` itself has the attributes too, as properties.
    graphs: object = None
    if not isinstance(value, type):
        # `program` includes eager graphs.
        graphs = getattr(value, "program", None) or getattr(value, "graphs", None)
    if not isinstance(graphs, tuple) or not all(isinstance(graph, Graph) for graph in graphs):
        raise TypeError(
            f"{function} cannot compare {_article(type(value))}: pass a capture, as in "
            "`graph_capture(model, *inputs)`, one of its graphs, a torch.fx.GraphModule, a "
            "torch.fx.Graph or a torch.export.ExportedProgram"
        )
    if getattr(value, "watched", None) is not None:
        from ..checks.compilation import need_graphs

        need_graphs(value)  # type: ignore[arg-type]
    if not graphs:
        raise AssertionError(
            "nothing to compare: the capture has no graph, because nothing was compiled in the "
            "watch: call the compiled code inside it"
        )
    header = getattr(value, "header", None) or Header(torch=_running_torch())
    return Program(header, canonical(graphs))


def _is_fx(value: object) -> bool:
    """Return True if a value is a `GraphModule`, `Graph` or `ExportedProgram` of torch."""
    return any(
        # By name, not `isinstance`: a comparison of loaded graphs must not import torch.
        kind.__module__.startswith("torch.")
        and kind.__name__ in ("GraphModule", "Graph", "ExportedProgram")
        for kind in type(value).__mro__
    )


def _article(kind: type) -> str:
    """Return the full name of a class, preceded by "a" or "an"."""
    return with_article(f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."))


def _running_torch() -> str:
    """Return the release of the imported torch, as "2.13.0"; "" if torch is not imported."""
    release = str(getattr(sys.modules.get("torch"), "__version__", ""))
    return release.partition("+")[0]


PLUGIN = "syrupy"
LOWEST = (5, 3)

INSTALL = (
    "pip install 'pytest-torchgraph[snapshot]'\n"
    f"or, to keep the installed torch: pip install 'syrupy>={'.'.join(map(str, LOWEST))}'"
)
SWITCHED_OFF = (
    "graph_snapshot requires the syrupy plugin, which is disabled in this run: "
    "remove '-p no:syrupy', or deselect the tests that use graph_snapshot"
)


def why_not_stored(config: pytest.Config) -> str:
    """Return why this run cannot store or compare graphs, and the remedy; "" if it can."""
    lowest = ".".join(map(str, LOWEST))
    needs = f"graph_snapshot requires the syrupy plugin, version {lowest} or newer"
    if not config.pluginmanager.hasplugin(PLUGIN):
        if util.find_spec(PLUGIN) is None:
            return f"{needs}, but syrupy is not installed: {INSTALL}"
        return SWITCHED_OFF
    version = metadata.version(PLUGIN)
    match = re.match(r"(?a)(\d+)\.(\d+)", version)
    if match and (int(match[1]), int(match[2])) < LOWEST:
        return f"{needs}, but version {version} is installed: {INSTALL}"
    return ""
