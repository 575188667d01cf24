"""The entry point `capture`, and the value of the `graph_capture` fixture.

`capture` checks its arguments, and calls `_run`, which runs the target through a mechanism and
restores what the run changed. `_comparison` makes the functions that run the target again, for
`assert_matches_eager`, and `_contents` puts all into the `Contents` of a `Capture`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn.parameter import is_lazy

from .. import torch_private
from ..checks.subject import EagerComparison, StepResult
from ..context import CONTEXT
from ..convert.canonical_names import CanonicalNames
from ..convert.from_fx import Converted
from ..convert.process_groups import dimensions_named, dimensions_of_meshes
from ..devices import parse
from ..errors import CaptureError
from ..graph.checks import device_types
from ..graph.events import Frozen, GraphBreak
from ..graph.model import Graph
from ..graph.module_paths import OwnModule, numbered
from ..graph.step import Cut, StepCall
from ..graph.text import Header
from ..mechanisms.compiled_autograd import CompiledAutograd
from ..mechanisms.dispatch import Dispatch
from ..mechanisms.islands import Islands
from ..mechanisms.protocol import COMPILING, Built, Captured, Mechanism, check_options, with_output
from ..mechanisms.step import (
    EagerRun,
    InFloat64,
    Invocation,
    NamedTensors,
    Outcome,
    RandomState,
    Step,
    Updates,
    callable_of,
    exclusive,
    note_all,
    note_meta_device,
    outcome_of,
    preserve_state,
    refuse_values,
    to_device,
    with_fake_tensors,
)
from ..mechanisms.torch_compile import (
    Aot,
    Dynamo,
    Inductor,
    named_runs,
    switched_off,
    tell_whose,
    why_nothing,
)
from ..mechanisms.tracers import Export, Fx
from ..torch_release import need_torch
from ..watching.breaks import cause_of, functions_of, is_in_function
from ..watching.kernels import Kernel
from ..watching.observe import HUB, EventRecorder
from ..watching.record import WatchRecord, record_of
from ..words import grouped
from .contents import Contents, EagerPart
from .result import Capture

if TYPE_CHECKING:
    from ..graph.divergence import Divergence
    from ..syncs.detect import RecordedCalls
    from .warm_start import Restart
    from .watch import Watch

MECHANISMS: dict[str, Callable[[], Mechanism]] = {
    "dispatch": Dispatch,
    "fx": Fx,
    "dynamo": Dynamo,
    "aot": Aot,
    "compiled_autograd": CompiledAutograd,
    "export": Export,
    "inductor": Inductor,
}
RESETTING = COMPILING | {"export"}
"""Mechanisms that reset Dynamo before and after a capture."""
FAKEABLE = frozenset({"dispatch", "dynamo", "aot", "export"})
"""Mechanisms that can run on fake tensors."""


def capture(
    target: Callable[..., Any],
    /,
    *args: Any,
    via: str | Mechanism = "aot",
    loss_fn: Callable[[Any], torch.Tensor] | None = None,
    backward: bool | None = None,
    fake: bool = False,
    device: str | int | torch.device | None = None,
    updates: Any = None,
    warmup: int | None = None,
    **kwargs: Any,
) -> Capture:
    """Run `target(*args, **kwargs)` once, and its backward, and return the graphs.

    `capture(model, x).assert_graph_count(forward=1, backward=1)` checks a training step, and
    `capture(model, x, via=Inductor(mode="max-autotune")).kernels` lists the generated kernels.

    Grad mode, autocast and train/eval mode are the caller's. After the run, parameters, the RNG
    state, `.grad`, buffers, the state of optimizers that stepped and tensor arguments are restored,
    even if the capture is refused or the target raises. The target's exception propagates. Python
    values are not restored, nor tensors and generators that the target reaches only through class
    attributes, other modules' globals, methods, sets or iterators (see `docs/limits.md`). If the
    target changed Python attributes of modules before it raised, a note on the exception says so.

    A capture through Dynamo ("dynamo", "aot", "inductor", "compiled_autograd", "export") resets
    Dynamo before and after. Except via "export", these captures also record the ops that run
    eagerly, outside the compiled graphs (`Capture.eager`). Parts of the target that are already
    compiled are compiled with the capture's backend, like the rest.
    If their own backend computes otherwise, `assert_matches_eager` raises an error: use `steady`.

    Args:
        target: a module or any callable.
        *args: positional arguments of the target.
        via: the mechanism, as a name or as an object with options: `Aot(dynamic=True)`:

            - "aot" (the default), `Aot`: AOTAutograd's forward and backward graphs, aten ops;
            - "dispatch", `Dispatch`: the ops as they ran, by a TorchDispatchMode;
            - "fx", `Fx`: `torch.fx.symbolic_trace`, modules and torch functions;
            - "dynamo", `Dynamo`: the graphs that torch.compile passes to a backend;
            - "export", `Export`: `torch.export`;
            - "inductor", `Inductor`: inductor's post-grad graphs, its kernels and library calls;
            - "compiled_autograd", `CompiledAutograd`: the forward, and the whole backward as one
              graph.
        loss_fn: maps the output to the scalar tensor where the backward starts. The default is the
            output's scalar `loss` if present, otherwise all differentiable outputs, floating-point
            and complex, with fixed non-uniform gradients. Ops of the loss are not captured.
        backward: `None` runs the backward if possible, unless the target itself changes a gradient:
            it runs a backward, or assigns `.grad`. False never runs it, True raises if impossible.
            Only "aot", "dispatch", "inductor" and "compiled_autograd" have backward graphs;
            "export" cannot run the backward.
        fake: run on fake tensors, which have shapes but no memory; via "aot", "dynamo", "dispatch"
            and "export". Parameters on the meta device are treated as CPU parameters.
            `assert_matches_eager` is not available.
        device: run on copies of target and inputs on this device (`"cuda:1"`, an index of the
            accelerator or a `torch.device`); the originals do not move.
        updates: what a training step changes: modules, optimizers, schedulers, gradient scalers,
            generators, tensors, and objects with `state_dict` and `load_state_dict`, as one object
            or a tuple. All of it is restored bitwise. The target then runs its own backward, and
            its update is a third phase; see `Capture.phase`. Via "dispatch", "aot" and "inductor".
        warmup: how often a training step runs before it is captured, 1 by default: optimizers make
            their state in the first step.
        **kwargs: keyword arguments of the target.

    Returns:
        The graphs, and the other records of the run.

    Raises:
        TypeError: if the target is not callable or is a class; if it has a parameter with the name
            of an option of `capture`; if an argument that it does not accept is an option of a
            mechanism, such as `dynamic`; if `via`, `backward`, `device`, `updates` or `warmup` has
            the wrong type; or if `updates` is combined with `loss_fn`, `backward`, `fake` or
            `device`, or missing beside `warmup`.
        ValueError: if `via` or `device` is unknown, or `warmup` is negative.
        CaptureError: if this build of torch or this machine lacks the device; if nothing was
            captured, with the cause; if the mechanism cannot capture the target; if part of the
            target runs unrecorded; if `backward=True` and nothing requires grad; if `loss_fn` does
            not return a scalar; if the target reads a value of a fake tensor, or changed its
            parameters; inside an open `watch()`, for a mechanism that resets Dynamo; or inside
            another capture, or while another thread captures.
        UnsupportedTorchError: if torch is older than 2.9.
    """
    need_torch()
    mechanism = _mechanism(via)
    own_options = {"loss_fn": loss_fn, "backward": backward, "device": device}
    # The defaults become `None`, which means that an option was not passed.
    _check_target(
        target,
        {
            **own_options,
            "via": None if via == "aot" else via,
            "fake": fake or None,
            "updates": updates,
            "warmup": warmup,
        },
    )
    named_updates = _updates(updates, warmup, mechanism, {**own_options, "fake": fake or None})
    _check_options(target, kwargs)
    callback = None
    # The mechanism compiles what the user passed to `torch.compile`. `callback` holds the user's
    # backend, for comparisons.
    if mechanism.name in COMPILING and named_updates is None:
        callback = torch_private.callback_of(target)
        target = torch_private.uncompiled(target)
    if warmup is None:
        warmup = 0 if named_updates is None else 1
    invocation = Invocation(target, args, kwargs, loss_fn, backward, named_updates, warmup)
    _check_modules(invocation.named)
    torch_device = None if device is None else parse(device)
    with exclusive(resets=mechanism.name in RESETTING):
        _check_possible(mechanism, fake)
        with HUB.paused(), _on_device(invocation, fake, torch_device) as placed:
            try:
                ran = _run(mechanism, placed)
            except Exception as error:
                if fake:
                    refuse_values(error)
                else:
                    note_meta_device(error, placed)
                raise
    comparison = None if fake else _comparison(mechanism, ran, callback)
    header = Header(mechanism.name, torch.__version__.partition("+")[0])
    result = Capture(
        _contents(mechanism, ran, comparison),
        header,
        device=None if torch_device is None else torch_device.type,
    )
    _check_device(result)
    CONTEXT.notify(result)
    return result


class _StepResult(NamedTuple):
    """A finished step and its records.

    Attributes:
        step: the step.
        captured: what the mechanism captured.
        outcome: the results to compare with those of an eager run; `None` for a training step.
        record: the compiler's record; `None` if the mechanism compiles nothing.
    """

    step: Step
    captured: Captured
    outcome: Outcome | None
    record: WatchRecord | None


def _on_device(
    invocation: Invocation, fake: bool, torch_device: torch.device | None
) -> contextlib.AbstractContextManager[Invocation]:
    """Return the invocation on the requested device, with fake tensors inside the context."""
    if fake:
        return with_fake_tensors(invocation, torch_device)
    moved = invocation if torch_device is None else to_device(invocation, torch_device)
    return contextlib.nullcontext(moved)


def _run(mechanism: Mechanism, invocation: Invocation) -> _StepResult:
    """Run one step through a mechanism, and restore the state that it changed."""
    meshes = torch_private.meshes_of(invocation.named.all_tensors())
    recorder = EventRecorder() if mechanism.name in COMPILING else None
    if mechanism.name in RESETTING:
        # Dynamo then calls `note_all` while it traces, instead of tracing into it.
        torch.compiler.assume_constant_result(note_all)  # type: ignore[no-untyped-call]
    # Nobody sees the writes of the warm-up.
    sees_writes = mechanism.name == "dispatch" and not invocation.warmup
    updates = invocation.updates
    with preserve_state(invocation.named, sees_writes=sees_writes, updates=updates) as saved:
        step = Step(invocation, saved)
        try:
            dimensions = dimensions_named(lambda: dimensions_of_meshes(meshes))
            if mechanism.name != "dispatch":  # which runs the step within the same recording
                for _ in range(invocation.warmup):
                    mechanism.capture(Step(invocation, saved), CanonicalNames())
            with HUB.recording(recorder), dimensions:
                captured = mechanism.capture(step, CanonicalNames())
        except Exception as error:
            # Add whose error it is: the target's, which also raises eagerly, or the compiler's.
            if mechanism.name in COMPILING | {"fx"}:
                tell_whose(error, invocation, saved, mechanism.name)
            raise
        outcome = None if updates is not None else outcome_of(step)
    if outcome is not None:
        outcome = outcome.finished(saved)  # after the state is restored
    saved.release()
    return _StepResult(step, captured, outcome, None if recorder is None else record_of(recorder))


def _comparison(mechanism: Mechanism, ran: _StepResult, callback: Any) -> EagerComparison:
    """Return the functions that run the step again, eagerly and captured, for a comparison."""
    step, outcome, comparable = ran.step, ran.outcome, ran.captured.comparable
    # The closures do not use `ran`, because it would keep the whole recording alive.
    incomparable = ran.captured.incomparable
    invocation = step.invocation.with_backward(step.ran_backward)
    eager_run = EagerRun(invocation, step.saved.random, callback)

    def captured() -> Outcome:
        """Return the outcome of the captured run, or of another one if that cannot be compared."""
        if outcome is None:
            raise CaptureError(
                "a training step is compared with an eager one over several calls: use "
                "graph_capture.steady(step, *calls, updates=...).assert_matches_eager()"
            )
        if incomparable:
            raise CaptureError(incomparable)
        if comparable is None:  # this run drew the random numbers that an eager run draws
            return outcome
        return eager_run.run(lambda s: comparable.capture(s, CanonicalNames()))

    return EagerComparison(
        eager=eager_run.eagerly,
        captured=captured,
        in_float64=lambda: eager_run.eagerly(InFloat64),
        backends=eager_run.backends,
        python=eager_run.python,
        before=step.saved.python,
        generators=lambda: RandomState(step.invocation.named.generators),
        compiles=mechanism.name in COMPILING,
        traces=mechanism.name in RESETTING,
        search=functools.partial(_search, eager_run, mechanism),
    )


def _search(
    eager_run: EagerRun,
    mechanism: Mechanism,
    expected: StepResult,
    differs: Callable[[StepResult], bool],
    seconds: float | None,
) -> Divergence:
    """Find the first difference of a captured run; see `EagerComparison.search`."""
    from ..divergence.stages import Search  # imported only here: most captures never search
    from ..divergence.values import Budget

    return Search(eager_run, mechanism, expected, differs, Budget(seconds)).run()


def _contents(
    mechanism: Mechanism, ran: _StepResult, comparison: EagerComparison | None
) -> Contents:
    """Return the contents of a captured step. Graphs are numbered now, unless deferred.

    The source of the graphs has one of three forms. A function builds them on first use, and
    `Built` graphs are those of recorded ops: neither has live torch.fx modules. Otherwise it is a
    list of converted torch.fx graphs.
    """
    captured, named_modules = ran.captured, ran.step.invocation.named
    classes, own_modules = named_modules.classes(), named_modules.own_modules()

    def named(graphs: Iterable[Graph]) -> tuple[Graph, ...]:
        """Give graphs their final names. Refuse a step without any op."""
        named_graphs = numbered(graphs, classes, own_modules)
        if not any(node.is_call for graph in named_graphs for node in graph.nodes):
            raise _nothing_captured(mechanism, ran)
        return named_graphs

    source = captured.graphs
    if callable(source) or isinstance(source, Built):

        def deferred() -> tuple[tuple[Graph, ...], RecordedCalls | None]:
            """See `Contents.build`."""
            built = source() if callable(source) else source
            return named(built.graphs), built.calls

        contents = Contents(
            deferred,
            ran.step.output,
            comparison=comparison,
            training=captured.training,
            find_frozen=functools.partial(_frozen, mechanism, ran.step, ()),
        )
        if not callable(source):  # number the graphs now: a capture of nothing is an error here
            contents.build()
        return contents
    # Without a graph break, no number in the output was read from a tensor.
    unbroken = ran.record is not None and not ran.record.breaks

    def finished(graphs: tuple[Graph, ...], converted: Sequence[Converted]) -> tuple[Graph, ...]:
        """Add the target's output to graphs of one level."""
        return with_output(graphs, converted, ran.step.output, named_modules, unbroken=unbroken)

    graphs = finished(named(conversion.graph for conversion in source), source)
    # Pairs of a graph and its conversion, at the capture's level and then at the further levels.
    live = list(zip(graphs, source, strict=True))
    levels = {}
    for level, converted in captured.levels.items():
        of_level = (conversion.graph for conversion in converted)
        levels[level] = finished(numbered(of_level, classes, own_modules), converted)
        live += zip(levels[level], converted, strict=True)
    islands, joints = captured.islands, captured.joints
    return Contents(
        lambda: (graphs, None),
        ran.step.output,
        build_eager=None
        if islands is None
        else lambda: _eager(islands, ran.record, classes, own_modules),
        live_by_id={id(graph): conversion for graph, conversion in live},
        by_level=levels,
        build_joints=lambda: joints,
        build_kernels=_kernels(captured, graphs),
        build_schedules=captured.schedules,
        build_bypasses=captured.bypasses,
        passes=None
        if captured.passes is None
        else named_runs(captured.passes, [graph.name for graph in graphs]),
        record=ran.record,
        comparison=comparison,
        training=captured.training,
        methods=captured.methods,
        find_frozen=functools.partial(_frozen, mechanism, ran.step, graphs),
    )


