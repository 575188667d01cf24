"""Capture through torch.compile with inductor: its post-grad graphs and its kernels."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import fx

from ... import torch_private
from ...convert import node_meta, rng_states, source_lines
from ...convert.canonical_names import CanonicalNames
from ...convert.from_fx import Converted
from ...convert.graph_modules import copied, runnable
from ...graph.collectives import communicates
from ...graph.events import ScheduledCall
from ...graph.model import Graph, GraphKind, Node, Source
from ...ops.collectives import packet_of
from ...ops.matching import Level
from ...ops.qualified import op_name
from ...watching.kernels import Kernel, Origin, kernels_of, place_by_op, schedule_of
from ...watching.output_code import UnreadableCodeError
from ..islands import CompiledGraph
from ..protocol import Captured
from ..step import Step
from .passes import PassRecorder
from .run import Backend, Frame

NO_GRAPH_CACHE = {"fx_graph_cache": False, "fx_graph_remote_cache": False}
"""Settings of inductor. With a cached graph it would neither run its passes nor write code."""


@dataclass(frozen=True)
class Inductor:
    """torch.compile with inductor: the graphs that it generates code for, and `capture.kernels`.

    Inductor's graph caches are off during the capture, so captures with cold and warm caches are
    equal. Compiled C++ and Triton code is still read from its cache. `Capture.eager` holds the ops
    that ran eagerly between the graphs.

    Args:
        dynamic, fullgraph, mode, options: as in `torch.compile`.
        codegen: with False, inductor generates the code for `Capture.kernels`, but does not
            compile, run or store it, which takes a fraction of the time. The step then runs the
            post-grad graphs op by op, so `assert_matches_eager` checks the post-grad graphs,
            including inductor's passes, but not the generated code. With options that make inductor
            benchmark (`max_autotune`), inductor still compiles the code that it measures.
        passes: True records the graph passes that inductor runs, for `Capture.passes` and
            `Capture.assert_pass`. A mapping also adds passes, as lists by their place: "pre_grad",
            "joint_pre", "joint_post", "post_grad_pre" or "post_grad_post" ("post_grad" for short).
            A pass takes a `torch.fx.Graph`. Passes that are set in `torch._inductor.config` or in
            `options` stay, and run first.
    """

    dynamic: bool | None = None
    fullgraph: bool = False
    mode: str | None = None
    options: dict[str, Any] | None = None
    codegen: bool = True
    passes: bool | Mapping[str, Sequence[Any]] | None = None

    name: ClassVar[str] = "inductor"
    level: ClassVar[Level] = "post_grad"

    def capture(self, step: Step, canon: CanonicalNames) -> Captured:
        """Compile the target with inductor, recording its graphs and code, and run the step."""
        added = self.added_passes()
        recorder = _InductorRecorder(self, step, canon, self.patches())
        if self.passes not in (None, False):
            recorder.passes = PassRecorder()
            recorder.hooks = torch_private.with_passes(added, self.patches())
        with recorder.watching():
            recorder.run()
        graphs = [compiled_graph.converted.graph for compiled_graph in recorder.compiled_graphs]
        return recorder.captured(
            kernels=functools.partial(_kernels, recorder.written, graphs),
            schedules=functools.partial(
                _schedules, recorder.written, len(graphs), dict(canon.groups)
            ),
            levels={"aot": recorder.at_aot()},
            comparable=self._drawing_as_eager() if recorder.draws() else None,
            incomparable=recorder.not_run(),
            passes=None if recorder.passes is None else recorder.passes.runs,
        )

    def added_passes(self) -> Mapping[str, Sequence[Any]]:
        """Return the passes to add, by their place.

        Raises:
            TypeError: for passes that are not lists of passes by place.
            ValueError: for an unknown place.
        """
        if self.passes is None or isinstance(self.passes, bool):
            return {}
        for key, passes in self.passes.items():
            if key not in torch_private.HOOKS:
                raise ValueError(
                    f"unknown place {key!r} in passes=: choose from "
                    f"{', '.join(torch_private.HOOKS)}"
                )
            if not isinstance(passes, list | tuple) or not all(map(_is_pass, passes)):
                raise TypeError(f"passes[{key!r}] must be a list of passes, not {passes!r}")
        return self.passes

    def patches(self) -> dict[str, Any]:
        """Return the inductor settings that `mode` and `options` select.

        Raises:
            ValueError: if the mode or an option is unknown.
        """
        patches = dict(self.options or {})
        known = torch_private.get("inductor_options")()
        for option in patches:
            if str(option).replace("-", "_") not in known:  # as in torch.compile
                raise ValueError(f"unknown option {option!r} of inductor: see torch.compile")
        if self.mode is None:
            return patches
        try:
            options_of_mode = torch_private.get("inductor_mode_options")(self.mode, self.dynamic)
        except RuntimeError as error:
            raise ValueError(str(error)) from None
        return {**options_of_mode, **patches}

    def _drawing_as_eager(self) -> Inductor:
        """Return this mechanism with torch's random numbers instead of inductor's."""
        return replace(self, options={**(self.options or {}), "fallback_random": True})


def _is_pass(value: Any) -> bool:
    """Return True for a function, or a `PatternMatcherPass`, which has the method `apply`."""
    return callable(value) or callable(getattr(value, "apply", None))


class _Written(NamedTuple):
    """The code of a graph.

    Attributes:
        graph: position of the graph.
        code: the Python module.
        origins: the ops that each call in the code computes.
    """

    graph: int
    code: str
    origins: list[Origin]


class _InductorRecorder(Backend):
    """The backend: inductor, with a record of each graph after its last pass.

    `compile_inner` replaces inductor's compiler of one graph. While it runs, our `post_grad_passes`
    (`watching`) adds the graph, and `at_code` its code.

    Attributes:
        written: the code of the graphs.
        runs: the substitutes of the compiled code, if `codegen` is False.
        lowered: the live post-grad graph whose code is not written yet.
        calls: the calls in that code; see `on_kernel_call`.
        current: frame and kind of the graph that is being compiled; `None` outside, and in bodies.
        aot: each graph with its frame, its kind, and a copy from before inductor's passes.
        passes: records the passes; `None` if this is not wanted.
        hooks: settings of inductor with the added passes.
    """

    name = "inductor"

    def __init__(
        self, options: Inductor, step: Step, canon: CanonicalNames, patches: Mapping[str, Any]
    ):
        super().__init__(options, step, canon, patches)
        self.written: list[_Written] = []
        self.runs: list[PostGradRun] = []
        self.lowered: fx.Graph | None = None
        self.calls: list[tuple[str, list[fx.Node]]] = []
        self.current: tuple[Frame, GraphKind] | None = None
        self.aot: list[tuple[CompiledGraph, Frame, GraphKind, fx.GraphModule]] = []
        self.passes: PassRecorder | None = None
        self.hooks: Mapping[str, Any] = {}

    def compile(
        self, frame: Frame, gm: fx.GraphModule, example_inputs: list[Any]
    ) -> Callable[..., Any]:
        """Run inductor, and record its graphs."""
        inner = torch_private.get("compile_fx_inner")

        def compile_inner(gm: fx.GraphModule, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            """Compile one graph of AOTAutograd, and return the callable that runs and counts it."""
            self.bypass_search.check_empty(gm, backward=kwargs.get("is_backward", False))
            outer, count = self.current, len(self.compiled_graphs)
            unchanged, kind = copied(gm), _kind(kwargs)
            (output,) = unchanged.graph.find_nodes(op="output")
            output.meta["desc"] = rng_states.descriptions_of(output)  # only available now
            self.current = (frame, kind)
            try:
                with self.islands.suspended():
                    compiled = inner(gm, inputs, *args, **kwargs)
            finally:
                self.current = outer
            if len(self.compiled_graphs) == count:  # inductor runs a graph without ops as it is
                return compiled
            compiled_graph = self.compiled_graphs[count]
            self.aot.append((compiled_graph, frame, kind, unchanged))
            if not self.options.codegen:
                compiled = PostGradRun(compiled_graph.converted, unchanged)
                self.runs.append(compiled)
            return compiled_graph.recorded(compiled, self.islands)

        patches = {**self.options.patches(), **self.hooks, **NO_GRAPH_CACHE}
        compiled: Callable[..., Any] = torch_private.get("compile_fx")(
            gm, example_inputs, inner_compile=compile_inner, config_patches=patches
        )
        return compiled

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Record each graph after the last post-grad pass, with inductor's graph caches off."""
        passes = torch_private.get("post_grad_passes")
        recursion_limit = sys.getrecursionlimit()  # inductor increases it

        def post_grad_passes(gm: fx.GraphModule, *args: Any, **kwargs: Any) -> None:
            """Run the passes, and record the graph; of a body, only run them."""
            # The passes of a body of a higher-order op run inside those of the graph.
            current, self.current = self.current, None
            if self.passes is not None and current is not None:
                self.passes.graph = str(len(self.compiled_graphs))
            try:
                passes(gm, *args, **kwargs)
            finally:
                self.current = current
                if self.passes is not None and current is not None:
                    self.passes.graph = ""
            if current is not None:
                frame, kind = current
                self.compiled_graphs.append(
                    CompiledGraph(frame.lowered(copied(gm), kind, "post_grad"))
                )
                self.lowered, self.calls = gm.graph, []

        with (
            contextlib.nullcontext()
            if self.passes is None
            else torch_private.on_passes(self.passes),
            torch_private.replaced("post_grad_passes", post_grad_passes),
            torch_private.on_kernel_call(lambda name, nodes: self.calls.append((name, nodes))),
            torch_private.structured_trace(self.trace, {"inductor_output_code"})
            if self.options.codegen
            else torch_private.code_written_only(self.at_code),
            torch_private.get("inductor_config").patch(**NO_GRAPH_CACHE),
            torch_private.get("functorch_config").patch(
                enable_autograd_cache=False, enable_remote_autograd_cache=False
            ),
        ):
            try:
                yield
            finally:
                sys.setrecursionlimit(recursion_limit)

    def at_aot(self) -> list[Converted]:
        """Return AOTAutograd's graphs, before inductor's passes."""
        graphs = []
        for compiled_graph, frame, kind, module in self.aot:
            lowered = CompiledGraph(frame.lowered(module, kind, "aot"), compiled_graph.runs).counted
            # In a training step it may be "update", which is known only after the step.
            last_kind = compiled_graph.converted.graph.kind
            graphs.append(replace(lowered, graph=replace(lowered.graph, kind=last_kind)))
        return graphs

    def draws(self) -> bool:
        """Return True if a graph draws random numbers from inductor's own generator."""
        return any(
            node.op.startswith("prims.inductor_seed")
            for compiled_graph in self.compiled_graphs
            for graph in compiled_graph.converted.graph.walk()
            for node in graph.nodes
        )

    def trace(self, metadata: dict[str, Any], payload: str) -> None:
        """Read the generated code from torch's structured trace."""
        if payload:
            self.at_code(payload)

    def at_code(self, code: str) -> None:
        """Store the code of the graph that is being compiled, and the ops of each call in it."""
        if self.compiled_graphs:
            last = self.compiled_graphs[-1].converted
            origins = origins_of(self.calls, self.lowered, last, self.named.modules)
            self.written.append(_Written(len(self.compiled_graphs) - 1, code, origins))
            self.lowered, self.calls = None, []

    def not_run(self) -> str:
        """Return why AOTAutograd's graphs ran instead of post-grad graphs, "" if they did not."""
        ops = sorted({op for run in self.runs for op in run.lowered})
        if not ops:
            return ""
        return (
            "the graphs cannot run with codegen=False, because inductor's passes insert "
            f"{', '.join(ops)}, "
            "which only generated code can compute: use Inductor()"
        )


