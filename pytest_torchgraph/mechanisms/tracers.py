"""Captures by a tracer of Python code: torch.fx's symbolic trace, and torch.export.

The symbolic trace keeps the target's own code, in modules and torch functions. torch.export makes
one graph of the whole forward, with its signature by name.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar
from unittest import mock  # torch imports it too

import torch
import torch.export
import torch.utils._pytree as pytree
from torch import fx
from torch.export.graph_signature import OutputKind
from torch.overrides import TorchFunctionMode

from .. import torch_private
from ..convert import effects, source_lines
from ..convert.canonical_names import CanonicalNames
from ..convert.from_fx import Converted, Naming, convert
from ..convert.node_meta import COMMUNICATES, LINE, RESULT
from ..convert.normalize import rounded, value_of_constant
from ..convert.placeholders import InputName
from ..errors import CaptureError, TorchGraphError
from ..graph.model import Graph, GraphKind, Ref
from ..ops.matching import Level
from ..ops.qualified import op_name
from .protocol import Captured, NamedValue, leaves_of, output_of
from .step import Invocation, NamedTensors, Step, callable_of


@dataclass(frozen=True)
class Fx:
    """`torch.fx.symbolic_trace`: runs the target's Python code on proxies, then runs the graph.

    `capture.output` and the dtypes and shapes of the nodes come from this run, which uses the real
    arguments. The backward runs eagerly and is not captured.

    Args:
        concrete_args: values of parameters that are fixed while tracing, as in
            `torch.fx.symbolic_trace`, so that control flow can depend on them. The graph asserts
            that it receives these values. Parameters that the call leaves at their default are
            fixed too.
        tracer: a custom `torch.fx.Tracer`, for other leaf modules.
    """

    concrete_args: dict[str, Any] | None = None
    tracer: fx.Tracer | None = None

    name: ClassVar[str] = "fx"
    level: ClassVar[Level] = "fx"

    def capture(self, step: Step, canon: CanonicalNames) -> Captured:
        """Trace the target, run the graph once and record the shapes."""
        invocation = step.invocation
        root, method = _root(invocation.target)
        signature = inspect.signature(callable_of(invocation.target))
        values = dict(signature.bind(*invocation.args, **invocation.kwargs).arguments)
        made_tensors = _CreatedTensors()
        with made_tensors:
            module = self._trace(root, method, values, invocation)
        if made_tensors.drawn:
            raise CaptureError(
                f"{made_tensors.drawn} ran while tracing: the graph would keep its values instead "
                "of drawing random numbers. Draw from an argument, as in torch.randn_like(x), pass "
                "the tensor as an argument, or capture via 'dynamo', 'aot' or 'dispatch'"
            )
        recorder = _FxRecorder(module, canon)
        step.run(lambda *args, **kwargs: recorder.run(*_flatten(values, signature)))
        kind: GraphKind = "forward" if step.ran_backward else "inference"
        inputs = _inputs(module.graph, self.concrete_args or {})
        modules = invocation.named.modules
        naming = Naming(inputs, modules, plain=True, is_made=made_tensors.is_made)
        converted = convert(module, name=kind, kind=kind, level="fx", canon=canon, naming=naming)
        return Captured([converted])

    def _trace(
        self, root: Any, method: str, values: dict[str, Any], invocation: Invocation
    ) -> fx.GraphModule:
        """Trace a module or function.

        Args:
            root, method: see `_root`.
            values: the arguments by parameter; the others are fixed at their defaults.
            invocation: the call.
        """
        tracer = self.tracer if self.tracer is not None else fx.Tracer()
        tracer.traced_func_name = method
        fixed = dict(self.concrete_args or {})
        defaults = {
            name: value for name, value in _defaults(root, method).items() if name not in values
        }
        attributes = dict(vars(root))
        try:
            with _lines_recorded(tracer):
                graph = tracer.trace(root, concrete_args={**defaults, **fixed} or None)
            for name in defaults.keys() - fixed.keys():
                _remove_placeholder(graph, name)
            return fx.GraphModule(tracer.root, graph, type(root).__name__)
        except Exception as error:
            if not _is_about_tracing(error):
                invocation.raise_what_the_target_raises()
            raise CaptureError(_explain_failure(error)) from error
        finally:  # the tracer keeps constants, such as `_tensor_constant0`, on the traced module
            for name in vars(root).keys() - attributes:
                delattr(root, name)


class _CreatedTensors(TorchFunctionMode):
    """Records the tensors that the traced code creates from numbers only.

    Attributes:
        drawn: name and line of the first function that drew random numbers, "" if none did.
    """

    def __init__(self) -> None:
        super().__init__()
        self.drawn = ""
        self._created_tensors: dict[int, torch.Tensor] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call a function, and note if it draws, or makes a tensor from no argument tensor."""
        with _OpDetector() as detector:
            result = func(*args, **(kwargs or {}))
        line = source_lines.current_line()
        if detector.drew and not self.drawn and line is not None:
            self.drawn = f"{op_name(func)} at {source_lines.format_line(line)}"
        if type(result) is torch.Tensor:
            tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
            if all(map(self.is_made, tensors)):
                self._created_tensors[id(result)] = result
        return result

    def is_made(self, tensor: Any) -> bool:
        """Return True if the tensor was created during the trace."""
        return self._created_tensors.get(id(tensor)) is tensor