def _nothing_captured(mechanism: Mechanism, ran: _StepResult) -> CaptureError:
    """Return the error for a step without any op in its graphs, with the cause."""
    why = ran.captured.why_none
    # Without a reason, or with the beginning of one, the compiler's record says the rest.
    if ran.record is not None and (not why or why.endswith(": ")):
        why += why_nothing(ran.record.compiled)
    why = why or (
        "the output of the target does not depend on any op: return the result of the computation"
    )
    return CaptureError(f"nothing was captured via {mechanism.name!r}: {why}")


def _frozen(mechanism: Mechanism, step: Step, graphs: Sequence[Graph]) -> tuple[Frozen, ...]:
    """Find the numbers that are frozen into the graphs of a training step."""
    from .frozen import find_frozen  # imported only here: few captures need it

    return find_frozen(mechanism, step.invocation, step.saved.random, graphs)


def _eager(
    build: Callable[[], Islands],
    record: WatchRecord | None,
    classes: Mapping[str, str],
    own_modules: Mapping[str, OwnModule],
) -> EagerPart:
    """Return the eager ops and graphs, with the graph breaks and skipped frames as causes."""
    islands = build()
    breaks = () if record is None else record.breaks
    functions = functions_of(() if record is None else record.compiled)
    causes = [cause_of(stack, breaks, functions) for stack in islands.stacks]
    graphs = []
    for island in islands.graphs:
        cause = causes[island.stack]
        graph = replace(island.graph, classes=classes, own_modules=own_modules, cause=cause)
        graphs.append((island.after_graph, graph))
    pairs = zip(islands.ops, islands.began, strict=True)
    ops = [op._replace(cause=causes[stack_index]) for op, stack_index in pairs]
    calls = _with_cuts(islands, breaks, functions)
    return EagerPart(graphs, ops, islands.order, calls)