def _kernels(written: Sequence[_Written], graphs: Sequence[Graph]) -> list[Kernel]:
    """Return the kernels and library calls of all graphs.

    Args:
        written: the code.
        graphs: the graphs of the code.

    Raises:
        UnreadableCodeError: if the launches of a graph's code are unknown.
    """
    without = len(graphs) - len({code.graph for code in written})
    if without:
        raise UnreadableCodeError(
            f"inductor reported no Python code for {without} of {len(graphs)} graphs: remove "
            "options that generate other code (fx_wrapper)"
        )
    return [
        place_by_op(kernel, graphs[code.graph])
        for code in written
        for kernel in kernels_of(code.code, str(code.graph), code.origins)
    ]


def _schedules(
    written: Sequence[_Written], graph_count: int, groups: Mapping[str, str]
) -> list[Sequence[ScheduledCall]]:
    """Return the collectives in the code of each graph, () if the code is unreadable.

    Args:
        written: the code.
        graph_count: the number of graphs.
        groups: names of process groups, by torch's names.
    """
    schedules: list[Sequence[ScheduledCall]] = [()] * graph_count
    for code in written:
        with contextlib.suppress(UnreadableCodeError):
            schedules[code.graph] = schedule_of(code.code, code.origins, groups)
    return schedules


