"""Capture by torch.export: one graph of the whole forward, with its signature by name."""

from __future__ import annotations

import contextlib
import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.export
import torch.utils._pytree as pytree
from torch.export.graph_signature import OutputKind

from .. import torch_private
from ..convert import source_lines
from ..convert.canonical_names import CanonicalNames
from ..convert.from_fx import Converted, Naming, convert
from ..convert.node_meta import LINE
from ..convert.normalize import rounded, value_of_constant
from ..errors import CaptureError, TorchGraphError
from ..graph.model import Graph, Ref
from ..ops.matching import Level
from .protocol import Captured, NamedValue, leaves_of, output_of
from .step import NamedTensors, Step

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
        with torch_private.ignore_torch_warnings(), _lines_recorded():
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
                raise CaptureError(_explain_failure(error)) from error
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


def _lines_recorded() -> contextlib.AbstractContextManager[None]:
    """Note the user's line at each node of a non-strict export.

    torch's own stacks contain only calls of `forward`. For an op of another function, they show the
    line that called the function.
    """
    try:
        create = torch_private.get("module_stack_node")
    except TorchGraphError:  # without it, the lines come from torch's stacks
        return contextlib.nullcontext()

    def create_node(tracer: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
        node: torch.fx.Node = create(tracer, *args, **kwargs)
        if (line := source_lines.current_line(Export.capture.__code__)) is not None:
            node.meta[LINE] = line
        return node

    return torch_private.replaced("module_stack_node", create_node)


_OF_DEBUGGING = ("For more ", "For extended ", "For C++ ", "If you suspect ", "The error above ")
"""Prefixes of the lines in torch's messages that explain how to debug torch."""


def _explain_failure(error: Exception) -> str:
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
        NamedValue(converted.names[value.name]) if isinstance(value, torch.fx.Node) else value
        for spec, value in specs
        if spec.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
    ]
    returned = [Ref(value) if isinstance(value, NamedValue) else rounded(value) for value in values]
    structure = pytree.tree_unflatten(values, program.call_spec.out_spec)
    leaves = leaves_of(structure, lambda name: name, NamedValue)
    return replace(converted.graph, output=output_of(leaves, returned, Ref, exact=True))


def signature_names(program: torch.export.ExportedProgram) -> dict[str, tuple[str, str]]:
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
