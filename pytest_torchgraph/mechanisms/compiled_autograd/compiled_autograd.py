"""Capture of the whole backward by compiled autograd: as the autograd engine ran it.

The engine gives each backward to a compiler of ours, as one graph through all graph breaks of the
forward, with the hooks in it. It is run node by node, as it is, which gives the shapes of its
values. The forward is compiled up to AOTAutograd, or runs eagerly.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.fx

from ... import torch_private
from ...convert.canonical_names import CanonicalNames
from ...convert.compiled_autograd.engine_graph import RunFacts, fold
from ...convert.from_fx import Converted
from ...ops.levels import Level
from ...watching.observe.events import ONLY_TRACED
from ..islands.capture import Made, recorded_islands
from ..islands.island_recorder import IslandRecorder
from ..protocol import Captured
from ..step.step import Step
from ..torch_compile.run import run_compiled, switched_off
from . import engine
from .forward import ForwardRecorder
from .node_order import ModuleCalls, steps


@dataclass(frozen=True)
class CompiledAutograd:
    """The whole backward in one graph, with its hooks, through graph breaks of the forward.

    The capture has the forward graphs of AOTAutograd and, in the place of its backward graphs, the
    one of compiled autograd; `capture.at("aot")` has both halves as AOTAutograd made them. What
    runs eagerly beside the forward graphs is recorded as well, in `Capture.eager`; its backward is
    in the one graph.

    Args:
        forward: how the forward runs: "aot", compiled up to AOTAutograd, or "eager", with no graph
            of its own. The backward of an eager forward consists of autograd's own functions, such
            as `torch._dynamo.compiled_autograd.ops.AddmmBackward0`. An eager forward is not
            recorded: under a dispatch mode some ops (`reshape`) make other autograd nodes, which
            would be another backward than the one that a training step has.
        forward_fullgraph: as `fullgraph` of `torch.compile` for the forward: True raises at a graph
            break instead of splitting.
        backward_fullgraph: whether Dynamo must be able to trace the backward's graph, its hooks
            included, without a break: True raises its error at the first one.
        dynamic: as in `torch.compile`, for both: None makes a size symbolic once it has changed.

    Raises:
        ValueError: for another `forward`, or `forward_fullgraph=True` with an eager one.
    """

    forward: Literal["aot", "eager"] = "aot"
    forward_fullgraph: bool = False
    backward_fullgraph: bool = False
    dynamic: bool | None = None

    name: ClassVar[str] = "compiled_autograd"
    level: ClassVar[Level] = "compiled_autograd"

    def __post_init__(self) -> None:
        if self.forward not in ("aot", "eager"):
            raise ValueError(f"forward={self.forward!r}: 'aot' or 'eager'")
        if self.forward == "eager" and self.forward_fullgraph:
            raise ValueError("forward_fullgraph=True needs a compiled forward: forward='aot'")

    def capture(self, step: Step, canon: CanonicalNames) -> Captured:
        """Run the step with our compiler in the autograd engine."""
        off = switched_off()
        if off:
            return Captured([], why_none=off)
        recorder = _Recorder(self, step, canon)
        try:
            with engine.compiler_restored(), engine.around_backward(recorder.during_backward):
                recorder.run()
        finally:
            recorder.link.recorder = None
        return recorder.captured()


class _Link:
    """The compiler that the engine is given.

    torch (2.13) never frees a compiler nor what it returned, so these know of the recorder, and
    with it of the tensors of the step, only while there is a capture.
    """

    def __init__(self, recorder: _Recorder):
        self.recorder: _Recorder | None = recorder

    def __call__(self, module: torch.fx.GraphModule) -> Callable[..., Any]:
        """Called for a backward that the engine's cache does not know; returns what runs it."""

        def run(*lists: Any) -> Any:
            assert self.recorder is not None
            return self.recorder.run_backward(module, lists)

        return run