def _kind(kwargs: dict[str, Any]) -> GraphKind:
    """Return the kind of graph that inductor's compiler is called for with these keywords."""
    if kwargs.get("is_backward"):
        return "backward"
    return "inference" if kwargs.get("is_inference") else "forward"


_LOWERING = "_inductor_lowering_function"
"""Attribute of the functions of inductor that cannot run eagerly."""


class PostGradRun:
    """A callable that runs a post-grad graph op by op, in the boxed calling convention.

    Random numbers are drawn from the seeds in the graph, as in generated code. A recomputation in
    the backward therefore draws the same numbers as the forward.

    Args:
        converted: the post-grad graph.
        aot_graph: the graph before inductor's passes. It runs instead if the post-grad graph calls
            functions that cannot run eagerly.

    Attributes:
        lowered: the names of these functions.
    """

    def __init__(self, converted: Converted, aot_graph: fx.GraphModule):
        self.lowered = tuple(_find_lowered(converted.owner))
        module = runnable(copied(aot_graph if self.lowered else converted.owner))
        draw_by_seeds(module)
        self._run = torch_private.boxed(module.forward)

    def __call__(self, args: list[Any]) -> Any:
        """Run the graph, removing the arguments from the list."""
        return self._run(args)


def _graph_modules(module: fx.GraphModule) -> Iterator[fx.GraphModule]:
    """Yield the module and the bodies of its higher-order ops."""
    for child in module.modules():
        if isinstance(child, fx.GraphModule):
            yield child