def _with_cuts(
    islands: Islands, breaks: Sequence[GraphBreak], functions: Container[tuple[str, str]]
) -> list[StepCall]:
    """Return the calls of a step with the cuts before them.

    A call has a cut if it begins at a `Division`. See `Cut` for its graph break and `direct`.
    """
    cuts: list[Cut | None] = []
    for division in islands.divisions:
        cut = None
        if division is not None:
            cause = None if division.resumes else cause_of(division.stack, breaks, functions)
            is_at_line = cause is not None and any(
                (cause.file, cause.line) == (frame.file, frame.line) for frame in division.stack
            )
            cut = Cut(cause, division.direct and is_at_line)
        cuts.append(cut)
    # A frame that Dynamo skips has no line at which it is divided: in each module, it is divided
    # first where code runs that it called.
    at_line = {id(cut.graph_break) for cut in cuts if cut is not None and cut.direct}
    found: set[tuple[int, str]] = set()  # a break and a module in which its cut is found
    for number, (cut, division) in enumerate(zip(cuts, islands.divisions, strict=True)):
        cause = None if cut is None else cut.graph_break
        if cause is None or division is None or id(cause) in at_line:
            continue
        key = id(cause), islands.calls[number].module
        if key not in found and any(is_in_function(frame, cause) for frame in division.stack):
            found.add(key)
            cuts[number] = Cut(cause, True)
    return [replace(call, cut=cut) for call, cut in zip(islands.calls, cuts, strict=True)]


