"""Selection of nodes by the dtype and device of their results, by module and by annotation.

A selection that could not match anything is rejected, because a check of it would always pass.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from ..device_types import KNOWN
from ..ops.dtypes import dtype_name
from ..words import listed
from .census import OpCall, calls
from .model import Graph, Node, Result, TensorMeta

ANY_VALUE = object()
"""Stands for any value of an annotation."""
_WITHOUT_INDEX = ("cpu", "meta")
"""Device types with only one device, whose tensors have no index in a graph."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter of nodes; "" matches anything.

    Attributes:
        dtype: name of the dtype of a tensor result. For an op without tensor results, such as
            `_foreach_add_`, the tensors that it writes count instead.
        module: glob for the path of the node's module, or of an enclosing module.
        device: device of a tensor result, with or without index. For an op without tensor results,
            the tensors that it writes count instead.
        annotation: keys of the node's annotations, with values; `ANY_VALUE` for any value.
    """

    dtype: str = ""
    module: str = ""
    device: str = ""
    annotation: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.dtype or self.module or self.device or self.annotation)

    def __contains__(self, call: OpCall) -> bool:
        if self.annotation and not _is_annotated(call.node, self.annotation.items()):
            return False
        if self.module and not any(inside(module, self.module) for module in call.modules):
            return False
        if not self.dtype and not self.device:
            return True
        return any(self._matches_tensor(tensor) for tensor in tensors_of(call))

    def times(self, call: OpCall) -> int:
        """Return the number of runs of a selected call in matching modules.

        Only the module divides the runs of a call: the other filters select all of them, or none.
        """
        if not self.module:
            return call.times
        return sum(times for module, times in call.modules.items() if inside(module, self.module))

    def _matches_tensor(self, tensor: TensorMeta) -> bool:
        device = tensor.device or ""
        if ":" not in self.device:
            device = device.partition(":")[0]
        return self.dtype in ("", tensor.dtype) and self.device in ("", device)

    def __str__(self) -> str:
        parts = [
            self.dtype and f"dtype {self.dtype}",
            self.device and f"on {self.device}",
            self.module and f"in module {self.module!r}",
            *[
                f"annotated {key!r}{'' if value is ANY_VALUE else f': {value!r}'}"
                for key, value in self.annotation.items()
            ],
        ]
        return ", ".join(filter(None, parts))


def selection(
    graphs: Sequence[Graph],
    dtype: Any = None,
    module: str | None = None,
    device: Any = None,
    annotation: str | Mapping[str, Any] | None = None,
) -> Selection:
    """Return the selection for the arguments `dtype`, `module`, ... of a check.

    Args:
        graphs: graphs to select from.
        dtype: a `torch.dtype` or its name, such as `"float32"` or `"f32"`; `None` for any.
        module: path of a module, or a glob; submodules are included.
        device: a `torch.device` or its name, such as `"cuda"` or `"cuda:1"`; `None` for any.
        annotation: key of an annotation, or a mapping of keys to values; `None` for any node.

    Raises:
        TypeError: for an argument of another type.
        ValueError: for an unknown dtype or device, for a module without nodes in the graphs, for a
            key that no node has, or if the graphs do not record the dtypes or devices of their
            results.
    """
    chosen = Selection(
        "" if dtype is None else dtype_name(dtype),
        "" if module is None else _check_module(module, graphs),
        "" if device is None else _check_device(device),
        {} if annotation is None else _check_annotation(annotation, graphs),
    )
    if chosen.dtype or chosen.device:
        _refuse_unknown_results(graphs, chosen)
    return chosen


def inside(path: str, glob: str) -> bool:
    """Return True if a module's path, or the path of an enclosing module, matches a glob."""
    return any(fnmatchcase(ancestor, glob) for ancestor in ancestors(path))


@lru_cache(maxsize=4096)
def ancestors(path: str) -> tuple[str, ...]:
    """Return the paths of a module and its enclosing modules, outermost first; empty for ""."""
    parts = path.split(".") if path else []
    return tuple(".".join(parts[: n + 1]) for n in range(len(parts)))


def path_prefix(path: str, depth: int | None) -> str:
    """Return the first components of a module's path, at most `depth`; `None` for all."""
    return ".".join(path.split(".")[:depth])


def tensors(result: Result) -> Iterator[TensorMeta]:
    """Yield the tensors of a result."""
    if isinstance(result, TensorMeta):
        yield result
    elif isinstance(result, tuple):
        for item in result:
            yield from tensors(item)


