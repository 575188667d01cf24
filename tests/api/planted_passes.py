"""Compiler passes with six planted bugs each, and the graphs that they change.

`PASSES` maps the name of a pass to its `Case`. A pass takes the name of a bug, "" for none.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from pytest_torchgraph import to_fx

aten = torch.ops.aten
lib = torch.library.Library("planted", "DEF")
lib.define("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor")
lib.define("quant(Tensor x, Tensor scale) -> Tensor")
lib.define("norm_quant(Tensor x, Tensor weight, Tensor scale, float eps) -> Tensor")
lib.define("norm_quant_(Tensor(a!) x, Tensor weight, Tensor scale, float eps) -> Tensor")
planted = torch.ops.planted


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def _quant(x: Tensor, scale: Tensor) -> Tensor:
    return (x / scale.abs()).round().clamp(-127, 127).to(torch.int8)


def _norm_quant(x: Tensor, weight: Tensor, scale: Tensor, eps: float) -> Tensor:
    return _quant(_norm(x, weight, eps), scale)


def _norm_quant_(x: Tensor, weight: Tensor, scale: Tensor, eps: float) -> Tensor:
    result = _norm_quant(x, weight, scale, eps)
    x.zero_()  # uses its input as scratch memory
    return result


for _name, _function, _dtype in [
    ("rms_norm", _norm, None),
    ("quant", _quant, torch.int8),
    ("norm_quant", _norm_quant, torch.int8),
    ("norm_quant_", _norm_quant_, torch.int8),
]:
    lib.impl(_name, _function, "CPU")
    _fake = functools.partial(
        lambda x, *args, dtype: torch.empty_like(x, dtype=dtype), dtype=_dtype
    )
    torch.library.register_fake(f"planted::{_name}", _fake, lib=lib)


@dataclass(frozen=True)
class Case:
    """A pass, its input, and what a test expects of it.

    Attributes:
        run: the pass; takes the module and the name of a bug.
        text: the graph.
        bugs: the first word of the line that reports each bug.
        expected: keyword arguments of `check_pass`.
        custom: `meta["custom"]` of some nodes.
    """

    run: Callable[[fx.GraphModule, str], Any]
    text: str
    bugs: Mapping[str, str]
    expected: Mapping[str, Any] = field(default_factory=dict)
    custom: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    def module(self) -> fx.GraphModule:
        module = to_fx(self.text)
        for node in module.graph.nodes:
            if node.name in self.custom:
                node.meta["custom"] = dict(self.custom[node.name])
        return module

    def pass_with(self, bug: str = "") -> Callable[[fx.GraphModule], Any]:
        def planted_pass(module: fx.GraphModule) -> Any:
            return self.run(module, bug)

        return planted_pass


def calls(module: fx.GraphModule, *ops: Any) -> list[fx.Node]:
    return [node for node in module.graph.nodes if node.target in ops]


def put(before: fx.Node, op: Any, args: Any, like: fx.Node) -> fx.Node:
    """Insert a call with the meta of another node."""
    with before.graph.inserting_before(before):
        new = before.graph.call_function(op, args)
    new.meta = {key: like.meta[key] for key in ("val", "custom") if key in like.meta}
    return new


def replace(node: fx.Node, new: fx.Node) -> None:
    node.replace_all_uses_with(new)
    node.graph.erase_node(node)


# -- fusion ----------------------------------------------------------------------------------------

_INPUTS = """torchgraph 1

