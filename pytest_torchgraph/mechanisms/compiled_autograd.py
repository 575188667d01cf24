"""Capture of the whole backward by compiled autograd, as the autograd engine ran it.

The autograd engine passes each backward to our compiler as one graph. The graph spans all graph
breaks of the forward and includes the hooks. We run it unchanged, node by node, and read the shapes
of its values from this run. The forward is compiled up to AOTAutograd, or runs eagerly.

The AOT backward is recorded when AOTAutograd splits the joint graph. Compiled autograd does not
call the AOT backward: it copies its nodes into its own graph, and changes them there.

Compiled autograd labels its ops only with the step of the backward, for example `(NodeCall 7)`.
`steps` computes which autograd node each step belongs to. The sequence number of that node tells
which module was running when the node was created.

`CompiledAutograd.capture` makes a `_Recorder`. While its `enabled()` is open, the engine calls
`run_backward` for each backward. This runs the graph in an `_Interpreter`, and `fold` (`convert/`)
makes a `Graph` of it.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import fx

from .. import torch_private
from ..convert.canonical_names import CanonicalNames
from ..convert.compiled_autograd import RunFacts, fold
from ..convert.from_fx import Converted, Naming, convert
from ..graph.model import GraphKind
from ..ops.matching import Level
from ..syncs.detect import on_method_call
from ..watching.observe import ONLY_TRACED
from .islands import CompiledGraph
from .protocol import Captured
from .python_calls import RecordedGraph, runs_python
from .recording import FIRST_LEAF_SEQUENCE, ModuleCalls
from .step import Step
from .torch_compile import Aot, AotRecorder, Frame

_SHORTER = {
    torch.float64: torch.float32,
    torch.int64: torch.int32,
    torch.complex128: torch.complex64,
}
"""A shorter dtype for each dtype in which eager autograd saves a Python number as a tensor."""


@contextlib.contextmanager
def compiler_restored() -> Iterator[None]:
    """Restore the autograd compiler that is set now, because resetting Dynamo removes it.

    Inside, `torch._dynamo.config.compiled_autograd` is False. If it were True, each compiled region
    would replace our compiler with its own.
    """
    set_compiler = torch_private.get("set_autograd_compiler")
    enabled = torch_private.get("compiled_autograd_enabled")
    # torch has no getter: the setter returns the compiler that it replaces.
    compiler, dynamic = set_compiler(None, False)
    set_compiler(compiler, dynamic)
    try:
        with (
            torch_private.replaced("compiled_autograd_enabled", enabled),
            torch_private.get("config").patch(compiled_autograd=False),
        ):
            yield
    finally:
        set_compiler(compiler, dynamic)


def aot_backward(context: Any) -> tuple[int, fx.GraphModule] | None:
    """Return the id and graph of the AOT backward that an autograd node runs, or `None`.

    Both are attributes of the autograd.Function that AOTAutograd creates for each of its graphs.
    """
    function = getattr(context, "_forward_cls", None)
    number = getattr(function, "_aot_id", None)
    module = getattr(getattr(function, "_lazy_backward_info", None), "bw_module", None)
    return None if number is None or module is None else (number, module)


def steps(roots: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Return the autograd nodes of a backward in the order of compiled autograd.

    Compiled autograd uses a last-in, first-out worklist and adds a node once the node's last
    consumer has been taken. (The engine itself orders by sequence number.) The first step is the
    root, represented by `None`, because it has no autograd node.

    Args:
        roots: the tensors, or gradient edges, that the backward starts from.
        inputs: the tensors that the backward is restricted to. If there are any, the order is
            unknown, and the result is empty.
    """
    if inputs:
        return []
    start = [_node_of(root) for root in roots]
    consumers = _consumers(start)
    order: list[Any] = [None]
    # This order finds the right module for 99% of the nodes of a BERT; the order of the eager
    # engine's priority queue, for 19%.
    worklist: list[Any] = []

    def count_down_consumers(nodes: Sequence[Any]) -> None:
        """Count one edge to each node, and add those without further edges to the worklist."""
        for node in nodes:
            if node is not None:
                consumers[node] -= 1
                if not consumers[node]:
                    worklist.append(node)

    count_down_consumers(start)
    while worklist:
        node = worklist.pop()
        order.append(node)
        count_down_consumers([following for following, _ in node.next_functions])
    return order