class _Recorder:
    """Collects the graphs of one capture, forward and backward."""

    def __init__(self, options: CompiledAutograd, step: Step, canon: CanonicalNames):
        self.options = options
        self.step = step
        self.named = step.invocation.named
        self.canon = canon
        self.made: list[Made] = []
        self.islands = IslandRecorder(self.named)
        self.calls = ModuleCalls(self.named)
        self.forward = ForwardRecorder(self.named, canon, self.note, self.islands)
        self.link = _Link(self)
        self.taken_over: dict[int, Made] = {}
        self.paths: list[str] = []
        self.why_not_compiled = ""
        self.known: dict[int, Made] = {}

    def note(self, converted: Converted) -> Made:
        """Keep a graph of the capture, whose runs are to be counted."""
        self.made.append(Made(converted))
        return self.made[-1]

    def run(self) -> None:
        """Run the step, from and to a fresh Dynamo."""
        options = self.options
        if options.forward == "aot":
            self.why_not_compiled = run_compiled(
                self.step,
                self.islands,
                self.forward,
                "AOTAutograd",
                around=self.enabled,
                dynamic=options.dynamic,
                fullgraph=options.forward_fullgraph,
            )
            return
        torch_private.reset_dynamo()
        try:
            with torch_private.ignore_torch_warnings():
                self.step.run(None, self.enabled_and_noting, self.enabled)
        finally:
            torch_private.reset_dynamo()

    @contextlib.contextmanager
    def enabled(self) -> Iterator[None]:
        """Compiled autograd with our compiler. The loss stays outside, so it is in no graph."""
        with engine.compiled_by(self.link, bool(self.options.dynamic)):
            yield

    @contextlib.contextmanager
    def enabled_and_noting(self) -> Iterator[None]:
        """The same around an eager forward, whose module calls are noted."""
        with self.enabled(), self.calls.recording():
            yield

    @contextlib.contextmanager
    def during_backward(self, roots: Sequence[Any], inputs: Sequence[Any]) -> Iterator[None]:
        """Find the modules of the steps of a backward while its autograd graph is there.

        All that runs inside is in the graph, and the engine takes no dispatch mode into it.
        """
        self.paths = []
        if self.options.forward == "eager":
            self.paths = ["" if n is None else self.calls.path_of(n) for n in steps(roots, inputs)]
        with self.islands.aside():
            yield

    def run_backward(self, module: torch.fx.GraphModule, lists: tuple[Any, ...]) -> Any:
        """Run a graph of the engine, and record it the first time."""
        if torch_private.get("tracing_context")() is not None:
            return module(*lists)  # the compiler itself differentiates bodies such as that of scan
        inputs, _, _, hooks, _ = lists
        if id(module) in self.known:
            self.facts(inputs, hooks)
            return self.ran(self.known[id(module)], inputs, module(*lists))
        if self.options.backward_fullgraph or _runs_python(module):
            fullgraph = self.options.backward_fullgraph
            _trace(module, lists, fullgraph=fullgraph, dynamic=self.options.dynamic)
        facts = self.facts(inputs, hooks)
        interpreter = _Interpreter(module, facts, self.canon)
        result = list(interpreter.run(*lists, enable_io_processing=False))
        made = self.note(fold(module, facts, self.canon, self.named.ranks()))
        self.known[id(module)] = made
        return self.ran(made, inputs, result)

    def ran(self, made: Made, inputs: Sequence[Any], result: Any) -> Any:
        """Note that a graph ran; it has run by now, since only then it is known what it is."""
        if self.islands.is_recording:
            return made.recorded(lambda _: result, self.islands)([*inputs])
        made.runs += 1  # of an eager forward
        return result

    def facts(self, inputs: Sequence[torch.Tensor], hooks: Sequence[Any]) -> RunFacts:
        """Names of inputs and hooks, and AOT backwards, by the identity of the objects."""
        tangents = {id(grad): place for place, grad in self.step.cotangents}
        facts = RunFacts(paths=self.paths)
        for position, tensor in enumerate(inputs):
            if id(tensor) in tangents:
                facts.inputs[position] = ("tangent", f"tangent.{tangents[id(tensor)]}")
            elif id(tensor) in self.named.tensors:
                facts.inputs[position] = self.named.tensors[id(tensor)]
        for hook in hooks:
            facts.hooks.append(_called(hook))
            taken = engine.aot_backward(hook)
            if taken is not None:
                number, module = taken
                facts.backwards[number] = converted = self.forward.backward(module)
                self.taken_over.setdefault(id(module), Made(converted)).runs += 1
        return facts

    def captured(self) -> Captured:
        """The graphs, if there was a backward."""
        made = [each.counted for each in self.made]
        forwards = [each for each in made if each.graph.level == "aot"]
        if self.options.forward == "aot" and not forwards:
            why_none = "the forward was not compiled (forward='eager' asks for that): "
            return Captured([], why_none + self.why_not_compiled)
        if not self.known and self.step.invocation.backward is not False:
            return Captured([], f"no backward ran: {self.step.why_no_grad()}")
        if self.options.forward == "eager":
            return Captured(made, "backward=False, and an eager forward has no graph of its own")
        islands = recorded_islands(self.step, self.islands, self.canon, self.made)
        backwards = [each.counted for each in self.taken_over.values()]
        levels: dict[Level, list[Converted]] = {"aot": [*forwards, *backwards]}
        return Captured(made, levels=levels, islands=islands)


class _Interpreter(torch.fx.Interpreter):
    """Runs a graph of compiled autograd and notes what each node gave."""

    def __init__(self, module: torch.fx.GraphModule, facts: RunFacts, canon: CanonicalNames):
        super().__init__(module)
        self.facts = facts
        self.canon = canon
        self.extra_traceback = False  # it would change the user's exception

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        if n.op != "placeholder":
            self.facts.results[n.name] = self.canon.result(value)
            if type(value) is int:
                self.facts.numbers[n.name] = value
        return value


def _runs_python(module: torch.fx.GraphModule) -> bool:
    """True for a backward that calls Python code of the user's, where Dynamo can break."""
    return any(getattr(n.target, "__name__", "") in PYTHON_CALLS for n in module.graph.nodes)


PYTHON_CALLS = frozenset(
    {"call_hook", "call_backward", "call_hook_from_backward_state", "self_invoke"}
)


class _OnlyTraced(Exception):
    """Dynamo traced a graph: there is nothing more to know."""


def _trace(
    module: torch.fx.GraphModule,
    lists: tuple[Any, ...],
    *,
    fullgraph: bool,
    dynamic: bool | None,
) -> None:
    """Let Dynamo trace a backward's graph, up to its first break, without running it.

    With `fullgraph` it raises there; otherwise the record of the capture has the break.
    """

    def backend(_gm: torch.fx.GraphModule, _inputs: list[Any]) -> Any:
        raise _OnlyTraced(ONLY_TRACED)

    inputs, *others = lists
    try:
        compiled = torch.compile(module, backend=backend, fullgraph=fullgraph, dynamic=dynamic)
        compiled(list(inputs), *others)
    except torch_private.get("backend_compiler_failed") as error:
        if not isinstance(error.inner_exception, _OnlyTraced):
            raise


def _called(hook: Any) -> str:
    """The name of a hook, or of an autograd.Function by its context."""
    name = str(getattr(hook, "__qualname__", type(hook).__name__)).rpartition(".")[2]
    return name if name.isidentifier() else "hook"
