"""One graph per higher-order op of torch, and the expected answer to each query about its ops.

In every graph a cosine precedes the call and a tangent follows it. The body is a matrix product and
a sine, if the op can have such a body.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import Tensor
from torch_releases import RELEASE

if RELEASE < (2, 12):
    pytest.skip("needs higher-order ops that torch has since 2.12", allow_module_level=True)
from torch._dynamo.decorators import leaf_function
from torch._higher_order_ops._invoke_quant import InvokeQuant
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.strict_mode import strict_mode
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table
from torch._higher_order_ops.while_loop import while_loop
from torch._inductor.fx_passes.control_dependencies import control_deps
from torch._library.effects import EffectType
from torch.nn.attention.flex_attention import flex_attention

from pytest_torchgraph import Graph, capture
from pytest_torchgraph.convert import convert

HOP = torch.ops.higher_order
aten = torch.ops.aten
PRODUCT = 2 * 4 * 4 * 4
"""The FLOPs of the matrix product in a body."""
Edit = bool
"""True replaces the sine in the body, or the wrapped op, by another op."""
ONCE = {"aten.mm": 1, "aten.sin": 1}
PLAIN = (
    "aten.cos -> aten.mm",
    "aten.mm -> aten.sin",
    "aten.sin -> aten.tan",
    "aten.cos ~> aten.tan",
)


@dataclass(frozen=True)
class Row:
    """A graph and the expected results of queries.

    Attributes:
        make: makes the graph.
        counts: the expected runs of each op.
        patterns: patterns with a match.
        absent: patterns without a match, or with an error if the op's data flow is unknown.
        flops: the FLOPs, or a part of the error that names the op without a formula.
        found: an op for a filter by dtype, with its dtype and a dtype that it lacks. If None, the
            first counted op, which has float32.
        hides: True if the op runs code that is in no graph, so that every query is refused.
        is_plain: True if it costs the same as its ops without it, apart from the operand of the
            body, which the call keeps alive until it ends.
        by_hand: the reason why the graph is made by hand, "" if it is captured.
    """

    make: Callable[[Edit], Graph]
    counts: Mapping[str, int] = field(default_factory=lambda: ONCE)
    patterns: tuple[str, ...] = PLAIN
    absent: tuple[str, ...] = ("aten.sin ~> aten.mm", "aten.tan ~> aten.sin")
    flops: int | str = PRODUCT
    found: tuple[str, str, str] | None = None
    hides: bool = False
    is_plain: bool = False
    by_hand: str = ""


def square() -> Tensor:
    return torch.linspace(-1, 1, 16).reshape(4, 4)


def body(x: Tensor, edit: Edit) -> Tensor:
    y = x @ x
    return y.exp() if edit else y.sin()


def captured(
    target: Callable[[Edit, Tensor], Tensor], x: Tensor | None = None, via: str = "aot"
) -> Callable[[Edit], Graph]:
    def make(edit: Edit) -> Graph:
        def call(x: Tensor) -> Tensor:
            return target(edit, x.cos()).tan()

        return capture(call, square() if x is None else x, via=via, backward=False).graphs[0]

    return make


# -- by hand ---------------------------------------------------------------------------------------


def by_hand(
    build: Callable[[torch.fx.Graph, torch.fx.Node, Edit], torch.fx.Node], dtype: Any = None
) -> Callable[[Edit], Graph]:
    def make(edit: Edit) -> Graph:
        graph = torch.fx.Graph()
        x = _valued(graph.placeholder("x"), dtype)
        cos = _valued(graph.call_function(aten.cos.default, (x,)), dtype)
        made = build(graph, cos, edit)
        tan = _valued(graph.call_function(aten.tan.default, (made,)), dtype)
        graph.output(tan)
        attributes = {"one": _body(edit, 1), "two": _body(edit, 2)}
        return convert(torch.fx.GraphModule(attributes, graph), level="aot").graph

    return make


def _valued(node: torch.fx.Node, dtype: Any = None) -> torch.fx.Node:
    node.meta["val"] = torch.empty(4, 4, device="meta", dtype=dtype)
    return node


def _body(edit: Edit, inputs: int) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    taken = [_valued(graph.placeholder(f"x{k}")) for k in range(inputs)]
    mm = _valued(graph.call_function(aten.mm.default, (taken[0], taken[-1])))
    sin = _valued(graph.call_function(aten.exp.default if edit else aten.sin.default, (mm,)))
    graph.output((sin,))
    return torch.fx.GraphModule({}, graph)


def first(graph: torch.fx.Graph, call: torch.fx.Node) -> torch.fx.Node:
    call.meta["val"] = (torch.empty(4, 4, device="meta"),)
    return _valued(graph.call_function(operator.getitem, (call, 0)))


def calling(op: Any, *before: Any, bracket: bool = False) -> Callable[[Edit], Graph]:
    """Make a call of an op whose arguments are its body, then the body's operands."""

    def build(graph: torch.fx.Graph, cos: torch.fx.Node, edit: Edit) -> torch.fx.Node:
        operands = ((cos,),) if bracket else (cos,)
        return first(graph, graph.call_function(op, (*before, graph.get_attr("one"), *operands)))

    return by_hand(build)


