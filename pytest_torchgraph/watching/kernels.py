"""Kernels, library calls and the schedule of collectives in inductor's code.

torch's own counter of kernels is unsuitable: for a layer norm on CPU it counts 8, although there is
one kernel. Library calls (`extern_kernels.mm`, `aten.cumsum`, a custom op) are not fused, and are
in no kernel count.

After the last graph pass, inductor reorders launches to overlap collectives with computation
(`reorder_for_compute_comm_overlap`) and to save memory. Only its code shows the final order.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .. import torch_private
from ..graph.events import ScheduledCall
from ..graph.model import Graph, Source
from ..ops.collectives import WAITS, is_functional
from ..ops.qualified import dotted
from ..words import grouped
from .output_code import EXTERN, Launch, Reader, follow

_NUMBER = re.compile(r"_\d+\Z")


@dataclass(frozen=True)
class Kernel:
    """One generated kernel, or one library call in the generated code.

    A library call runs an op that inductor generates no kernel for: BLAS and other
    `extern_kernels`, ops without an inductor lowering, copies between devices, custom ops. Views
    and allocations are not library calls.

    Attributes:
        name: name in the generated code, such as `cpp_fused_add_relu_0`; for a library call the
            callee, such as `extern_kernels.mm` or `torch.ops.aten.cumsum.default`.
        graph: name of the graph that the kernel was generated for.
        device: device type, "" if the code does not state it.
        ops: aten ops fused into the kernel, by packet; for a library call its one op.
        launches: launches in one run of the graph. All branches of a condition count, and a loop
            counts as one iteration.
        source: C++ or Triton source; for a library call the call expression.
        kind: "extern" for a library call, else the language: "cpp", "triton", or another name that
            inductor uses.
        modules: paths of the modules whose ops it computes; empty if unknown, as in a watch.
        lines: the user's lines of these ops, if known. Two kernels that differ only in `lines` are
            equal.
    """

    name: str
    graph: str
    device: str
    ops: tuple[str, ...]
    launches: int
    source: str
    kind: str
    modules: tuple[str, ...] = ()
    lines: tuple[Source, ...] = field(default=(), compare=False)

    @property
    def is_extern(self) -> bool:
        """True if this is a library call."""
        return self.kind == EXTERN

    def __repr__(self) -> str:
        word = "library call" if self.is_extern else "kernel"
        return f"<Kernel {self.name} ({word}) on {self.device}: {', '.join(self.ops) or 'no ops'}>"


@dataclass(frozen=True)
class Origin:
    """Origin of one launch, recorded while inductor wrote the call.

    Attributes:
        name: name of the kernel or of the callee.
        modules, lines: see `Kernel`.
        collective: name of the communicating node, "" if there is none.
    """

    name: str
    modules: tuple[str, ...] = ()
    lines: tuple[Source, ...] = ()
    collective: str = ""


def kernels_of(code: str, graph: str, origins: Iterable[Origin] = ()) -> list[Kernel]:
    """Return the kernels and library calls in inductor's code, ordered by first launch.

    Args:
        code: the Python module that inductor wrote.
        graph: name of the graph.
        origins: the origins of the launches, in the order in which inductor wrote them.

    Raises:
        UnreadableCodeError: if the code has another format, such as the C++ wrapper's.
    """
    packets = _read_packets()
    launched = follow(code).launched
    kernels = []
    for launch, launch_origins in zip(launched, assign_origins(launched, origins), strict=True):
        if launch.op:  # a library call: its packet, "aten.mm" for "aten.mm.out"
            ops: tuple[str, ...] = (".".join(launch.op.split(".")[:2]),)
        else:
            ops = read_fused_ops(launch.name, packets)
        modules = dict.fromkeys(module for origin in launch_origins for module in origin.modules)
        lines = dict.fromkeys(line for origin in launch_origins for line in origin.lines)
        kernels.append(
            Kernel(
                launch.name,
                graph,
                launch.device,
                ops,
                launch.launches,
                launch.source,
                launch.kind,
                tuple(modules),
                tuple(lines),
            )
        )
    return kernels


def assign_origins(launched: Sequence[Launch], origins: Iterable[Origin]) -> list[list[Origin]]:
    """Return the origins of each launch.

    A kernel gets all origins with its name. Library calls of the same name get one origin each, in
    order. They get none if the number of origins with this name differs from the number of calls.
    """
    by_name = grouped((origin.name, origin) for origin in origins)
    calls = Counter(launch.name for launch in launched if launch.op)
    for name, count in calls.items():
        if len(by_name.get(name, ())) != count:  # which origin belongs to which call is unknown
            by_name[name] = []
    assigned = []
    for launch in launched:
        own = by_name.get(launch.name, [])
        assigned.append([own.pop(0)] if launch.op and own else own)
    return assigned


def place_by_op(kernel: Kernel, graph: Graph) -> Kernel:
    """Fill in the module and line of a library call if only one node of the graph matches.

    Args:
        kernel: a library call without a known origin. Anything else is returned unchanged.
        graph: the post-grad graph that it was generated for.
    """
    if not kernel.is_extern or kernel.modules or kernel.lines:
        return kernel
    kernel_ops = {op.removesuffix("_") for op in kernel.ops}
    places = {
        (node.module, node.source)
        for subgraph in graph.walk()
        for node in subgraph.nodes
        if ".".join(node.op.split(".")[:2]).removesuffix("_") in kernel_ops
    }
    if len(places) != 1:
        return kernel
    ((module, line),) = places
    return replace(
        kernel, modules=(module,) if module else (), lines=() if line is None else (line,)
    )


def read_fused_ops(name: str, packets: frozenset[str]) -> tuple[str, ...]:
    """Return the aten packets in a kernel name such as `cpp_fused_add_native_layer_norm_0`.

    Names of packets may contain underscores, so the longest match counts. Words that are no packet
    are skipped.

    Args:
        name: the kernel name.
        packets: the names of all packets.
    """
    _, _, words = _NUMBER.sub("", name).partition("fused_")
    parts = words.split("_") if words else []
    ops: list[str] = []
    start = 0
    while start < len(parts):
        for stop in range(len(parts), start, -1):
            word = "_".join(parts[start:stop])
            if word in packets:
                ops.append(f"aten.{word}")
                start = stop
                break
        else:
            start += 1
    return tuple(dict.fromkeys(ops))


def _read_packets() -> frozenset[str]:
    """Return the names of aten's registered packets: `add` of `aten::add.Tensor`."""
    return frozenset(
        name.partition("::")[2].partition(".")[0]
        for name in torch_private.registered_ops()
        if name.startswith("aten::")
    )