def _node_of(root: Any) -> Any:
    """Return the autograd node of a tensor or of a gradient edge."""
    if isinstance(root, torch.Tensor):
        if root.grad_fn is not None:
            return root.grad_fn
        root = torch.autograd.graph.get_gradient_edge(root)
    return root.node


def _consumers(start: Sequence[Any]) -> Counter[Any]:
    """Count the edges of the backward that lead to each node."""
    count: Counter[Any] = Counter(node for node in start if node is not None)
    worklist = list(count)
    while worklist:
        for node, _ in worklist.pop().next_functions:
            if node is not None:
                if node not in count:
                    worklist.append(node)
                count[node] += 1
    return count


@dataclass(frozen=True)
class CompiledAutograd:
    """The whole backward in one graph, with its hooks, even if the forward has graph breaks.

    The capture contains AOTAutograd's forward graphs and, instead of AOTAutograd's backward graphs,
    the single graph of compiled autograd. `capture.at("aot")` returns AOTAutograd's forwards and
    backwards. `Capture.eager` holds the ops that ran eagerly between the forward graphs; their
    backward is part of the single graph.

    Args:
        forward: "aot" compiles the forward up to AOTAutograd. "eager" runs it eagerly and
            unrecorded; its backward consists of autograd's own functions, for example
            `torch._dynamo.compiled_autograd.ops.AddmmBackward0`. The ops that they run are unknown,
            so costs and checks of aten ops raise `CaptureError`. Recording the forward would change
            the backward: under a dispatch mode some ops, such as `reshape`, create different
            autograd nodes than in a training step.
        forward_fullgraph: `fullgraph` of `torch.compile` for the forward: True raises at a graph
            break instead of splitting.
        backward_fullgraph: whether Dynamo must trace the backward graph, hooks included, without a
            graph break. True raises Dynamo's error at the first break.
        dynamic: `dynamic` of `torch.compile`, for forward and backward: None makes a size symbolic
            once it has changed.

    Raises:
        ValueError: if `forward` has another value, or if `forward_fullgraph=True` is combined with
            an eager forward.
    """

    forward: Literal["aot", "eager"] = "aot"
    forward_fullgraph: bool = False
    backward_fullgraph: bool = False
    dynamic: bool | None = None

    name: ClassVar[str] = "compiled_autograd"
    level: ClassVar[Level] = "compiled_autograd"

    def __post_init__(self) -> None:
        if self.forward not in ("aot", "eager"):
            raise ValueError(f"forward={self.forward!r} is invalid: pass 'aot' or 'eager'")
        if self.forward == "eager" and self.forward_fullgraph:
            raise ValueError("forward_fullgraph=True needs a compiled forward: pass forward='aot'")

    def capture(self, step: Step, canon: CanonicalNames) -> Captured:
        """Run the step with our compiler in the autograd engine."""
        recorder = _Recorder(self, step, canon)
        with compiler_restored(), torch_private.around_engine(recorder.during_backward):
            recorder.run_step()
        return recorder.finish()