def hiding(op: Any) -> Callable[[Edit], Graph]:
    return by_hand(lambda graph, cos, edit: first(graph, graph.call_function(op, ("f", cos))))


def wrapping(op: Any, *before: Any) -> Callable[[Edit], Graph]:
    """Make a call of an op whose arguments are another op, then that op's operands."""

    def build(graph: torch.fx.Graph, cos: torch.fx.Node, edit: Edit) -> torch.fx.Node:
        inner = aten.bmm.default if edit else aten.mm.default
        return _valued(graph.call_function(op, (*before, inner, cos, cos)))

    return by_hand(build)


class Kernel:
    """Substitute for a Triton kernel, with its function as `fn`."""

    def __init__(self, name: str):
        self.fn = type("fn", (), {"__name__": name})()


def kernel(op: Any, *, functional: bool) -> Callable[[Edit], Graph]:
    def build(graph: torch.fx.Graph, cos: torch.fx.Node, edit: Edit) -> torch.fx.Node:
        out = _valued(graph.call_function(aten.clone.default, (cos,)))
        kwargs = {
            "kernel_idx": kernel_side_table.add_kernel(KERNELS[edit]),  # type: ignore[arg-type]
            "constant_args_idx": kernel_side_table.add_constant_args({"n": 16}),
            "grid": [(1, 1, 1)],
            "tma_descriptor_metadata": {},
            "kwargs": {"x": cos, "out": out},
        }
        if not functional:
            graph.call_function(op, (), kwargs)
            return out
        call = graph.call_function(op, (), {**kwargs, "tensors_to_clone": ["out"]})
        return _valued(graph.call_function(operator.getitem, (call, "out")))

    return by_hand(build)


KERNELS = {False: Kernel("add_kernel"), True: Kernel("mul_kernel")}


# -- targets ---------------------------------------------------------------------------------------


@torch.library.custom_op("tg_rows::write", mutates_args=("x",))
def write(x: Tensor) -> None:
    x.sin_()


@torch.library.custom_op("tg_rows::overwrite", mutates_args=("x",))
def overwrite(x: Tensor) -> None:
    x.exp_()


@torch.library.custom_op("tg_rows::send", mutates_args=())
def send(x: Tensor) -> Tensor:
    return x.clone()


@torch.library.custom_op("tg_rows::receive", mutates_args=())
def receive(x: Tensor) -> Tensor:
    return x.clone()


send.register_fake(torch.empty_like)
receive.register_fake(torch.empty_like)
send.register_effect(EffectType.ORDERED)
receive.register_effect(EffectType.ORDERED)


@leaf_function
def leaf(x: Tensor) -> tuple[Tensor]:
    return (x.sin(),)


@leaf.register_fake
def _(x: Tensor) -> tuple[Tensor]:
    return (torch.empty_like(x),)


def written(edit: Edit, x: Tensor) -> Tensor:
    y = x.clone()
    (overwrite if edit else write)(y)
    return y