inference @ aot {
  %x = input : f32[4, 16]
  %y = input : f32[4, 16]
  %w = input : f32[16]
  %s = input : f32[]
  %t = input : f32[]
"""
NORMS = f"""{_INPUTS}\
  %a = planted.rms_norm.default(%x, %w, 1e-06) : f32[4, 16]
  %b = planted.quant.default(%a, %s) : i8[4, 16]
  %c = planted.rms_norm.default(%y, %w, 1e-06) : f32[4, 16]
  %d = planted.quant.default(%c, %t) : i8[4, 16]
  %n = planted.rms_norm.default(%x, %w, 1e-06) : f32[4, 16]
  %q = planted.quant.default(%n, %s) : i8[4, 16]
  return [%b, %d, %n, %q]
}}
"""
FUSED = f"""{_INPUTS}\
  %b = planted.norm_quant.default(%x, %w, %s, 1e-06) : i8[4, 16]
  %d = planted.norm_quant.default(%y, %w, %t, 1e-06) : i8[4, 16]
  %n = planted.rms_norm.default(%x, %w, 1e-06) : f32[4, 16]
  %q = planted.quant.default(%n, %s) : i8[4, 16]
  return [%b, %d, %n, %q]
}}
"""


def fuse(module: fx.GraphModule, bug: str) -> None:
    """Fuse a norm and a quantization, unless something else reads the norm."""
    quants = calls(module, planted.quant.default)
    scales = [quant.args[1] for quant in quants]
    for number, quant in enumerate(quants):
        norm, scale = quant.args
        if norm.target is not planted.rms_norm.default:  # type: ignore[union-attr]
            continue
        if len(norm.users) > 1 and bug != "user":  # type: ignore[union-attr]
            continue
        x, weight, eps = norm.args  # type: ignore[union-attr]
        eps = 1e-5 if bug == "constant" else eps
        scale = scales[number - 1] if bug == "site" else scale
        op = planted.norm_quant_ if bug == "write" else planted.norm_quant
        fused = put(quant, op.default, (x, weight, scale, eps), quant)
        if bug == "val":
            del fused.meta["val"]
        if bug == "annotation" and number:
            fused.meta.pop("custom", None)
        replace(quant, fused)
        if norm.users:  # type: ignore[union-attr]
            norm.replace_all_uses_with(x)  # type: ignore[union-attr,arg-type]
        module.graph.erase_node(norm)  # type: ignore[arg-type]


# -- reordering ------------------------------------------------------------------------------------

ORDER = """torchgraph 1

inference @ aot {
  %x = input : f32[4, 4]
  %y = input : f32[4, 4]
  %early = aten.mul.Tensor(%x, 2.0) : f32[4, 4]
  %write = aten.copy_.default(%x, %y) : f32[4, 4]
  %read = aten.sub.Tensor(%x, %early) : f32[4, 4]
  %rand = aten.bernoulli.p(%early, 0.5) : f32[4, 4]
  %rand2 = aten.bernoulli.p(%read, 0.5) : f32[4, 4]
  %late = aten.neg.default(%y) : f32[4, 4]
  return [%read, %rand, %rand2, %late]
}
"""


def hoist(module: fx.GraphModule, bug: str) -> None:
    """Move `neg` to the place after its operand."""
    by_name = {node.name: node for node in module.graph.nodes}
    late, read, write, y = (by_name[name] for name in ("late", "read", "write", "y"))
    target = by_name["x"] if bug == "undefined" else y
    target.append(late)
    if bug == "write":
        write.prepend(read)
    if bug == "random":
        by_name["rand"].prepend(by_name["rand2"])
    if bug == "operands":
        read.args = tuple(reversed(read.args))
    if bug == "output":
        output = module.graph.output_node()
        first, *rest = output.args[0]  # type: ignore[misc]
        output.args = ((rest[0], first, *rest[1:]),)
    if bug == "val":
        late.meta.clear()


# -- removal of casts ------------------------------------------------------------------------------

CASTS = """torchgraph 1

inference @ aot {
  %x = input : f32[4, 4]
  %h = input : f16[4, 4]
  %same = aten._to_copy.default(%x, dtype=torch.float32) : f32[4, 4]
  %a = aten.sin.default(%same) : f32[4, 4]
  %again = aten._to_copy.default(%a, dtype=torch.float32) : f32[4, 4]
  %half = aten._to_copy.default(%again, dtype=torch.float16) : f16[4, 4]
  %back = aten._to_copy.default(%half, dtype=torch.float32) : f32[4, 4]
  %b = aten.cos.default(%back) : f32[4, 4]
  %wide = aten._to_copy.default(%h, dtype=torch.float32) : f32[4, 4]
  %copy = aten._to_copy.default(%x, dtype=torch.float32) : f32[4, 4]
  return [%b, %wide, %copy]
}
"""


def remove_casts(module: fx.GraphModule, bug: str) -> None:
    """Remove casts that keep the dtype, unless their result is returned."""
    if bug == "nothing":
        return
    for cast in calls(module, aten._to_copy.default):
        source: Any = cast.args[0]
        returned = any(user.op == "output" for user in cast.users)
        keeps = source.meta["val"].dtype == cast.meta["val"].dtype
        if keeps and (not returned or bug == "alias"):
            replace(cast, source)
            if bug == "one":
                return
        elif bug == "lossy" and cast.name == "back":
            half = source
            replace(cast, half.args[0])
            module.graph.erase_node(half)
        elif bug == "dtype" and cast.name == "wide":
            replace(cast, source)
        elif bug == "val" and cast.name == "back":
            cast.meta["val"] = source.meta["val"]


# -- a partitioner ---------------------------------------------------------------------------------

PARTS = """torchgraph 1