class _Recorder(AotRecorder):
    """Collects the graphs of one capture, forward and backward.

    Attributes:
        choices: the options.
        calls: the module calls of an eager forward.
        taken_over: the AOT backwards that compiled autograd copied, by the `id` of their module.
        paths: the module path of each step of the running backward; empty if unknown.
        graph_of_module: the backward graphs, by the `id` of the engine's module, and what else
            changes the graph.
        recorded_graph: records the running backward; `None` if none runs, or it calls no Python.
        _split: AOT backwards whose forward is not converted yet.
        _backwards: the converted AOT backwards, by `id` of the module, and the module itself, which
            keeps the id in use.
    """

    def __init__(self, options: CompiledAutograd, step: Step, canon: CanonicalNames):
        aot = Aot(dynamic=options.dynamic, fullgraph=options.forward_fullgraph)
        super().__init__(aot, step, canon)
        self.choices = options
        self.calls = ModuleCalls(self.islands)
        self.taken_over: dict[int, CompiledGraph] = {}
        self.paths: list[str] = []
        self.graph_of_module: dict[tuple[int, str], CompiledGraph] = {}
        self.recorded_graph: RecordedGraph | None = None
        self._split: dict[Frame, fx.GraphModule] = {}
        self._backwards: dict[int, tuple[fx.GraphModule, Converted]] = {}

    def partition(self, frame: Frame, joint: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        """Split a joint graph, and keep its backward until its forward is converted."""
        parts = torch_private.get("default_partition")(joint, *args, **kwargs)
        self._split[frame] = parts[1]
        return parts

    def compiler(self, frame: Frame, kind: GraphKind) -> Callable[..., Any]:
        """Return a compiler that records forwards, with their backwards, which do not run."""
        if kind == "backward":
            return lambda gm, _: torch_private.boxed(gm.forward)
        record = super().compiler(frame, kind)

        def compile(gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
            run: Callable[..., Any] = record(gm, inputs)
            # `partition` ran before. Its backward gets the names of this forward.
            if (backward := self._split.pop(frame, None)) is not None:
                converted = frame.lowered(backward, "backward", "aot")
                self._backwards[id(backward)] = backward, converted
            return run

        return compile

    def backward(self, module: fx.GraphModule) -> Converted:
        """Return the converted graph of an AOT backward.

        A backward that was compiled before this capture is converted now.
        """
        if id(module) not in self._backwards:
            self._backwards[id(module)] = (
                module,
                convert(
                    module,
                    name="backward",
                    kind="backward",
                    level="aot",
                    canon=self.canon,
                    naming=Naming(modules=self.named.modules),
                ),
            )
        return self._backwards[id(module)][1]

    def run_step(self) -> None:
        """Run the step, resetting Dynamo before and after."""
        if self.choices.forward == "aot":
            self.run(self.enabled)
            return
        torch_private.reset_dynamo()
        try:
            with torch_private.ignore_torch_warnings():
                self.step.run(None, self.enabled_and_recording, self.enabled)
        finally:
            torch_private.reset_dynamo()

    def enabled(self) -> contextlib.AbstractContextManager[None]:
        """Make the engine pass each backward inside to our compiler. The loss runs outside."""
        enable = torch_private.get("enable_compiled_autograd")
        # torch (2.13) never frees a compiler or what it returns, and `self` holds the tensors of
        # the step.
        recorder: Any = weakref.proxy(self)

        def compiler(module: fx.GraphModule) -> Callable[..., Any]:
            """Return a runner for a backward that missed the engine's cache."""
            return lambda *lists: recorder.run_backward(module, lists)

        context: contextlib.AbstractContextManager[None] = enable(
            compiler, dynamic=bool(self.choices.dynamic)
        )
        return context

    @contextlib.contextmanager
    def enabled_and_recording(self) -> Iterator[None]:
        """Enable compiled autograd around an eager forward, and record its module calls."""
        with self.enabled(), self.calls.recording():
            yield

    @contextlib.contextmanager
    def during_backward(
        self, roots: Sequence[Any], _grads: Any, inputs: Sequence[Any]
    ) -> Iterator[None]:
        """Find the module of each step of a backward, while its autograd graph exists.

        All ops that run inside are in the backward graph, so the islands do not record them.
        """
        self.paths = []
        if self.choices.forward == "eager":
            self.paths = [self.path_of(node) for node in steps(roots, inputs)]
        with self.islands.suspended():
            yield

    def path_of(self, node: Any) -> str:
        """Return the path of the module that created an autograd node, "" if unknown."""
        number = FIRST_LEAF_SEQUENCE if node is None else node._sequence_nr()
        return self.calls.path_at(number) if number < FIRST_LEAF_SEQUENCE else ""

    def run_backward(self, module: fx.GraphModule, lists: tuple[Any, ...]) -> Any:
        """Run a backward graph of the engine, recording it the first time."""
        if torch_private.get("tracing_context")() is not None:
            return module(*lists)  # a compiler differentiates the body of a scan or similar op
        if self.recorded_graph is not None:  # Python code called by a backward runs another one
            return module(*lists)
        inputs, _, _, hooks, _ = lists  # the others are sizes, scalars and packed inputs
        is_first = all(number != id(module) for number, _ in self.graph_of_module)
        has_python_calls = any(map(runs_python, module.graph.nodes))
        # Only the user's Python code can cause a graph break, so Dynamo traces no other backward.
        if is_first and (self.choices.backward_fullgraph or has_python_calls):
            fullgraph = self.choices.backward_fullgraph
            _trace(module, lists, fullgraph=fullgraph, dynamic=self.choices.dynamic)
        facts = self.facts(inputs, hooks)
        recorded: RecordedGraph | None = None
        if has_python_calls:
            recorded = RecordedGraph(module, self.named, self.canon, facts, self.is_computed)
        interpreter = _Interpreter(module, facts, self.canon, recorded)
        self.recorded_graph = recorded
        try:
            with nullcontext() if recorded is None else on_method_call(recorded.left_torch):
                result = list(interpreter.run(*lists, enable_io_processing=False))
        finally:
            self.recorded_graph = None
        owner = module if recorded is None else recorded.owner
        # The engine runs the same graph for other numbers and hooks.
        key = id(module), f"{facts.constant_inputs} {recorded and owner.graph}"
        if key not in self.graph_of_module:
            converted = fold(owner, facts, self.canon, self.named.input_order())
            self.compiled_graphs.append(CompiledGraph(converted))
            self.graph_of_module[key] = self.compiled_graphs[-1]
        return self.ran(self.graph_of_module[key], inputs, result)

    def is_computed(self, tensor: torch.Tensor) -> bool:
        """Return True for a tensor that an op of this step has computed, as far as is known."""
        value = self.islands.find_value(tensor)
        if value is None:
            return tensor.grad_fn is not None and id(tensor) not in self.named.older
        return value not in self.islands.origin

    def ran(self, compiled_graph: CompiledGraph, inputs: Sequence[Any], result: Any) -> Any:
        """Record a run of a graph after the run, because only then the graph is known."""
        if self.islands.is_recording:
            return compiled_graph.recorded(lambda _: result, self.islands)([*inputs])
        compiled_graph.runs += 1  # eager forward: nothing else counts the run
        return result

    def facts(self, inputs: Sequence[torch.Tensor], hooks: Sequence[Any]) -> RunFacts:
        """Name the inputs, hooks and AOT backwards of a run, recognised by object identity."""
        tangents = {id(grad): output_number for output_number, grad in self.step.cotangents}
        facts = RunFacts(paths=self.paths)
        for position, tensor in enumerate(inputs):
            if id(tensor) in tangents:
                facts.inputs[position] = ("tangent", f"tangent.{tangents[id(tensor)]}")
            elif id(tensor) in self.named.tensors:
                facts.inputs[position] = self.named.tensors[id(tensor)]
        # The engine passes the contexts of autograd.Functions as hooks too.
        for hook in hooks:
            facts.hooks.append(_name_of_hook(hook))
            aot_node = aot_backward(hook)
            if aot_node is not None:
                number, module = aot_node
                # Compiled autograd names a copied node after the number of the AOT graph, such as
                # `aot7_mm`. Keep the backward under this number, to find the original node `mm`.
                # The number itself depends on earlier compilations.
                facts.backwards[number] = converted = self.backward(module)
                self.taken_over.setdefault(id(module), CompiledGraph(converted)).runs += 1
        return facts

    def finish(self) -> Captured:
        """Return the graphs, or the reason why there are none."""
        graphs = [compiled_graph.counted for compiled_graph in self.compiled_graphs]
        forwards = [converted for converted in graphs if converted.graph.level == "aot"]
        if self.choices.forward == "aot" and not forwards:
            return Captured(
                [],
                "the forward was not compiled (for an eager forward, pass "
                "CompiledAutograd(forward='eager')): ",
            )
        if not self.graph_of_module and self.step.invocation.backward is not False:
            return Captured([], f"no backward ran: {self.step.why_no_grad()}")
        # The ops of an eager forward are not recorded, so there are no islands.
        if self.choices.forward == "eager":
            return Captured(
                graphs,
                "backward=False and forward='eager' leave no graph to capture. Use "
                "forward='aot', or omit backward=False",
            )
        backwards = [compiled_graph.counted for compiled_graph in self.taken_over.values()]
        levels: dict[Level, list[Converted]] = {"aot": [*forwards, *backwards]}
        return replace(self.captured(levels=levels), bypasses=None)


class _Interpreter(fx.Interpreter):
    """Runs a compiled-autograd graph and records the result of each node in `facts`."""

    def __init__(
        self,
        module: fx.GraphModule,
        facts: RunFacts,
        canon: CanonicalNames,
        recorded: RecordedGraph | None,
    ):
        super().__init__(module)
        self.facts = facts
        self.canon = canon
        self.recorded = recorded
        self.extra_traceback = False  # True would change the user's exception

    def run_node(self, n: fx.Node) -> Any:
        """Run a node, and note its result, and its value if it is a number or a constant."""
        run = partial(super().run_node, n)
        value = run() if self.recorded is None else self.recorded.run(n, run)
        if n.op != "placeholder":
            self.facts.results[n.name] = self.canon.result(value)
            if type(value) is int:
                self.facts.numbers[n.name] = value
            # Two kinds of constants: an item of `scalars`, and a number that autograd saved as a
            # tensor.
            if [*map(str, n.all_input_nodes)] == ["scalars"]:
                self.facts.constant_inputs[n.name] = (value,)
            elif type(value) is torch.Tensor and value.dtype in _SHORTER:
                with torch_private.get("without_modes")():
                    shorter = torch.zeros((), dtype=_SHORTER[value.dtype])
                    # A Python number, unlike a tensor, leaves the dtype of `shorter` as it is.
                    if torch.result_type(value, shorter) == shorter.dtype:
                        self.facts.constant_inputs[n.name] = (value.item(),)
        return value


class _OnlyTraced(Exception):
    """Raised by the backend to stop after Dynamo has traced a graph."""


def _trace(
    module: fx.GraphModule,
    lists: tuple[Any, ...],
    *,
    fullgraph: bool,
    dynamic: bool | None,
) -> None:
    """Make Dynamo trace a backward graph, up to its first graph break, without running it.

    With `fullgraph` Dynamo raises at the break. Otherwise the break is in the capture's trace
    record.
    """

    def backend(_gm: fx.GraphModule, _inputs: list[Any]) -> Any:
        raise _OnlyTraced(ONLY_TRACED)

    inputs, *other_lists = lists
    try:
        compiled: Any = torch.compile(module, backend=backend, fullgraph=fullgraph, dynamic=dynamic)
        # Not `compiled(...)`, because torch warns there if our hooks on all modules are active.
        compiled.forward(list(inputs), *other_lists)
    except torch_private.get("backend_compiler_failed") as error:
        if not isinstance(error.inner_exception, _OnlyTraced):
            raise


def _name_of_hook(hook: Any) -> str:
    """Return the name of a hook, or of an autograd.Function given its context."""
    name = str(getattr(hook, "__qualname__", type(hook).__name__)).rpartition(".")[2]
    return name if name.isidentifier() else "hook"
