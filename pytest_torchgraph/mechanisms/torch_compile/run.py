"""Runs one step through torch.compile, after a reset of Dynamo, and explains failures."""

from __future__ import annotations

import contextlib
import functools
import linecache
import traceback
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import torch
from torch import fx

from ... import torch_private
from ...convert.canonical_names import CanonicalNames
from ...convert.from_fx import Converted, Naming, convert
from ...convert.placeholders import aot_inputs, dynamo_inputs
from ...convert.rng_states import names_in_backward
from ...convert.source_lines import (
    is_own_file,
    is_torch_file,
    is_user_file,
    original_name,
    relative,
)
from ...errors import CaptureError, TorchGraphError, add_note
from ...graph.model import GraphKind
from ...ops.matching import Level
from ...watching.breaks import BreakReport, reports_of
from ...watching.compilations import Compilation
from ..islands import CompiledGraph, IslandRecorder, recorded_islands, run_recorded
from ..protocol import Captured
from ..step import Invocation, NamedTensors, SavedState, Step, preserve_state
from .cacheable import BypassSearch


class Frame:
    """One call of the backend: Dynamo's graph of a frame, and the graphs lowered from it.

    Create it inside the backend, because torch deletes the origin of the input names afterwards.

    Attributes:
        inputs: (role, name) of each input of Dynamo's graph.
        _attributes: (role, name) of the named tensors that are attributes of Dynamo's graph.
        _placeholders: names of the inputs.
        _forward: the last converted forward, for its backward.
        _returned: the last outputs, by `id`, with their positions.
    """

    def __init__(
        self,
        gm: fx.GraphModule,
        example_inputs: list[Any],
        named: NamedTensors,
        canon: CanonicalNames,
    ):
        # Dynamo names the gradients that an optimizer reads by their positions in its groups.
        gradients = {
            id(parameter.grad): ("buffer", f"{name}.grad")
            for name, parameter in named.all_parameters
            if parameter.grad is not None
        }
        self.inputs = dynamo_inputs(gm, example_inputs, gradients | named.tensors, named.numbers)
        # Dynamo makes the state of an optimizer attributes of its graph.
        held = (*gm.named_parameters(), *gm.named_buffers())
        self._attributes = {
            name: named.tensors[id(value)] for name, value in held if id(value) in named.tensors
        }
        self._placeholders = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
        self._named = named
        self._canon = canon
        self._forward: Converted | None = None
        self._returned: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}

    def record_outputs(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the compiled frame and record its outputs; see `position_of`."""

        @functools.wraps(compiled)
        def run(*args: Any, **kwargs: Any) -> Any:
            """Run the compiled frame."""
            outputs = compiled(*args, **kwargs)
            for position, value in enumerate(outputs if isinstance(outputs, tuple | list) else ()):
                if isinstance(value, torch.Tensor):
                    self._returned[id(value)] = weakref.ref(value), position
            return outputs

        # Before torch 2.11, Dynamo would call the wrapped function in place of `run`.
        run.__dict__.pop("_torchdynamo_orig_callable", None)
        return run

    def position_of(self, tensor: torch.Tensor) -> int | None:
        """Return the position of a tensor among the results of Dynamo's graph, otherwise `None`."""
        entry = self._returned.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def dynamo(self, gm: fx.GraphModule, kind: GraphKind) -> Converted:
        """Convert Dynamo's own graph."""
        # No graph is known for which the lengths differ.
        inputs = dict(zip(self._placeholders, self.inputs, strict=False))
        naming = Naming(inputs, self._named.modules, input_order=self._named.input_order())
        converted = convert(
            gm, name=kind, kind=kind, level="dynamo", canon=self._canon, naming=naming
        )
        return replace(converted, position_of=self.position_of)

    def lowered(self, gm: fx.GraphModule, kind: GraphKind, level: Level) -> Converted:
        """Convert a graph of AOTAutograd or of a later stage.

        A backward names its inputs after the nodes of its forward. The forward must therefore be
        converted first.
        """
        forward = self._forward if kind == "backward" else None
        naming = Naming(
            aot_inputs(
                gm,
                self.inputs,
                forward.names if forward else {},
                names_in_backward(forward.fx, gm.graph) if forward else {},
                self._attributes,
            ),
            self._named.modules,
            input_order=self._named.input_order(),
            dynamo=self.inputs,
            forward=forward,
        )
        converted = convert(gm, name=kind, kind=kind, level=level, canon=self._canon, naming=naming)
        if kind in ("forward", "inference"):
            converted = self._forward = replace(converted, position_of=self.position_of)
        return converted


_COMPILERS = ("_dynamo", "_functorch", "_inductor", "_subclasses", "fx")
"""Parts of torch that compile code, or run compiled code."""
_ENTRIES = (("_dynamo", "eval_frame.py"), ("_dynamo", "external_utils.py"))
"""Files whose frames surround all code of a compiled callable, even if it runs eagerly."""
_GENERATED = "<eval_with_key>"
_GENERATED_BY_INDUCTOR = "torch._inductor."
"""Prefix of the names of modules that inductor generates. Their files are in inductor's cache."""


def tell_whose(error: Exception, invocation: Invocation, state: SavedState, via: str) -> None:
    """Find out if an exception of torch's compilers is the target's own, by running it eagerly.

    If the target runs eagerly without an error, the exception gets a note. The target is not run
    for an exception from the user's code, or for `Unsupported`, which Dynamo raises with
    `fullgraph=True`.

    Args:
        error: the exception.
        invocation: the captured call.
        state: the state at the start of the step.
        via: name of the mechanism.

    Raises:
        Exception: the exception of the target itself.
    """
    if isinstance(error, TorchGraphError) or not _is_of_compiler(error):
        return
    try:
        state.restore()
        with preserve_state(invocation.named) as saved:
            Step(invocation, saved).run()
    except CaptureError:
        pass  # the target ran, but its output cannot be captured
    except Exception as own:
        if type(own) is type(error) and str(own) == str(error):
            return
        raise own from None
    add_note(
        error,
        f"The target runs eagerly without an error, but its compilation via {via!r}, or the "
        "compiled code, fails. To capture the eager ops, use via='dispatch'.",
    )


def _is_of_compiler(error: Exception) -> bool:
    """Return True if torch's compilers or their generated code raised this, not the user's code."""
    if isinstance(error, torch_private.get("dynamo_exception")):
        return not isinstance(error, torch_private.get("unsupported"))
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    # The innermost frame that belongs to one of them decides.
    for frame in reversed(frames):
        file = frame.f_code.co_filename
        module = str(frame.f_globals.get("__name__"))
        if file.startswith(_GENERATED) or module.startswith(_GENERATED_BY_INDUCTOR):
            return True
        if any(is_torch_file(file, *entry) for entry in _ENTRIES):
            continue
        if any(is_torch_file(file, part) for part in _COMPILERS):
            return True
        if is_user_file(file):
            return False
    return False


_NO_HINT = (
    "Please report an issue to PyTorch.",
    "This graph break may have been caused by",
    "It may be possible to write Dynamo tracing rules",
)
"""Prefixes of hints that do not help a reader of a single break."""
_DISPATCH = "\nTo capture the eager ops, use via='dispatch'."
_IS_CAUSAL = "_detect_is_causal_mask"
"""The function of nn.Transformer that reads the data of masks."""


def _line(file: str, line: int, within: str = "") -> str:
    """Return file, line, `within` and the source code."""
    code = linecache.getline(file, line).strip()
    return f"{relative(file)}:{line}{within}{': ' if code else ''}{code}"


def _why(report: BreakReport) -> str:
    """Return kind, reason and hints of a report, one per line.

    Hints for Dynamo's developers are left out.
    """
    reason = report.reason
    if report.context:
        reason = reason.replace(f" [{report.context}]", "", 1)
    hints = (hint for hint in report.hint.splitlines() if not hint.startswith(_NO_HINT))
    first = ": ".join(filter(None, [report.kind, reason]))
    return "\n".join([first, *(f"hint: {hint}" for hint in hints)])


def why_nothing(compiled: Iterable[Compilation]) -> str:
    """Return the reason why no graph was compiled: the first graph break or failure of Dynamo."""
    report = next(chain.from_iterable(map(reports_of, compiled)), None)
    if report is None:
        return (
            "Dynamo found no tensor operations to compile: the target computes nothing, or only in "
            f"code that torch.compiler.disable excludes or Dynamo skips{_DISPATCH}"
        )
    # The stack begins in the test. Leave out all up to our call of the target, unless that is all.
    own_frames = [number for number, frame in enumerate(report.frames) if is_own_file(frame[0])]
    stack = report.frames[max(own_frames, default=-1) + 1 :] or report.frames
    users = [frame for frame in stack if is_user_file(frame[0])]
    user_file, user_line, user_function, _ = (users or stack)[-1]
    file, line, function, _ = stack[-1]
    if is_torch_file(user_file) or is_torch_file(file, "nn", "modules"):
        called = f", called at {_line(user_file, user_line)}" if users else ""
        advice = ""
        if function == _IS_CAUSAL:
            advice = (
                "\nTo avoid it, pass src_is_causal and tgt_is_causal (is_causal, for a single "
                "layer or encoder)."
            )
        return (
            "graph break inside torch's own code, which Dynamo compiles only as part of its "
            "caller, so all ops ran eagerly. Graph break at "
            f"{_line(file, line)}{called}\n{_why(report)}{advice}{_DISPATCH}"
        )
    within = f" in {original_name(user_function)}" if user_function else ""
    return (
        "Dynamo abandoned the target, and ran it eagerly. Graph break at "
        f"{_line(user_file, user_line, within)}\n{_why(report)}{_DISPATCH}"
    )


def named_backend(backend: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Give a backend a name, and its errors a message, because torch shows both to the user.

    A callable object would appear as its address. An error without a text among its arguments would
    appear as, for example, the name of an op.
    """

    def compile(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        """Call the backend."""
        try:
            return backend(gm, example_inputs)  # type: ignore[no-any-return]
        except Exception as error:
            if not any(isinstance(arg, str) for arg in error.args):
                error.args = (f"{type(error).__name__}: {error}", *error.args[1:])
            raise

    compile.__name__ = compile.__qualname__ = name
    return compile


def switched_off() -> str:
    """Return the reason why torch.compile compiles nothing here, otherwise ""."""
    disabled = torch_private.compile_is_disabled()
    if disabled:
        return f"torch.compile is disabled by {disabled}"
    if torch_private.stance() != "default":
        return (
            "torch.compile compiles nothing under "
            f"torch.compiler.set_stance({torch_private.stance()!r}): capture under the default "
            "stance"
        )
    modes = torch_private.modes_that_stop_compilation()
    if modes:
        return (
            f"Dynamo compiles nothing under a TorchDispatchMode, and {', '.join(modes)} is "
            "active: capture outside of the mode"
        )
    return ""


def _part() -> None:
    """A function whose compilation has the backend for a part of a training step."""


class Backend:
    """A backend for torch.compile, the run of a step with it, and what it records.

    Args:
        options: the mechanism.
        step: the step.
        canon: canonical names of symbols and devices.
        patches, sees_aot: see `BypassSearch`.

    Attributes:
        name: the backend's name in torch's messages.
        islands: records the ops that run eagerly between the compiled graphs.
        compiled_graphs: the recorded graphs, in order.
        bypass_search: finds what keeps Dynamo's graphs out of the caches.
    """

    name = ""

    def __init__(
        self,
        options: Any,
        step: Step,
        canon: CanonicalNames,
        patches: Mapping[str, Any] | None = None,
        *,
        sees_aot: bool = True,
    ):
        self.options = options
        self.step = step
        self.named = step.invocation.named
        self.canon = canon
        self.islands = IslandRecorder(self.named)
        self.compiled_graphs: list[CompiledGraph] = []
        self.bypass_search = BypassSearch(self.named.modules, patches, sees_aot=sees_aot)

    def __call__(self, gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        """Compile Dynamo's graph of one frame. Dynamo calls this."""
        frame = Frame(gm, example_inputs, self.named, self.canon)
        with self.islands.suspended():
            self.bypass_search.keep(gm, example_inputs)
            return frame.record_outputs(self.compile(frame, gm, example_inputs))

    def compile(
        self, frame: Frame, gm: fx.GraphModule, example_inputs: list[Any]
    ) -> Callable[..., Any]:
        """Record Dynamo's graph or what it is lowered to, and return the callable that runs it."""
        raise NotImplementedError

    def run(
        self,
        around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    ) -> None:
        """Run the step with the target compiled, resetting Dynamo before and after.

        Args:
            around: creates a further context for the forward and for the backward.

        Raises:
            CaptureError: if torch.compile is switched off, or if code ran that cannot be recorded,
                with its place.
        """
        # `capture` has checked this, but a later comparison with a capture runs a step again.
        if setting := switched_off():
            raise CaptureError(setting)
        invocation = self.step.invocation
        options = {
            "backend": named_backend(self, self.name),
            "dynamic": self.options.dynamic,
            "fullgraph": self.options.fullgraph,
        }
        callback, compiled = None, torch.compile(invocation.target, **options)
        if invocation.updates is not None and invocation.named.compiles:
            # A training step that compiles its parts itself runs as it is.
            compiled = invocation.target
            callback = torch_private.callback_of(torch.compile(_part, **options))
        with (
            torch_private.fresh_dynamo(),
            torch_private.one_backend(callback),
            torch_private.ignore_torch_warnings(),
        ):
            run_recorded(self.step, self.islands, compiled, around)

    def captured(self, **more: Any) -> Captured:
        """Return the recorded graphs, with further arguments of `Captured`."""
        islands = recorded_islands(self.step, self.islands, self.canon, self.compiled_graphs)
        del self.step  # it holds the tensors of the run; this object may live on
        return Captured(
            [compiled_graph.counted for compiled_graph in self.compiled_graphs],
            bypasses=self.bypass_search.find,
            islands=islands,
            training=self.islands.updated,
            methods=self.islands.methods,
            **more,
        )
