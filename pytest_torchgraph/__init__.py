"""pytest-torchgraph: assert on, store and diff the graphs of a PyTorch model.

Public names are imported on first use, so importing the package imports neither torch nor pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .doors import front_door

if TYPE_CHECKING:
    from .api.capture import GraphCapture as GraphCapture
    from .api.capture import capture as capture
    from .api.check_pass import check_pass as check_pass
    from .api.existing import from_fx as from_fx
    from .api.existing import to_fx as to_fx
    from .api.result import Capture as Capture
    from .api.testcase import GraphTestCase as GraphTestCase
    from .api.warm_start import Restart as Restart
    from .api.warm_start import restart as restart
    from .api.watch import steady as steady
    from .api.watch import watch as watch
    from .errors import CaptureError as CaptureError
    from .errors import GraphFormatError as GraphFormatError
    from .errors import TorchGraphError as TorchGraphError
    from .graph.blocks import BlockKind as BlockKind
    from .graph.collectives import Collective as Collective
    from .graph.cost import Cost as Cost
    from .graph.cost import Recomputed as Recomputed
    from .graph.diff import Change as Change
    from .graph.diff import FilesDiff as FilesDiff
    from .graph.diff import Finding as Finding
    from .graph.diff import GraphDiff as GraphDiff
    from .graph.diff import Place as Place
    from .graph.divergence import Divergence as Divergence
    from .graph.events import Frozen as Frozen
    from .graph.events import GraphBreak as GraphBreak
    from .graph.model import Graph as Graph
    from .graph.model import Node as Node
    from .graph.model import Source as Source
    from .graph.model import TensorMeta as TensorMeta
    from .graph.pattern import Match as Match
    from .mechanisms.compiled_autograd import CompiledAutograd as CompiledAutograd
    from .mechanisms.dispatch import Dispatch as Dispatch
    from .mechanisms.torch_compile import Aot as Aot
    from .mechanisms.torch_compile import Dynamo as Dynamo
    from .mechanisms.torch_compile import Inductor as Inductor
    from .mechanisms.torch_compile import PassRun as PassRun
    from .mechanisms.tracers import Export as Export
    from .mechanisms.tracers import Fx as Fx
    from .ops.matching import OpCounts as OpCounts
    from .ranks.capture_ranks import capture_ranks as capture_ranks
    from .ranks.ranks import Ranks as Ranks
    from .ranks.ranks import load as load
    from .runs.differences import diff as diff
    from .runs.run_texts import RunCause as RunCause
    from .runs.run_texts import RunDiff as RunDiff
    from .snapshot.inline import assert_graph_text as assert_graph_text
    from .syncs.model import Sync as Sync
    from .syncs.model import Transfer as Transfer
    from .watching.cache_lookups import CacheBypass as CacheBypass
    from .watching.cache_lookups import CacheLookup as CacheLookup
    from .watching.guards import FailedGuard as FailedGuard
    from .watching.kernels import Kernel as Kernel
    from .watching.output_code import CudagraphSkip as CudagraphSkip
    from .watching.recompiles import Recompile as Recompile
    from .watching.record import EagerCall as EagerCall
    from .watching.trace_log import Log as Log

__version__ = "0.3.0"

_NAMES = {
    "api.capture": "GraphCapture capture",
    "api.check_pass": "check_pass",
    "api.existing": "from_fx to_fx",
    "api.result": "Capture",
    "api.testcase": "GraphTestCase",
    "api.warm_start": "Restart restart",
    "api.watch": "steady watch",
    "errors": "CaptureError GraphFormatError TorchGraphError",
    "graph.blocks": "BlockKind",
    "graph.collectives": "Collective",
    "graph.cost": "Cost Recomputed",
    "graph.diff": "Change FilesDiff Finding GraphDiff Place",
    "graph.divergence": "Divergence",
    "graph.events": "Frozen GraphBreak",
    "graph.model": "Graph Node Source TensorMeta",
    "graph.pattern": "Match",
    "mechanisms.compiled_autograd": "CompiledAutograd",
    "mechanisms.dispatch": "Dispatch",
    "mechanisms.torch_compile": "Aot Dynamo Inductor PassRun",
    "mechanisms.tracers": "Export Fx",
    "ops.matching": "OpCounts",
    "ranks.capture_ranks": "capture_ranks",
    "ranks.ranks": "Ranks load",
    "runs.run_texts": "RunCause RunDiff",
    "runs.differences": "diff",
    "snapshot.inline": "assert_graph_text",
    "syncs.model": "Sync Transfer",
    "watching.cache_lookups": "CacheBypass CacheLookup",
    "watching.guards": "FailedGuard",
    "watching.kernels": "Kernel",
    "watching.output_code": "CudagraphSkip",
    "watching.recompiles": "Recompile",
    "watching.record": "EagerCall",
    "watching.trace_log": "Log",
}
"""Modules of the public names. `if TYPE_CHECKING` repeats them for type checkers."""

__all__ = sorted(name for names in _NAMES.values() for name in names.split())

_import = front_door(__name__, _NAMES)


def __getattr__(name: str) -> Any:
    """Import a public name, or raise the error that says which torch it needs."""
    try:
        return _import(name)
    except (ImportError, AttributeError):
        if name in __all__:  # torch is missing or too old
            from .torch_release import need_torch

            need_torch()
        raise


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