class GraphCapture:
    """The value of the `graph_capture` fixture: captures, `watch`, `steady` and `restart`."""

    def __call__(self, target: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Capture:
        """See `pytest_torchgraph.capture`."""
        return capture(target, *args, **kwargs)

    def watch(self) -> Watch:
        """See `pytest_torchgraph.watch`."""
        from .watch import watch

        return watch()

    def steady(self, target: Callable[..., Any], /, *calls: Any, **options: Any) -> Capture:
        """See `pytest_torchgraph.steady`."""
        from .watch import steady

        return steady(target, *calls, **options)

    def restart(self, target: Callable[..., Any], /, *calls: Any, **options: Any) -> Restart:
        """See `pytest_torchgraph.restart`."""
        from .warm_start import restart

        return restart(target, *calls, **options)

    def __repr__(self) -> str:
        return "<graph_capture>"


# `help(graph_capture)` then shows the docstring of `capture`.
functools.update_wrapper(GraphCapture.__call__, capture, assigned=("__doc__",), updated=())


TRAINING = ("dispatch", "aot", "inductor")
"""Mechanisms that capture a whole training step."""


def _updates(
    updates: Any, warmup: Any, mechanism: Mechanism, others: Mapping[str, Any]
) -> Updates | None:
    """Check the options of a training step, and return what it changes; `None` for other targets.

    Args:
        updates, warmup: the options, as passed to `capture`.
        mechanism: the mechanism.
        others: options that a training step excludes, by name; `None` for one that was not passed.

    Raises:
        TypeError, ValueError, CaptureError: see `capture`.
    """
    if warmup is not None:
        if updates is None:
            raise TypeError("warmup= needs updates=, which names what the training step changes")
        if isinstance(warmup, bool) or not isinstance(warmup, int):
            raise TypeError(f"warmup must be an int, not {type(warmup).__name__}")
        if warmup < 0:
            raise ValueError(f"warmup={warmup} is negative: pass 0 to capture the first step")
    if updates is None:
        return None
    named = Updates(updates)  # raises for an object whose state cannot be saved
    for name, value in others.items():
        if value is not None:
            raise TypeError(
                f"{name}= cannot be combined with updates=: a training step calls its own loss and "
                "backward, on real tensors where they are"
            )
    if mechanism.name not in TRAINING:
        raise CaptureError(
            f"updates= is not available via {mechanism.name!r}: use via="
            f"{_one_of(map(repr, TRAINING))}"
        )
    return named


def _mechanism(via: Any) -> Mechanism:
    """Return the mechanism of an argument `via=`. Refuse anything else, with what to pass."""
    if isinstance(via, str):
        if via in MECHANISMS:
            return MECHANISMS[via]()
        raise ValueError(
            f"unknown via={via!r}: use {_one_of(map(repr, MECHANISMS))}, or a mechanism such "
            "as Aot()"
        )
    if isinstance(via, type) and isinstance(getattr(via, "name", None), str):
        raise TypeError(f"via={via.__name__}: pass an instance, {via.__name__}()")
    if isinstance(via, Mechanism):
        # A user's mechanism checks its own options.
        if type(via) in MECHANISMS.values():
            check_options(via)
        return via
    raise TypeError(
        f"via must be a mechanism or its name, not {type(via).__name__}: pass via='aot' or "
        "via=Aot()"
    )


def _one_of(texts: Iterable[str]) -> str:
    """Return texts as alternatives: `a, b or c`."""
    *all_but_last, last = texts
    return f"{', '.join(all_but_last)}{' or ' if all_but_last else ''}{last}"


def _check_possible(mechanism: Mechanism, fake: bool) -> None:
    """Refuse fake tensors without memory, a switched-off compiler, and a reset inside a watch."""
    if fake and mechanism.name not in FAKEABLE:
        raise CaptureError(
            f"fake=True is not available via {mechanism.name!r}, which needs real memory: use "
            f"via={_one_of(map(repr, sorted(FAKEABLE)))}"
        )
    if mechanism.name in COMPILING and (setting := switched_off()):
        raise CaptureError(f"nothing was captured via {mechanism.name!r}: {setting}")
    if mechanism.name in RESETTING and HUB.watching:
        raise CaptureError(
            f"cannot capture via {mechanism.name!r} inside an open watch(), because the capture "
            "resets Dynamo: capture before or after the watch"
        )


_SCRIPT = (
    "the target is TorchScript, or calls it. TorchScript rewrites and profiles its code at run "
    "time: capture the original Python module"
)


def _check_modules(named: NamedTensors) -> None:
    """Refuse lazy modules and TorchScript, including modules that only a closure refers to."""
    for path, module in named.all_modules:
        if isinstance(module, torch.jit.ScriptModule):
            raise CaptureError(_SCRIPT)
        tensors = (*module._parameters.items(), *module._buffers.items())
        lazy = next(
            (name for name, tensor in tensors if tensor is not None and is_lazy(tensor)), None
        )
        if lazy is not None:
            name = f"{path}.{lazy}" if path else lazy
            raise CaptureError(
                f"{name!r} of the target is uninitialized, because {type(module).__name__} creates "
                "it in its first call. Call the target once before the capture: model(x)"
            )


def _check_target(target: Any, own_options: dict[str, Any]) -> None:
    """Refuse a target that cannot be captured, or with a parameter that `capture` takes for itself.

    Args:
        target: the target.
        own_options: the options of `capture`, by name; `None` for one that was not passed.
    """
    if not callable(target):
        raise TypeError(
            f"the target must be a module or another callable, not {type(target).__name__}: write "
            "graph_capture(model, x), not graph_capture(model(x))"
        )
    if isinstance(target, type):  # torch.compile would change the class permanently
        name = target.__name__
        raise TypeError(
            f"the target must be a module or another callable, but {name} is a class. Capture an "
            f"instance: graph_capture({name}(...), x)"
        )
    scripted: Any = (torch.jit.ScriptModule, torch.jit.ScriptFunction)
    if isinstance(target, scripted) or (
        isinstance(target, torch.nn.Module)
        and any(isinstance(module, torch.jit.ScriptModule) for module in target.modules())
    ):
        raise CaptureError(_SCRIPT)
    passed = [name for name, value in own_options.items() if value is not None]
    declared = _declared_parameters(target) if passed else None
    for name in passed:
        if name in (declared or ()):
            raise TypeError(
                f"{name!r} is both a parameter of {_name_target(target)} and an option of "
                "graph_capture. To pass it to the target: graph_capture(functools.partial(target, "
                f"{name}=...), ...)"
            )


def _declared_parameters(target: Any) -> Mapping[str, inspect.Parameter] | None:
    """Return the parameters of a target, or `None` without a signature (a builtin)."""
    with contextlib.suppress(TypeError, ValueError):
        return inspect.signature(callable_of(target)).parameters
    return None


def _check_options(target: Any, kwargs: dict[str, Any]) -> None:
    """Refuse options of mechanisms that were passed as arguments of the target."""
    takers = grouped(
        (option.name, kind.__name__)
        for kind in MECHANISMS.values()
        for option in fields(kind)  # type: ignore[arg-type]
    )
    passed = takers.keys() & kwargs.keys()
    declared = _declared_parameters(target) if passed else None
    # Without a signature, or with `**kwargs`, the target may accept the name.
    if declared is None or any(p.kind is p.VAR_KEYWORD for p in declared.values()):
        return
    for name in sorted(passed - declared.keys()):
        ways = [f"via={kind}({name}={kwargs[name]!r})" for kind in takers[name]]
        raise TypeError(
            f"{name!r} is not a parameter of {_name_target(target)}, but an option of a mechanism: "
            f"pass {_one_of(ways)}"
        )


def _name_target(target: Any) -> str:
    return str(getattr(target, "__name__", type(target).__name__))


def _kernels(captured: Captured, graphs: Sequence[Graph]) -> Callable[[], Sequence[Kernel]] | None:
    """Return a function that reads the kernels and sets the names of their graphs.

    The kernels as read have the number of their graph in place of its name. Return `None` if there
    is no generated code.
    """
    read_kernels = captured.kernels
    if read_kernels is None:
        return None
    return lambda: [
        replace(kernel, graph=graphs[int(kernel.graph)].name) for kernel in read_kernels()
    ]


def _check_device(result: Capture) -> None:
    """Refuse a capture without a graph on the device of the running test's `graph_device`."""
    expected = CONTEXT.device
    if expected is None:
        return
    devices = device_types(result.graphs)
    if expected not in devices:
        raise CaptureError(
            f"nothing on {expected} was captured in this test with graph_device={expected} (only "
            f"on {', '.join(sorted(devices)) or 'no device'}): pass device=graph_device, or create "
            "model and inputs on graph_device"
        )