inference @ aot {
  %x = input : f32[4, 4]
  %y = input : f32[4, 4]
  %a = aten.sin.default(%x) : f32[4, 4]
  %b = aten.mul.Tensor(%a, %y) : f32[4, 4]
  %c = aten.sub.Tensor(%b, %a) : f32[4, 4]
  %d = aten.sort.default(%c) : (f32[4, 4], i64[4, 4])
  %e = operator.getitem(%d, 0) : f32[4, 4]
  return [%b, %e, %c]
}
"""
PARTED = """torchgraph 1

inference @ aot {
  part: forward {
    %x = input : f32[4, 4]
    %y = input : f32[4, 4]
    %a = aten.sin.default(%x) : f32[4, 4]
    %b = aten.mul.Tensor(%a, %y) : f32[4, 4]
    %c = aten.sub.Tensor(%b, %a) : f32[4, 4]
    return [%b, %c]
  }
  %x = input : f32[4, 4]
  %y = input : f32[4, 4]
  %part = torch.fx.GraphModule["part"](@part, %x, %y) : (f32[4, 4], f32[4, 4])
  %b = operator.getitem(%part, 0) : f32[4, 4]
  %c = operator.getitem(%part, 1) : f32[4, 4]
  %d = aten.sort.default(%c) : (f32[4, 4], i64[4, 4])
  %e = operator.getitem(%d, 0) : f32[4, 4]
  return [%b, %e, %c]
}
"""


def partition(module: fx.GraphModule, bug: str) -> None:
    """Move the supported ops into a module of their own."""
    supported = calls(module, aten.sin.default, aten.mul.Tensor, aten.sub.Tensor)
    if not supported or bug == "nothing":
        return
    if bug == "small":
        supported = supported[1:]
    part = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    taken: list[fx.Node] = []
    for node in supported:
        for operand in node.all_input_nodes:
            if operand not in copies:
                copies[operand] = part.placeholder(operand.name)
                copies[operand].meta = dict(operand.meta)
                taken.append(operand)
        copies[node] = part.node_copy(node, copies.__getitem__)
    if bug == "inputs":
        taken.reverse()
    if bug == "constant":
        copies[supported[-1]].kwargs = {"alpha": 2}
    returned = [n for n in supported if any(user not in supported for user in n.users)]
    outputs = [copies[node] for node in returned]
    part.output(tuple(reversed(outputs) if bug == "swapped" else outputs))
    module.add_submodule("part", fx.GraphModule({}, part))
    last = supported[-1]
    with module.graph.inserting_after(last):
        call = module.graph.call_module("part", tuple(taken))
    call.meta["val"] = tuple(node.meta["val"] for node in returned)
    place = call
    for number, node in enumerate(returned):
        with module.graph.inserting_after(place):
            place = module.graph.call_function(operator.getitem, (call, number))
        place.meta = dict(node.meta)
        if bug == "val":
            place.meta["val"] = node.meta["val"].new_empty(4, 5)
        node.replace_all_uses_with(place, lambda user: user not in supported)
    for node in reversed(supported):
        module.graph.erase_node(node)


PASSES = {
    "fusion": Case(
        fuse,
        NORMS,
        {
            "user": "change",
            "site": "after",
            "constant": "after",
            "write": "inputs written",
            "val": "val",
            "annotation": "annotations",
        },
        {
            "changes": {"planted.rms_norm": -2, "planted.quant": -2, "planted.norm_quant": 2},
            "after": FUSED,
        },
        {"b": {"layer": 0}, "d": {"layer": 1}},
    ),
    "reordering": Case(
        hoist,
        ORDER,
        {
            "write": "values",
            "undefined": "malformed",
            "operands": "values",
            "val": "val",
            "output": "values",
            "random": "values",
        },
    ),
    "casts": Case(
        remove_casts,
        CASTS,
        {
            "lossy": "values",
            "alias": "aliasing",
            "dtype": "values",
            "nothing": "change",
            "val": "val",
            "one": "not idempotent",
        },
    ),
    "partitioner": Case(
        partition,
        PARTS,
        {
            "nothing": "change",
            "small": "after",
            "inputs": "values",
            "constant": "values",
            "swapped": "values",
            "val": "val",
        },
        {"after": PARTED},
    ),
}