def no_grad(edit: Edit, x: Tensor) -> Tensor:
    with torch.no_grad():
        return body(x, edit)


def autocast(edit: Edit, x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return body(x, edit)


def looped(edit: Edit, x: Tensor) -> Tensor:
    start = (torch.zeros((), dtype=torch.int64), x)
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, body(x, edit)), start)[1]


def scanned(edit: Edit, x: Tensor) -> Tensor:
    def combine(carry: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        made = (carry @ row).exp() if edit else (carry @ row).sin()
        return made, made.clone()

    return scan(combine, square(), x)[1]


def hooked(edit: Edit, x: Tensor) -> Tensor:
    x.register_hook(lambda grad: body(grad, edit))
    return x * 2


class Own(torch.autograd.Function):
    """A sine whose backward is an exponential function."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * x.exp()


class OtherOwn(Own):
    """As `Own`, with another forward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.neg()


def attention(edit: Edit, x: Tensor) -> Tensor:
    return flex_attention(x, x, x, score_mod=lambda s, *_: s.exp() if edit else s.sin())


def dropped(edit: Edit, x: Tensor) -> Tensor:
    def block(x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(x, 0.25 if edit else 0.5)

    return torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)


def again(edit: Edit) -> Graph:
    """Make the backward of a checkpointed dropout, which recomputes it."""
    x = square().requires_grad_()
    return capture(lambda x: dropped(edit, x.cos()).sin(), x).backwards[0]


def mask(graph: torch.fx.Graph, cos: torch.fx.Node, edit: Edit) -> torch.fx.Node:
    """Make the backward of a flex attention. Its forward, joint graph and mask are bodies."""
    forward, joint = graph.get_attr("one"), graph.get_attr("two")
    operands = (cos,) * 7
    buffers: tuple[Any, ...] = ((), ())
    args = (*operands, forward, joint, (1, forward), 0.25, {}, *buffers)
    return first(graph, graph.call_function(HOP.flex_attention_backward, args))


def combined(graph: torch.fx.Graph, cos: torch.fx.Node, edit: Edit) -> torch.fx.Node:
    args = (graph.get_attr("two"), (cos,), ())
    return first(graph, graph.call_function(HOP.associative_scan, args))


def stacked(graph: torch.fx.Graph, cos: torch.fx.Node, edit: Edit) -> torch.fx.Node:
    args = (graph.get_attr("one"), graph.get_attr("one"), (cos,), ())
    return first(graph, graph.call_function(HOP.while_loop_stack_output, args))


def marked(op: Any, *args: Any) -> Callable[[Edit], Graph]:
    """Make a call of an op that runs nothing itself."""

    def build(graph: torch.fx.Graph, cos: torch.fx.Node, edit: Edit) -> torch.fx.Node:
        graph.call_function(op, args)
        return _valued(graph.call_function(aten.exp.default if edit else aten.sin.default, (cos,)))

    return by_hand(build)


@torch.compiler.nested_compile_region
def shared(x: Tensor) -> Tensor:
    return body(x, False)


@torch.compiler.nested_compile_region
def other_shared(x: Tensor) -> Tensor:
    return body(x, True)


def region(edit: Edit, x: Tensor) -> Tensor:
    return other_shared(other_shared(x)) if edit else shared(shared(x))


def quantized(edit: Edit, x: Tensor) -> Tensor:
    return InvokeQuant()(other_plain if edit else plain, x)


def plain(x: Tensor) -> Tensor:
    return body(x, False)


def other_plain(x: Tensor) -> Tensor:
    return body(x, True)


def without(edit: Edit) -> Graph:
    """Make the ops of a body without a higher-order op."""
    return captured(lambda edit, x: body(x, edit))(edit)


GPU = "needs a GPU"
UNREACHED = "no public function leaves it in a graph of this machine"
"""The reason for making a graph by hand."""
THREE = torch.linspace(-1, 1, 48).reshape(3, 4, 4)
TORCH = ("Tensor.cos ~> Tensor.tan",)
EXPORTED = ("aten.cos -> aten.matmul", "aten.matmul -> aten.sin", *PLAIN[2:])
MATMUL = {"aten.matmul": 1, "aten.sin": 1}


def _hidden(name: str) -> Row:
    return Row(hiding(getattr(HOP, name)), hides=True, by_hand=UNREACHED)


def _called(name: str, *before: Any, bracket: bool = False) -> Row:
    make = calling(getattr(HOP, name), *before, bracket=bracket)
    return Row(make, is_plain=True, by_hand=UNREACHED)


def _wrapped(name: str, *before: Any) -> Row:
    return Row(
        wrapping(getattr(HOP, name), *before),
        {"aten.mm": 1, f"higher_order.{name}": 0},
        ("aten.cos -> aten.mm", "aten.mm -> aten.tan"),
        ("aten.tan ~> aten.mm",),
        by_hand=GPU,
    )


def _mutating(make: Callable[[Edit], Graph], name: str, op: str, by_hand: str = "") -> Row:
    return Row(
        make,
        {op: 1, f"higher_order.{name}": 0},
        (f"aten.clone -> {op}", f"{op} -> aten.tan", f"aten.cos ~> {op}"),
        (f"aten.tan ~> {op}",),
        f"no formula for {op}",
        by_hand=by_hand,
    )


def functionalized(graph: torch.fx.Graph, cos: torch.fx.Node, edit: Edit) -> torch.fx.Node:
    """Make the first form of the wrapper, which torch uses below version 2."""
    op = torch.ops.tg_rows.overwrite.default if edit else torch.ops.tg_rows.write.default
    clone = _valued(graph.call_function(aten.clone.default, (cos,)))
    call = graph.call_function(HOP.auto_functionalized, (op,), {"x": clone})
    call.meta["val"] = (None, torch.empty(4, 4, device="meta"))
    return _valued(graph.call_function(operator.getitem, (call, 1)))


ROWS: dict[str, Row] = {
    "_export_tracepoint": Row(
        marked(HOP._export_tracepoint),
        {"aten.sin": 1, "higher_order._export_tracepoint": 1},
        PLAIN[2:],
        ("aten.tan ~> aten.sin",),
        0,
        by_hand=UNREACHED,
    ),
    "aoti_call_delegate": _hidden("aoti_call_delegate"),
    "associative_scan": Row(
        by_hand(combined),
        absent=("aten.tan ~> aten.sin",),
        patterns=(*PLAIN, "aten.sin ~> aten.mm"),
        flops="higher_order.associative_scan",
        by_hand=GPU,
    ),
    "auto_functionalized": _mutating(
        by_hand(functionalized), "auto_functionalized", "tg_rows.write", UNREACHED
    ),
    "auto_functionalized_v2": _mutating(
        captured(written), "auto_functionalized_v2", "tg_rows.write"
    ),
    "autograd_function_apply": Row(
        captured(
            lambda edit, x: (OtherOwn if edit else Own).apply(x),
            square().requires_grad_(),
            via="dynamo",
        ),
        {"Tensor.sin": 1, "Tensor.exp": 1, "higher_order.autograd_function_apply": 1},
        ("Tensor.cos -> Tensor.sin", "Tensor.sin -> Tensor.tan", "Tensor.cos -> Tensor.exp"),
        ("Tensor.sin ~> Tensor.exp", "Tensor.exp ~> Tensor.tan"),
        "level 'dynamo'",
    ),
    "call_torchbind": _hidden("call_torchbind"),
    "cond": Row(
        captured(
            lambda edit, x: torch.cond(
                x.sum() > 0, other_plain if edit else plain, lambda x: x.neg(), (x,)
            )
        ),
        {**ONCE, "aten.neg": 1, "higher_order.cond": 1},
        (*PLAIN, "aten.cos -> aten.neg", "aten.neg -> aten.tan", "aten.gt ~> aten.tan"),
        ("aten.sin ~> aten.mm", "aten.gt ~> aten.mm", "aten.gt -> aten.tan"),
    ),
    "control_deps": Row(
        calling(control_deps, ()),
        {**ONCE, "higher_order.control_deps": 0},
        is_plain=True,
        by_hand=UNREACHED,
    ),
    "custom_function_call": _hidden("custom_function_call"),
    "dynamo_bypassing_wrapper": _called("dynamo_bypassing_wrapper", "key"),
    "executorch_call_delegate": _hidden("executorch_call_delegate"),
    "flat_apply": _hidden("flat_apply"),
    "flex_attention": Row(
        captured(attention, torch.linspace(-1, 1, 2048).reshape(1, 1, 128, 16)),
        {"aten.sin": 1, "higher_order.flex_attention": 1},
        ("aten.cos ~> aten.sin", "aten.sin ~> aten.tan", "higher_order.flex* -> aten.tan"),
        ("aten.cos -> aten.sin", "aten.sin -> aten.tan", "aten.tan ~> aten.sin"),
        2 * 2 * 128 * 128 * 16,
    ),
    "flex_attention_backward": Row(
        by_hand(mask),
        {"aten.mm": 3, "aten.sin": 3},
        ("aten.cos ~> aten.mm", "aten.sin ~> aten.tan"),
        ("aten.cos -> aten.mm", "aten.sin -> aten.tan"),
        "no formula for the arguments of",
        by_hand=GPU,
    ),
    "foreach_map": _called("foreach_map"),
    "graphsafe_run_with_rng_state": _wrapped("graphsafe_run_with_rng_state"),
    "hints_wrapper": Row(
        captured(lambda edit, x: hints_wrapper(other_plain if edit else plain, (x,), {}, hints={})),
        is_plain=True,
    ),
    "inductor_compiled_code": _hidden("inductor_compiled_code"),
    "inline_asm_elementwise": Row(
        marked(HOP.inline_asm_elementwise, "mov"),
        {"aten.sin": 1, "higher_order.inline_asm_elementwise": 1},
        PLAIN[2:],
        ("aten.tan ~> aten.sin",),
        "higher_order.inline_asm_elementwise",
        by_hand=GPU,
    ),
    "invoke_leaf_function": Row(captured(lambda edit, x: leaf(x)[0]), hides=True),
    "invoke_quant": _called("invoke_quant"),
    "invoke_quant_packed": Row(captured(quantized), is_plain=True),
    "invoke_subgraph": Row(
        captured(region),
        {"aten.mm": 2, "aten.sin": 2, "higher_order.invoke_subgraph": 2},
        (*PLAIN, "aten.sin -> aten.mm"),
        ("aten.tan ~> aten.mm",),
        2 * PRODUCT,
    ),
    "local_map_hop": _called("local_map_hop"),
    "map_impl": Row(
        captured(lambda edit, x: map_over(lambda row: body(row, edit), x), THREE),
        {"aten.mm": 3, "aten.sin": 3, "higher_order.map_impl": 1},
        flops=3 * PRODUCT,
    ),
    "out_dtype": Row(
        by_hand(
            lambda graph, cos, edit: _valued(
                graph.call_function(
                    HOP.out_dtype,
                    (aten.bmm.default if edit else aten.mm.default, torch.int32, cos, cos),
                ),
                torch.int32,
            ),
            torch.int8,
        ),
        {"aten.mm": 1, "higher_order.out_dtype": 0},
        ("aten.cos -> aten.mm", "aten.mm -> aten.tan"),
        ("aten.tan ~> aten.mm",),
        found=("aten.mm", "int32", "int8"),
        by_hand=UNREACHED,
    ),
    "print": Row(
        marked(HOP.print, "text"),
        {"aten.sin": 1, "higher_order.print": 1},
        PLAIN[2:],
        ("aten.tan ~> aten.sin",),
        0,
        by_hand=UNREACHED,
    ),
    "register_hook": Row(
        captured(hooked, square().requires_grad_(), via="dynamo"),
        {"operator.matmul": 1, "Tensor.sin": 1, "higher_order.register_hook": 1},
        ("operator.matmul -> Tensor.sin", "Tensor.cos -> operator.mul"),
        ("Tensor.cos ~> operator.matmul", "Tensor.sin ~> Tensor.tan"),
        "level 'dynamo'",
    ),
    "run_and_save_rng_state": Row(
        captured(dropped, square().requires_grad_()),
        {"aten.native_dropout": 1, "higher_order.run_and_save_rng_state": 0},
        ("aten.cos -> aten.native_dropout", "aten.native_dropout -> aten.tan"),
        ("aten.tan ~> aten.native_dropout",),
        0,
        ("aten.native_dropout", "float32", "uint8"),
    ),
    "run_const_graph": _called("run_const_graph", bracket=True),
    "run_dtensor_rng_op": _wrapped("run_dtensor_rng_op", 0, 4),
    "run_with_rng_state": Row(
        again,
        {"aten.native_dropout": 1, "higher_order.run_with_rng_state": 0},
        ("aten.native_dropout -> aten.cos",),
        ("aten.neg ~> aten.native_dropout",),
        0,
        ("aten.native_dropout", "float32", "uint8"),
    ),
    "scan": Row(
        captured(scanned, THREE),
        {"aten.mm": 3, "aten.sin": 3, "higher_order.scan": 1},
        ("aten.cos -> aten.mm", "aten.mm -> aten.sin", "aten.sin -> aten.mm", PLAIN[3]),
        ("aten.tan ~> aten.sin",),
        3 * PRODUCT,
    ),
    "strict_mode": Row(
        captured(lambda edit, x: strict_mode(other_plain if edit else plain, (x,))), is_plain=True
    ),
    "tag_activation_checkpoint": _called("tag_activation_checkpoint"),
    "trace_wrapped": _hidden("trace_wrapped"),
    "triton_kernel_wrapper_functional": _mutating(
        kernel(HOP.triton_kernel_wrapper_functional, functional=True),
        "triton_kernel_wrapper_functional",
        "triton.add_kernel",
        GPU,
    ),
    "triton_kernel_wrapper_mutation": Row(
        kernel(HOP.triton_kernel_wrapper_mutation, functional=False),
        {"triton.add_kernel": 1, "higher_order.triton_kernel_wrapper_mutation": 0},
        ("aten.clone -> triton.add_kernel", "triton.add_kernel -> aten.tan"),
        ("aten.tan ~> triton.add_kernel",),
        "no formula for triton.add_kernel",
        ("aten.clone", "float32", "int64"),
        by_hand=GPU,
    ),
    "while_loop": Row(
        captured(looped),
        {**ONCE, "aten.lt": 1, "higher_order.while_loop": 1},
        (*PLAIN, "aten.sin -> aten.mm", "aten.cos -> aten.tan", "aten.lt ~> aten.tan"),
        ("aten.lt ~> aten.mm", "aten.tan ~> aten.mm"),
        "higher_order.while_loop",
    ),
    "while_loop_stack_output": Row(
        by_hand(stacked),
        {"aten.mm": 2, "aten.sin": 2},
        (*PLAIN, "aten.sin -> aten.mm"),
        ("aten.tan ~> aten.mm",),
        "higher_order.while_loop_stack_output",
        by_hand=UNREACHED,
    ),
    "with_effects": Row(
        captured(lambda edit, x: receive(receive(x)) if edit else send(send(x))),
        {"tg_rows.send": 2, "higher_order.with_effects": 0},
        ("aten.cos -> tg_rows.send", "tg_rows.send -> tg_rows.send", "tg_rows.send -> aten.tan"),
        ("aten.tan ~> tg_rows.send",),
        "no formula for tg_rows.send",
    ),
    "wrap": _called("wrap"),
    "wrap_activation_checkpoint": _called("wrap_activation_checkpoint"),
    "wrap_with_autocast": Row(
        captured(autocast, via="export"), MATMUL, EXPORTED, found=("aten.sin", "bfloat16", "int64")
    ),
    "wrap_with_set_grad_enabled": Row(captured(no_grad, via="export"), MATMUL, EXPORTED),
}
"""The rows, by name of the op in `torch.ops.higher_order`."""