_OPS = "torch.ops."


@dataclass
class _Run:
    """One run of a collective.

    Attributes:
        call: the call in the code.
        group: torch's process group name, "" if the code does not state it.
        start: number of launches before the collective starts.
        wait: number of launches before the first wait, `None` if nothing waits for it.
    """

    call: Launch
    group: str
    start: int
    wait: int | None = None


def schedule_of(
    code: str, origins: Iterable[Origin] = (), groups: Mapping[str, str] | None = None
) -> list[ScheduledCall]:
    """Return the collectives in inductor's code for a graph, ordered by start.

    A collective in a body shared by several calls runs several times. It is returned once, as the
    run with the least overlapping computation.

    Args:
        code: the Python module that inductor wrote.
        origins: the origins of the launches, in the order in which inductor wrote them.
        groups: process group names, keyed by torch's group names.

    Raises:
        UnreadableCodeError: if the code has another format, such as the C++ wrapper's.
    """
    reader = follow(code)
    # The communicating node of each launch, by id, because a `Launch` has no hash.
    nodes = {
        id(launch): next((origin.collective for origin in launch_origins), "")
        for launch, launch_origins in zip(
            reader.launched, assign_origins(reader.launched, origins), strict=True
        )
    }
    runs, launched = _follow_collectives(reader, nodes)
    by_call: dict[int, list[ScheduledCall]] = {}
    for run in runs:
        between = [] if run.wait is None else launched[run.start + 1 : run.wait]
        by_call.setdefault(id(run.call), []).append(
            ScheduledCall(
                run.call.op,
                (groups or {}).get(run.group, ""),
                nodes[id(run.call)],
                None if run.wait is None else len(between),
                tuple(name for name, computes in between if computes),
            )
        )
    # A collective in a shared body has several runs: return the run that overlaps least.
    return [
        min(collective_runs, key=lambda call: len(call.overlap))
        for collective_runs in by_call.values()
    ]


def _follow_collectives(
    reader: Reader, nodes: Mapping[int, str]
) -> tuple[list[_Run], list[tuple[str, bool]]]:
    """Find when each collective starts, and when the code waits for it.

    Args:
        reader: has followed the code.
        nodes: the communicating node of each launch, by id; "" if it computes.

    Returns:
        The runs of collectives, ordered by start, and the launches in order: name, and True if it
        computes.
    """
    launched: list[tuple[str, bool]] = []
    runs: list[_Run] = []
    pending: dict[str, _Run] = {}  # keyed by variable
    # The run whose result a launching call returns; `None` if it computes.
    values: dict[ast.expr, _Run | None] = {}
    for node, launch in reader.executed:
        if isinstance(node, ast.Assign):
            # If a pending result, or a view of it, is assigned to a variable, then the variable is
            # pending too.
            run = values[node.value] if node.value in values else _pending_run(node.value, pending)
            for name in _variables(*node.targets):
                pending.pop(name, None)
                if run is not None:
                    pending[name] = run
        elif dotted(node.func, reader.aliases).removeprefix(_OPS) in WAITS:
            run = _pending_run(node, pending)
            if run is not None and run.wait is None:
                run.wait = len(launched)
        elif launch is not None:
            sends = bool(launch.op) and (is_functional(launch.op) or bool(nodes[id(launch)]))
            values[node] = None
            if sends:
                values[node] = run = _Run(launch, _last_text(node), len(launched))
                runs.append(run)
                # These collectives write to their arguments, which are then pending.
                if launch.op.split(".")[1].endswith(("_", "_out")):
                    pending.update((name, run) for name in _written_variables(node))
            launched.append((launch.name, not sends))
    return runs, launched


def _variables(*nodes: ast.expr) -> Iterator[str]:
    for node in nodes:
        yield from (name_node.id for name_node in ast.walk(node) if isinstance(name_node, ast.Name))


def _pending_run(value: ast.expr, pending: Mapping[str, _Run]) -> _Run | None:
    """Return the run whose result a value uses, for example as a view."""
    return next((pending[name] for name in _variables(value) if name in pending), None)


def _written_variables(call: ast.Call) -> Iterator[str]:
    """Return the variables that a collective writes to: its `out`, else its first argument."""
    out = [keyword.value for keyword in call.keywords if keyword.arg == "out"]
    return _variables(*(out or call.args[:1]))


def _last_text(call: ast.Call) -> str:
    """Return the last string argument. In a collective this is torch's process group name."""
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    texts = [argument.value for argument in arguments if isinstance(argument, ast.Constant)]
    return next((text for text in reversed(texts) if isinstance(text, str)), "")
