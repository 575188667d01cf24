"""Capture of the whole backward by compiled autograd, as the autograd engine ran it.

The backward is noted when the joint graph is split. Compiled autograd copies it into its own graph,
node by node, instead of having it compiled; and changes it when it does.

Compiled autograd says of its ops only which step of the backward they are: `(NodeCall 7)`. The
steps are a walk over the autograd graph in an order of its own, which is replayed here; and an
autograd node has a sequence number, which says between which module calls it was made.

The engine gives each backward to a compiler of ours, as one graph through all graph breaks of the
forward, with the hooks in it. It is run node by node, as it is, which gives the shapes of its
values. The forward is compiled up to AOTAutograd, or runs eagerly.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.fx

from .. import torch_private
from ..convert.canonical_names import CanonicalNames
from ..convert.compiled_autograd import RunFacts, fold
from ..convert.from_fx import Converted, Naming, convert
from ..graph.model import GraphKind
from ..ops.names import Level
from ..watching.observe.structured_trace import ONLY_TRACED
from .islands.capture import Made, recorded_islands
from .islands.island_recorder import IslandRecorder
from .protocol import Captured
from .recording.mode import LEAF
from .step.named_tensors import NamedTensors
from .step.step import Step
from .torch_compile.run import Frame, run_compiled, switched_off


class ForwardRecorder:
    """A backend for torch.compile that records AOT graphs and runs the forwards as they are.

    Attributes:
        made: called with each forward or inference graph; gives what counts its runs.
        islands: records what runs eagerly beside the graphs.
    """

    def __init__(
        self,
        named: NamedTensors,
        canon: CanonicalNames,
        made: Callable[[Converted], Made],
        islands: IslandRecorder,
    ):
        self.islands = islands
        self.named = named
        self.canon = canon
        self.made = made
        self._backwards: dict[int, tuple[torch.fx.GraphModule, Converted]] = {}

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        """Compile one graph of Dynamo."""
        frame = Frame(gm, example_inputs, self.named, self.canon)
        halves = _Halves(self, frame)
        compiler = torch_private.aot_autograd(
            fw_compiler=halves.compiler("forward"),
            bw_compiler=lambda gm, _: torch_private.boxed(gm.forward),
            inference_compiler=halves.compiler("inference"),
            partition_fn=halves.split,
        )
        with self.islands.aside():
            return frame.noting(compiler(gm, example_inputs))

    def backward(self, module: torch.fx.GraphModule) -> Converted:
        """The graph of an AOT backward; of one that was compiled before it is converted now."""
        known = self._backwards.get(id(module))
        if known is not None:
            return known[1]
        naming = Naming(modules=self.named.modules)
        converted = convert(
            module, name="backward", kind="backward", level="aot", canon=self.canon, naming=naming
        )
        return self.note(module, converted)

    def note(self, module: torch.fx.GraphModule, converted: Converted) -> Converted:
        """Keep what an AOT backward is."""
        self._backwards[id(module)] = (module, converted)
        return converted


class _Halves:
    """The two halves of what Dynamo compiled at once."""

    def __init__(self, recorder: ForwardRecorder, frame: Frame):
        self.recorder = recorder
        self.frame = frame
        self.backward: torch.fx.GraphModule | None = None

    def split(self, joint: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        halves = torch_private.get("default_partition")(joint, *args, **kwargs)
        self.backward = halves[1]
        return halves

    def compiler(self, kind: GraphKind) -> Callable[..., Any]:
        def compile(gm: torch.fx.GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
            made = self.recorder.made(self.frame.lowered(gm, kind, "aot"))
            if self.backward is not None:
                converted = self.frame.lowered(self.backward, "backward", "aot")
                self.recorder.note(self.backward, converted)
            return made.recorded(torch_private.boxed(gm.forward), self.recorder.islands)

        return compile


@contextlib.contextmanager
def compiler_restored() -> Iterator[None]:
    """Put back the autograd compiler that is there, which a reset of Dynamo drops.

    Inside, the config says that there is none: with `torch._dynamo.config.compiled_autograd` each
    compiled region would put a compiler of its own in the place of ours.
    """
    set_compiler = torch_private.get("set_autograd_compiler")
    enabled = torch_private.get("compiled_autograd_enabled")
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


@contextlib.contextmanager
def compiled_by(compiler: Callable[[Any], Any], dynamic: bool) -> Iterator[None]:
    """Let the engine give each backward inside to `compiler`, as a graph module.

    Args:
        compiler: returns what is then called with inputs, sizes, scalars, hooks and packed data.
        dynamic: whether sizes are inputs of the graph from the start, not only once they change.
    """
    with torch_private.get("enable_compiled_autograd")(compiler, dynamic=dynamic):
        yield


@contextlib.contextmanager
def around_backward(
    context: Callable[[Sequence[Any], Sequence[Any]], contextlib.AbstractContextManager[None]],
) -> Iterator[None]:
    """Run each backward inside `context(roots, inputs)`.

    Dynamo compiles nothing that the backward calls: neither hooks nor what captures it.
    """
    original = torch_private.get("engine_run_backward")

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def wrapped(roots: Any, *args: Any, **kwargs: Any) -> Any:
        with context(tuple(roots), tuple(args[3] or ()) if len(args) > 3 else ()):
            return original(roots, *args, **kwargs)

    with torch_private.replaced("engine_run_backward", wrapped):
        yield


def aot_backward(context: Any) -> tuple[int, torch.fx.GraphModule] | None:
    """The id and graph of the AOT backward that an autograd node would run; None for other nodes.

    Both hang on the autograd.Function that AOTAutograd makes for each of its graphs.
    """
    function = getattr(context, "_forward_cls", None)
    number = getattr(function, "_aot_id", None)
    module = getattr(getattr(function, "_lazy_backward_info", None), "bw_module", None)
    return None if number is None or module is None else (number, module)


class ModuleCalls:
    """Notes during a forward which modules run at which sequence numbers of autograd."""

    def __init__(self, named: NamedTensors):
        self.named = named
        self.numbers: list[int] = []
        self.paths: list[str] = []
        self._stack: list[str] = []
        self._sequence = torch_private.sequence_number()

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Note the module calls that are made inside."""
        module = torch.nn.modules.module
        before = module.register_module_forward_pre_hook(self._enter)
        after = module.register_module_forward_hook(self._leave, always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    def _enter(self, module: torch.nn.Module, _args: Any) -> None:
        self._stack.append(self.named.modules.get(id(module), type(module).__name__))
        self._note()

    def _leave(self, _module: torch.nn.Module, _args: Any, _output: Any) -> None:
        if self._stack:
            self._stack.pop()
        self._note()

    def _note(self) -> None:
        self.numbers.append(self._sequence())
        self.paths.append(self._stack[-1] if self._stack else "")

    def path_of(self, node: Any) -> str:
        """Path of the module that made an autograd node, "" where that is not known."""
        number = node._sequence_nr()
        at = bisect_right(self.numbers, number) - 1
        return self.paths[at] if at >= 0 and number < LEAF else ""


def steps(roots: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """The autograd nodes of a backward in the order in which compiled autograd takes them.

    A worklist, last in, first out; a node is put on it when its last consumer was taken. (The
    engine itself orders by sequence number.) The first step is the root, which is no node: None.

    Args:
        roots: the tensors, or gradient edges, that the backward starts from.
        inputs: what it is confined to; then the order is another one, and nothing is returned.
    """
    if inputs:
        return []
    start = [_node_of(root) for root in roots]
    consumers = _consumers(start)
    order: list[Any] = [None]
    todo: list[Any] = []

    def arrive(nodes: Sequence[Any]) -> None:
        for node in nodes:
            if node is not None:
                consumers[node] -= 1
                if not consumers[node]:
                    todo.append(node)

    arrive(start)
    while todo:
        node = todo.pop()
        order.append(node)
        arrive([following for following, _ in node.next_functions])
    return order


def _node_of(root: Any) -> Any:
    if not isinstance(root, torch.Tensor):
        return root.node
    return (
        root.grad_fn
        if root.grad_fn is not None
        else torch.autograd.graph.get_gradient_edge(root).node
    )


def _consumers(start: Sequence[Any]) -> Counter[Any]:
    """How many edges of the backward lead to each node."""
    count: Counter[Any] = Counter(node for node in start if node is not None)
    todo = list(count)
    while todo:
        for node, _ in todo.pop().next_functions:
            if node is not None:
                if node not in count:
                    todo.append(node)
                count[node] += 1
    return count


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
            with compiler_restored(), around_backward(recorder.during_backward):
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
        with compiled_by(self.link, bool(self.options.dynamic)):
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
            taken = aot_backward(hook)
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