def _find_lowered(module: fx.GraphModule) -> Iterator[str]:
    """Yield the names of the called functions that cannot run eagerly."""
    for graph_module in _graph_modules(module):
        for node in graph_module.graph.nodes:
            if node.op == "call_function" and hasattr(node.target, _LOWERING):
                yield str(getattr(node.target, "__name__", node.target))


def draw_by_seeds(module: fx.GraphModule) -> None:
    """Replace inductor's random ops, which ignore their seeds when they run eagerly."""
    replacements = {
        torch.ops.prims.inductor_random.default: _random,
        torch.ops.prims.inductor_randint.default: _randint,
    }
    for graph_module in _graph_modules(module):
        random_nodes = [
            node
            for node in graph_module.graph.nodes
            if node.op == "call_function" and node.target in replacements
        ]
        for node in random_nodes:
            node.target = replacements[node.target]
        if random_nodes:
            graph_module.recompile()


def _random(size: Sequence[int], seed: torch.Tensor, mode: str, **_options: Any) -> torch.Tensor:
    """Compute `inductor_random`; `mode` is "rand" or "randn"."""
    drawn: torch.Tensor = getattr(torch, mode)(
        size, generator=_generator(seed), device=seed.device, dtype=torch.float32
    )
    return drawn


def _randint(low: int, high: int, size: Sequence[int], seed: torch.Tensor) -> torch.Tensor:
    """Compute `inductor_randint`."""
    return torch.randint(low, high, size, generator=_generator(seed), device=seed.device)


def _generator(seed: torch.Tensor) -> torch.Generator:
    """Return a generator with the seed of one call."""
    return torch.Generator(seed.device).manual_seed(int(seed.item()))


def origins_of(
    calls: Sequence[tuple[str, Sequence[fx.Node]]],
    graph: fx.Graph | None,
    converted: Converted,
    modules: Mapping[int, str],
) -> list[Origin]:
    """Return the ops that each call in the generated code of a graph computes.

    Args:
        calls: the called functions, each with the nodes that it computes, from the post-grad graph
            or the body of a higher-order op.
        graph: the live post-grad graph.
        converted: the post-grad graph, converted.
        modules: paths of known modules by `id`.
    """
    node_by_name = {node.name: node for node in converted.graph.nodes}
    order = {name: number for number, name in enumerate(converted.names)}

    def find(node: fx.Node | None) -> Node | None:
        """Return the converted node; `None` for a node of a body."""
        if node is None or node.graph is not graph:
            return None
        return node_by_name.get(converted.names.get(node.name, ""))

    origins = []
    for name, computed in calls:
        # For a call of an op, torch may add nodes that share its buffer, such as views.
        nodes = [node for node in computed if name == f"torch.ops.{node.target}"] or computed
        places = []
        for node in sorted(nodes, key=lambda node: order.get(node.name, len(order))):
            found = find(node)
            places.append(_place(node, modules) if found is None else (found.module, found.source))
        paths = dict.fromkeys(path for path, _ in places if path)
        lines = dict.fromkeys(line for _, line in places if line is not None)
        called = find(_called(computed, name))
        collective = called.name if called is not None and communicates(called) else ""
        origins.append(Origin(name, tuple(paths), tuple(lines), collective))
    return origins


def _called(computed: Sequence[fx.Node], name: str) -> fx.Node | None:
    """Return the node of the called op, or `None` for a kernel or a missing node.

    For a collective, torch records the node of the wait, or of a view of the wait's result, because
    these share a buffer with the collective.
    """
    packet = packet_of(name.removeprefix("torch.ops."))
    for computed_node in computed:
        node: Any = computed_node
        # From the wait or the view back to the collective, along first arguments.
        while isinstance(node, fx.Node) and packet_of(op_name(node.target)) != packet:
            node = node.args[0] if node.op == "call_function" and node.args else None
        if isinstance(node, fx.Node):
            return node
    return None


def _place(node: fx.Node, modules: Mapping[int, str]) -> tuple[str, Source | None]:
    """Return the module path and line in a node's meta."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    key, value = list(stack.items())[-1] if stack else ("", "")
    path = node_meta.stack_path(key, value, modules) if stack else ""
    trace = node.meta.get("stack_trace") or node.stack_trace
    call = node_meta.call_of(node.meta)
    return path, source_lines.from_stack_trace(trace, call) if trace else None
