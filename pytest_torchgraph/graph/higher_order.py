"""torch's higher-order ops: the op that a wrapper runs, and the number of runs of each body.

Every analysis of higher-order ops uses the tables in this module. An op that is missing in them is
still counted with its bodies. An analysis that needs the meaning of the op (FLOPs, patterns) raises
a `CaptureError` that names the op.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

from ..ops.collectives import calls_python, is_autograd_node
from .model import Arg, Atom, Node, SubgraphRef

PREFIX = "higher_order."

Kind: TypeAlias = Literal[
    "call", "branch", "map", "scan", "tree", "loop", "attention", "function", "hook"
]
"""Way in which a higher-order op runs its bodies.

- `call` runs its only body once, on the arguments after the body.
- `branch` runs one of its bodies. Each body counts once.
- `map` and `scan` run the body for each row of the operands. A scan passes the first results for a
  row to the next row.
- `tree` runs the body for pairs of rows. The backend decides how often.
- `loop` runs its bodies as long as a condition holds.
- `attention` runs its bodies for each score, inside a kernel.
- `function` runs the forward of an `autograd.Function` once, and the backward once in the backward.
- `hook` runs the body on a gradient, in the backward.
"""

_NAMES: Mapping[Kind, str] = {
    "call": (
        "control_deps dynamo_bypassing_wrapper foreach_map hints_wrapper invoke_quant "
        "invoke_quant_packed invoke_subgraph local_map_hop run_const_graph strict_mode "
        "tag_activation_checkpoint wrap wrap_activation_checkpoint wrap_with_autocast "
        "wrap_with_set_grad_enabled"
    ),
    "branch": "cond switch",
    "map": "map_impl",
    "scan": "scan",
    "tree": "associative_scan",
    "loop": "while_loop while_loop_stack_output",
    "attention": "flex_attention flex_attention_backward",
    "function": "autograd_function_apply",
    "hook": "register_hook",
}
GRAPH_MODULE = "torch.fx.GraphModule"
"""Op of a call to a module that is itself a graph."""

KINDS: Mapping[str, Kind] = {
    GRAPH_MODULE: "call",
    **{PREFIX + name: kind for kind, names in _NAMES.items() for name in names.split()},
}

WRAPPED_AT = {
    PREFIX + "auto_functionalized": 0,
    PREFIX + "auto_functionalized_v2": 0,
    PREFIX + "graphsafe_run_with_rng_state": 0,
    PREFIX + "out_dtype": 0,
    PREFIX + "run_and_save_rng_state": 0,
    PREFIX + "run_dtensor_rng_op": 2,
    PREFIX + "run_with_rng_state": 1,
    PREFIX + "triton_kernel_wrapper_functional": 0,
    PREFIX + "triton_kernel_wrapper_mutation": 0,
    PREFIX + "with_effects": 1,
}
"""Ops that run another op, each with the position of that op among the arguments."""

CONTROL_DEPS = PREFIX + "control_deps"
"""An op that runs its body after other nodes. Only the ops in the body are counted."""

WRAPPERS = frozenset(WRAPPED_AT) | {CONTROL_DEPS}
"""Ops that are not counted; the wrapped op is counted instead."""

PLAIN = frozenset(
    PREFIX + name for name in ("_export_tracepoint", "inline_asm_elementwise", "print")
)
"""Higher-order ops that call nothing."""

HIDING = frozenset(
    PREFIX + name
    for name in (
        "aoti_call_delegate call_torchbind custom_function_call executorch_call_delegate "
        "flat_apply inductor_compiled_code invoke_leaf_function trace_wrapped"
    ).split()
) | {"torch._dynamo.variables.torch.flat_apply_capture"}
"""Ops that run code outside every graph."""

HIGHER_ORDER = frozenset(KINDS) | WRAPPERS | PLAIN | HIDING
"""All ops with an entry in this module."""

_OP = re.compile(r"(?!torch\.)\w+\.\w+\.\w+\Z")
"""Name of an overload, such as `aten.add.Tensor`, not of a function of torch."""
SAVING_STATE = PREFIX + "run_and_save_rng_state"
"""A wrapper whose first result is not a result of the wrapped op."""
_WITH_EFFECTS = PREFIX + "with_effects"


def executed(node: Node) -> Node:
    """Return the call that a wrapper runs. Any other call is returned unchanged.

    The returned call has the result of the wrapped op, without a generator's state or an effect's
    token.
    """
    place = WRAPPED_AT.get(node.op)
    if place is None:
        return node
    # In an edited text, the argument may be missing.
    inner = next(iter(node.args[place : place + 1]), None)
    if not isinstance(inner, Atom):
        return node
    kwargs = {name: arg for name, arg in node.kwargs.items() if name != "rng_state"}
    args, result = node.args[place + 1 :], node.result
    if node.op == PREFIX + "out_dtype":
        args = args[1:]  # the first is a dtype, which the wrapped op does not take
    if node.op in (_WITH_EFFECTS, SAVING_STATE) and isinstance(result, tuple):
        result = result[1] if len(result) == 2 else result[1:]
    return executed(replace(node, op=inner.name, args=args, kwargs=kwargs, result=result))


def declared_arguments(kwargs: Mapping[str, Arg]) -> dict[str, Arg]:
    """Return the arguments declared by an op, from the arguments of `auto_functionalized_v2`.

    `auto_functionalized_v2` passes each tensor that the op writes as an index into a list. A tensor
    that is part of a listed tensor is left out, because no node has its value.
    """
    bases = kwargs.get("_all_bases")
    if not isinstance(bases, tuple):
        return dict(kwargs)
    declared = {name: arg for name, arg in kwargs.items() if not name.startswith("_")}
    hidden = {name[1:]: arg for name, arg in kwargs.items() if name.startswith("_")}
    for key, value in hidden.items():
        name = key.removesuffix("_base_index")
        is_part = f"{name}_size" in hidden or f"{name}_slice_dim" in hidden
        if name != key and not is_part:
            declared[name] = None if value is None else bases[value]
    for key, value in hidden.items():
        name = key.removesuffix("_length")
        count = value if name != key and isinstance(value, int) else 0
        items = [f"{name}_{number}" for number in range(count)]
        if items and all(item in declared for item in items):
            declared[name] = tuple(declared.pop(item) for item in items)
    return declared


def hides(node: Node) -> bool:
    """Return True if a call runs, or may run, ops outside every graph."""
    if not node.op.startswith(PREFIX):
        return node.op in HIDING or calls_python(node.op) or is_autograd_node(node.op)
    op = executed(node).op
    if not op.startswith(PREFIX):
        return False
    if op in KINDS or op in PLAIN:
        return False
    # `executed` leaves a wrapper whose op is unknown. An op without an entry here may hide ops if
    # it names neither bodies nor ops.
    return op in HIDING or op in WRAPPERS or not (any(body_names(node)) or any(ops_named(node)))


def ops_named(node: Node) -> Iterator[str]:
    """Yield the ops among the arguments of a higher-order op that is missing in this module."""
    if node.op.startswith(PREFIX) and not (node.op in KINDS or node.op in WRAPPERS):
        for leaf in leaves((node.args, node.kwargs)):
            if isinstance(leaf, Atom) and _OP.match(leaf.name):
                yield leaf.name


def body_names(value: Arg | Node) -> Iterator[str]:
    """Yield the names of the subgraphs that an argument, or any argument of a node, refers to."""
    if isinstance(value, SubgraphRef):
        yield value.name
    elif isinstance(value, Node):
        yield from body_names(value.args)
        yield from body_names(value.kwargs)
    elif isinstance(value, tuple | Mapping):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from body_names(item)


def leaves(value: Arg) -> list[Arg]:
    """Return the values in nested sequences and dicts, in order."""
    if isinstance(value, Mapping):
        return [leaf for item in value.values() for leaf in leaves(item)]
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]