def tensors_of(call: OpCall) -> list[TensorMeta]:
    """Return the tensors that a call returns, or the tensors that it writes if it returns none."""
    return [*tensors(call.result)] or [*tensors(call.written)]


def nodes_of(graphs: Iterable[Graph]) -> Iterator[Node]:
    """Yield the nodes of graphs and of their bodies."""
    for top in graphs:
        for graph in top.walk():
            yield from graph.nodes


def _check_module(module: Any, graphs: Sequence[Graph]) -> str:
    """Return a module path or glob that matches a module with nodes; see `selection`."""
    if not isinstance(module, str):
        raise TypeError(f"{module!r} is not a module path: pass a string such as 'encoder.layer.*'")
    known_paths = {path for node in nodes_of(graphs) for path in ancestors(node.module)}
    # Several modules may share a body, or a graph.
    if any(graph.subgraphs or len(graph.calls or ()) > 1 for graph in graphs):
        running = (path for call in calls(graphs) for path in call.modules)
        known_paths.update(path for running_path in running for path in ancestors(running_path))
    if not any(fnmatchcase(path, module) for path in known_paths):
        outermost = sorted({path.partition(".")[0] for path in known_paths} - {""})
        hint = module_hint(module, known_paths, outermost) or f"{NO_PATHS}, or omit module="
        raise ValueError(f"no op was captured in a module that matches {module!r}: {hint}")
    return module


NO_PATHS = "these graphs have no module paths: pass the model itself to graph_capture"


def module_hint(glob: str, paths: Iterable[str], choices: Collection[str]) -> str:
    """Return the paths that are similar to a glob, or else all choices; "" without choices."""
    if close := difflib.get_close_matches(glob, sorted(paths), n=3):
        return f"did you mean {', '.join(close)}?"
    return f"choose from {listed(choices, 10)}" if choices else ""


def _is_annotated(node: Node, wanted: Iterable[tuple[str, Any]]) -> bool:
    """Return True if a node has all of these annotations."""
    return all(
        key in node.annotations and (value is ANY_VALUE or node.annotations[key] == value)
        for key, value in wanted
    )


def _check_annotation(annotation: Any, graphs: Sequence[Graph]) -> Mapping[str, Any]:
    """Return annotations that nodes have, with `ANY_VALUE` for a key alone; see `selection`."""
    wanted = {annotation: ANY_VALUE} if isinstance(annotation, str) else annotation
    if not isinstance(wanted, Mapping) or not wanted or not all(isinstance(k, str) for k in wanted):
        raise TypeError(
            f"annotation={annotation!r} is neither a key nor a mapping: pass 'stage' or "
            "{'stage': 1}"
        )
    known = sorted({key for node in nodes_of(graphs) for key in node.annotations})
    for key in wanted:
        if key not in known:
            hint = (
                f"keys: {listed(known, 10)}"
                if known
                else "no node has any. Annotate with torch.fx.traceback.annotate, and capture via "
                "'aot', 'dynamo', 'export' or 'inductor'; a stored file has no annotations"
            )
            raise ValueError(f"no node has the annotation {key!r}: {hint}")
    return wanted


def _check_device(device: Any) -> str:
    """Return the name of a device as graphs have it; see `selection`."""
    if not isinstance(device, str) and type(device).__name__ != "device":
        raise TypeError(
            f"{device!r} is not a device: pass a torch.device or its name, such as 'cuda'"
        )
    kind, separator, index = str(device).partition(":")
    if kind not in KNOWN or (separator and not index.isdecimal()):
        raise ValueError(f"unknown device {str(device)!r}: choose from {', '.join(KNOWN)}")
    return kind if kind in _WITHOUT_INDEX else str(device)


def _refuse_unknown_results(graphs: Sequence[Graph], chosen: Selection) -> None:
    """Reject a filter by dtype or device if no result is described.

    Raises:
        ValueError: if no result is described, so that nothing could match.
    """
    described = [tensor for node in nodes_of(graphs) for tensor in tensors(node.result)]
    if chosen.device and not any(tensor.device for tensor in described):
        raise ValueError(
            f"device={chosen.device!r} matches nothing: these graphs do not record the devices "
            "of their results. Omit device=, or if they come from a file, store it with "
            'detail="full"'
        )
    if chosen.dtype and not described:
        raise ValueError(
            f"dtype={chosen.dtype!r} matches nothing: these graphs do not record the dtypes of "
            "their results. Omit dtype=, or run torch.fx.passes.shape_prop.ShapeProp on the traced "
            "module first"
        )