@contextlib.contextmanager
def _lines_recorded(tracer: fx.Tracer) -> Iterator[None]:
    """Note the user's line at each node. The tracer's own stack traces would double the time."""
    create = tracer.create_node

    def create_node(*args: Any, **kwargs: Any) -> fx.Node:
        node = create(*args, **kwargs)
        node.meta[LINE] = source_lines.current_line()
        return node

    with mock.patch.object(tracer, "create_node", create_node):
        yield


class _FxRecorder(fx.Interpreter):
    """Runs a graph and records the result of each node."""

    def __init__(self, module: fx.GraphModule, canon: CanonicalNames):
        super().__init__(module)
        self.canon = canon

    def run_node(self, n: fx.Node) -> Any:
        """Run a node, and note its result in its meta."""
        if n.op == "call_module":
            with _OpDetector() as detector:  # the module's code or a hook may communicate
                result = super().run_node(n)
            n.meta[COMMUNICATES] = detector.communicated
        else:
            result = super().run_node(n)
        n.meta[RESULT] = self.canon.result(result)
        return result


class _OpDetector(torch_private.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Detects ops that communicate or draw random numbers.

    Attributes:
        communicated, drew: whether an op inside did.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.communicated = self.drew = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an op, and look at it."""
        if torch_private.stands_for_others(types):
            return NotImplemented
        self.communicated |= effects.facts(func).communicates
        self.drew |= effects.draws(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def _flatten(values: dict[str, Any], signature: inspect.Signature) -> list[Any]:
    """Return the values in the order of the placeholders, with `*args` expanded."""
    flat: list[Any] = []
    for name, value in values.items():
        is_expanded = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        flat.extend(value if is_expanded else [value])
    return flat


def _defaults(root: Any, method: str) -> dict[str, Any]:
    """Return the defaults of the traced function's parameters."""
    function = getattr(root, method) if isinstance(root, torch.nn.Module) else root
    parameters = inspect.signature(function).parameters
    return {
        name: parameter.default
        for name, parameter in parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }


def _inputs(graph: fx.Graph, fixed: dict[str, Any]) -> dict[str, InputName]:
    """Return (role, name) of each placeholder.

    torch appends a number to the name of a fixed parameter; this number is removed.
    """
    # A container becomes several placeholders, which keep their numbers.
    names = {
        f"{name}_1": name for name, value in fixed.items() if pytree.tree_leaves(value) == [value]
    }
    inputs = {}
    for node in graph.find_nodes(op="placeholder"):
        target = str(node.target).lstrip("*")
        inputs[node.name] = "input", names.get(target, target)
    return inputs


def _remove_placeholder(graph: fx.Graph, name: str) -> None:
    """Remove the placeholder and the assertion of a parameter left at its default."""
    for node in list(graph.find_nodes(op="placeholder")):
        if not re.fullmatch(rf"{re.escape(name)}_\d+", str(node.target)):
            continue
        to_erase = [node]
        for dead_node in to_erase:  # the list grows
            to_erase.extend(dead_node.users)
        if all(map(_is_assertion, to_erase[1:])):
            for dead_node in reversed(list(dict.fromkeys(to_erase))):  # users first
                graph.erase_node(dead_node)
    # This also removes the assertions of other parameters that are fixed at `None`.
    for node in list(graph.nodes):
        if getattr(node.target, "__name__", "") == "_assert_is_none" and not node.users:
            graph.erase_node(node)


def _is_assertion(node: fx.Node) -> bool:
    """Return True for a node with which torch.fx asserts the value of a fixed parameter."""
    return node.target in (operator.eq, torch._assert) or (
        getattr(node.target, "__name__", "") == "_assert_is_none"
    )


def _is_about_tracing(error: Exception) -> bool:
    """Return True for an error of torch.fx itself, not of the target's code."""
    words = str(error)
    return isinstance(error, fx.proxy.TraceError) or any(
        word in words
        for word in (
            "Proxy",
            "symbolic tracing",
            "symbolically traced",
            "is not installed as a submodule",
            "argument of type: <class",
        )
    )


def _explain_failure(error: Exception) -> str:
    """Return torch's reason for the failure, and the user's line."""
    words = str(error)
    advice = (
        "set the argument that it branches on to a constant with Fx(concrete_args={...}), make the "
        "module a leaf with Fx(tracer=...)"
    )
    if "is not installed as a submodule" in words:
        advice = "torch.fx cannot trace a function that uses a module: pass the module itself"
    elif "varnames is too small" in words:
        words = f"the signature of its forward differs from its decorator's ({words})"
        advice = "Trace a module whose forward has no decorator"
    elif _is_about_tracing(error):
        advice = f"torch.fx runs the target with proxies, which have no data: {advice}"
    else:
        words = f"with proxies, the target raises {type(error).__name__}: {words}"
        advice = f"With tensors, the target runs: {advice}"
    return (
        f"torch.fx cannot trace the target: {words}{source_lines.innermost(error)}\n{advice}, or "
        "capture via 'dynamo', 'aot' or 'dispatch'."
    )


def _root(target: Any) -> tuple[Any, str]:
    """Return the arguments of `Tracer.trace`: a module or function, and the name of the method."""
    if isinstance(target, torch.nn.Module):
        return target, "forward"
    if inspect.ismethod(target) and isinstance(target.__self__, torch.nn.Module):
        return target.__self__, target.__name__
    if inspect.isfunction(target):
        return target, "forward"
    called = target.func if isinstance(target, functools.partial) else target
    name = getattr(called, "__name__", type(called).__name__)
    kind = f"a {type(target).__name__}, not an nn.Module or a Python function"
    if inspect.ismethod(target):
        kind = "a method of an object that is not an nn.Module"
    raise CaptureError(f"torch.fx cannot trace {name!r}: it is {kind}. Wrap it in a function")


_LIFTED = re.compile(r"((?:.*\.)?lifted_tensor_)[0-9]+")
"""Name that torch gives a constant of the program."""


@dataclass(frozen=True)
class Export:
    """`torch.export.export`: one graph of the whole forward, without Python code.

    The exported program is run once, for `capture.output`. Export captures no backward.

    Args:
        dynamic_shapes: as in `torch.export.export`.
        strict: whether Dynamo traces the target (True) or Python runs it (False).
    """

    dynamic_shapes: Any = None
    strict: bool = False

    name: ClassVar[str] = "export"
    level: ClassVar[Level] = "export"

    def capture(self, step: Step, canon: CanonicalNames) -> Captured:
        """Export the target, then run the program once."""
        invocation = step.invocation
        target, named = invocation.target, invocation.named
        if invocation.backward or invocation.loss_fn is not None:
            raise CaptureError(
                f"{'backward=True' if invocation.backward else 'loss_fn'} is not available via "
                "'export', because torch.export has no backward: use via='aot'"
            )
        module = target if isinstance(target, torch.nn.Module) else _Function(target, named)
        with torch_private.ignore_torch_warnings(), _export_lines_recorded():
            try:
                with _backends_restored():
                    program = torch.export.export(
                        module,
                        invocation.args,
                        invocation.kwargs,
                        dynamic_shapes=self.dynamic_shapes,
                        strict=self.strict,
                    )
            except Exception as error:
                invocation.raise_what_the_target_raises()
                raise CaptureError(_explain_export(error)) from error
            try:
                step.run(program.module(), backward=None)
            except Exception:
                # The target's own error has the user's line, the program's code has none.
                invocation.raise_what_the_target_raises()
                raise
        naming = Naming(
            signature_names(program),
            named.modules,
            values={
                node: value_of_constant(program.constants.get(name))
                for node, name in program.graph_signature.inputs_to_lifted_tensor_constants.items()
                if _is_lifted(program, node)
            },
        )
        converted = convert(
            program.graph_module,
            name="forward",
            kind="forward",
            level="export",
            canon=canon,
            naming=naming,
        )
        graph = with_outputs_of_program(converted, program)
        return Captured([replace(converted, graph=graph)])


@contextlib.contextmanager
def _backends_restored() -> Iterator[None]:
    """Restore the flags of oneDNN and NNPACK, which torch.export switches off for its trace.

    torch restores them itself, unless cuDNN's precisions conflict: then `_ignore_backend_decomps`
    raises first, and both backends would be off for the rest of the process.
    """
    mkldnn: Any = torch.backends.mkldnn
    nnpack: Any = torch.backends.nnpack
    flags = mkldnn.set_flags(_fp32_precision=None)  # changes nothing, and returns all flags
    (enabled,) = nnpack.set_flags(True)
    nnpack.set_flags(enabled)
    try:
        yield
    finally:
        mkldnn.set_flags(*flags)
        nnpack.set_flags(enabled)


def _export_lines_recorded() -> contextlib.AbstractContextManager[None]:
    """Note the user's line at each node of a non-strict export.

    torch's own stacks contain only calls of `forward`. For an op of another function, they show the
    line that called the function.
    """
    try:
        create = torch_private.get("module_stack_node")
    except TorchGraphError:  # without it, the lines come from torch's stacks
        return contextlib.nullcontext()

    def create_node(tracer: Any, *args: Any, **kwargs: Any) -> fx.Node:
        node: fx.Node = create(tracer, *args, **kwargs)
        if (line := source_lines.current_line(Export.capture.__code__)) is not None:
            node.meta[LINE] = line
        return node

    return torch_private.replaced("module_stack_node", create_node)


_OF_DEBUGGING = ("For more ", "For extended ", "For C++ ", "If you suspect ", "The error above ")
"""Prefixes of the lines in torch's messages that explain how to debug torch."""


def _explain_export(error: Exception) -> str:
    """Return torch's reason for the failure, and the user's line."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    report = [line for line in lines if not line.startswith(_OF_DEBUGGING)]
    reason = "\n".join(report[:8]) or type(error).__name__
    alternative = "capture via 'dynamo', 'aot' or 'dispatch'"
    if setting := _setting_at_fault(error):
        return (
            f"torch.export failed in {setting}, not in the target: {reason}\nUse only torch's new "
            f"or only its legacy API for these settings, or {alternative}."
        )
    if "data-dependent" in reason.lower():
        hint = (
            "Exported graphs have no data-dependent control flow: write it with torch.cond, or "
            f"{alternative}."
        )
    else:
        hint = f"For code that torch.export does not support, {alternative}."
    return f"torch.export cannot export the target: {reason}{source_lines.innermost(error)}\n{hint}"


def _setting_at_fault(error: Exception) -> str:
    """Return the module of torch.backends that raised the error, "" if none did.

    Export assigns flags such as `allow_tf32` for the trace. torch raises if `fp32_precision` was
    set to values that these older flags cannot express.
    """
    frames = traceback.extract_tb(error.__traceback__)
    last = source_lines.relative(frames[-1].filename) if frames else ""
    path = last.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return path if path.startswith("torch.backends") else ""


class _Function(torch.nn.Module):
    """A module that calls a target, and that contains the modules that the target uses."""

    def __init__(self, target: Callable[..., Any], named: NamedTensors):
        super().__init__()
        self._target = [target]
        for prefix, root in named.modules_by_prefix:
            if not prefix:
                for name, child in root.named_children():
                    self.add_module(name, child)
                for name, parameter in root.named_parameters(recurse=False):
                    self.register_parameter(name, parameter)
                for name, buffer in root.named_buffers(recurse=False):
                    self.register_buffer(name, buffer)
            else:
                self.add_module(prefix.replace(".", "_"), root)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._target[0](*args, **kwargs)


def _is_lifted(program: torch.export.ExportedProgram, name: str) -> bool:
    """Return True for a constant that the target's code creates: `lift_fresh` is applied to it."""
    users = [
        user
        for node in program.graph.find_nodes(op="placeholder")
        if node.name == name
        for user in node.users
    ]
    return bool(users) and all("lift_fresh" in str(user.target) for user in users)


def with_outputs_of_program(converted: Converted, program: torch.export.ExportedProgram) -> Graph:
    """Return the graph of an exported program, with the output from the program's signature."""
    (output,) = program.graph.find_nodes(op="output")
    specs = zip(program.graph_signature.output_specs, output.args[0], strict=True)
    values = [
        NamedValue(converted.names[value.name]) if isinstance(value, fx.Node) else value
        for spec, value in specs
        if spec.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
    ]
    returned = [Ref(value) if isinstance(value, NamedValue) else rounded(value) for value in values]
    structure = pytree.tree_unflatten(values, program.call_spec.out_spec)
    leaves = leaves_of(structure, lambda name: name, NamedValue)
    return replace(converted.graph, output=output_of(leaves, returned, Ref, exact=True))


def signature_names(program: torch.export.ExportedProgram) -> dict[str, InputName]:
    """Return (role, name) of each placeholder, from the program's signature."""
    signature = program.graph_signature
    named = {name: ("parameter", target) for name, target in signature.inputs_to_parameters.items()}
    named |= {name: ("buffer", target) for name, target in signature.inputs_to_buffers.items()}
    constants: Counter[str] = Counter()
    for name, target in signature.inputs_to_lifted_tensor_constants.items():
        lifted = _LIFTED.fullmatch(target)
        if lifted is not None:  # torch counts them over the whole program, not per prefix
            target = f"{lifted[1]}{constants[lifted[1]]}"
            constants[lifted[1]] += 1
        named[name] = ("constant", target)
    return named
