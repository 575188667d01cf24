"""Faults to plant into the compilation of a model, each with the expected answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_torchgraph import Aot, Inductor
from pytest_torchgraph.ops import is_view
from pytest_torchgraph.torch_private import get, replaced

aten = torch.ops.aten
Planted = list[tuple[str, int]]
"""The op of a faulty node and its index among the nodes of this op; -1 if the node was removed."""
Edit = Callable[[torch.fx.Graph], Planted]


# -- models ----------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16, eps=1e-3)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).view(2, 5, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q @ k.transpose(-1, -2)) * 0.35
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 5, 16)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(x)))


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.head = nn.GroupNorm(2, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.first(x)))
        x = x + torch.sigmoid(self.second(x))
        return self.head(x.mean((2, 3))).log_softmax(-1)


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(8, 24), nn.Linear(8, 24), nn.Linear(24, 8)
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 8))

    def forward(self, x: Tensor) -> Tensor:
        scaled = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3) * self.weight
        return x - self.down(F.silu(self.gate(scaled)) * self.up(scaled)) / 2.5


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input, self.hidden = nn.Linear(6, 12), nn.Linear(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(4, 12)
        for step in range(3):
            state = torch.tanh(self.input(x[:, step]) + self.hidden(state))
        return state.exp() * 0.7


class Dropped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 8)
        self.drop, self.norm = nn.Dropout(0.2), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.second(self.drop(F.elu(self.first(x)))))


def _from_corpus(name: str) -> Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    def make() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        import corpus.models.text  # noqa: F401
        from corpus.case import CORPUS

        torch.manual_seed(0)
        case = CORPUS[f"hf_{name}"].make()
        return case.target, case.args, case.kwargs

    return make


def _own(kind: type[nn.Module], *shape: int) -> Callable[[], Any]:
    def make() -> Any:
        torch.manual_seed(0)
        return kind(), (torch.randn(*shape),), {}

    return make


MODELS: dict[str, Callable[[], Any]] = {
    "attention": _own(Attention, 2, 5, 16),
    "convolution": _own(Convolution, 2, 3, 8, 8),
    "gated": _own(Gated, 4, 8),
    "recurrent": _own(Recurrent, 4, 3, 6),
    "dropped": _own(Dropped, 4, 8),
    **{
        name: _from_corpus(name)
        for name in (
            "GemmaForCausalLM",
            "BloomForCausalLM",
            "RobertaForMaskedLM",
            "ElectraForMaskedLM",
            "CohereForCausalLM",
        )
    },
}


# -- edits of graphs -------------------------------------------------------------------------------


def _calls(graph: torch.fx.Graph, op: str) -> list[torch.fx.Node]:
    return [node for node in graph.nodes if node.op == "call_function" and str(node.target) == op]


def _at(graph: torch.fx.Graph, op: str, number: int = 0) -> torch.fx.Node:
    nodes = _calls(graph, op)
    assert nodes, f"no {op} among {sorted({str(n.target) for n in graph.nodes})}"
    return nodes[number]


def _named(graph: torch.fx.Graph, node: torch.fx.Node) -> tuple[str, int]:
    return str(node.target), _calls(graph, str(node.target)).index(node)


def edit(function: Callable[..., Planted]) -> Callable[..., Edit]:
    """Let a function of a graph and options take the options first, and the graph later."""
    return lambda *args, **options: lambda graph: function(graph, *args, **options)


@edit
def scaled(graph: torch.fx.Graph, op: str, number: int = 0, by: float = 1.01) -> Planted:
    """Multiply a value."""
    node = _at(graph, op, number)
    with graph.inserting_after(node):
        product = graph.call_function(aten.mul.Tensor, (node, by))
    product.meta.update(node.meta)
    node.replace_all_uses_with(product, delete_user_cb=lambda user: user is not product)
    return [_named(graph, node), _named(graph, product)]


@edit
def swapped(graph: torch.fx.Graph, op: str) -> Planted:
    """Swap the operands of an op."""
    node = _at(graph, op)
    node.args = (node.args[1], node.args[0], *node.args[2:])
    return [_named(graph, node)]


@edit
def constant(graph: torch.fx.Graph, op: str, number: int = 0, by: float = 1.05) -> Planted:
    """Change the last float among the arguments of an op."""
    nodes = [n for n in _calls(graph, op) if any(isinstance(a, float) for a in n.args)]
    node = nodes[number]
    index = max(i for i, a in enumerate(node.args) if isinstance(a, float))
    node.args = (*node.args[:index], node.args[index] * by, *node.args[index + 1 :])
    return [_named(graph, node)]


@edit
def removed(graph: torch.fx.Graph, op: str, number: int = 0) -> Planted:
    """Remove an op. Its users read its operand instead."""
    node = _at(graph, op, number)
    node.replace_all_uses_with(node.args[0])
    graph.erase_node(node)
    return [(op, -1)]


@edit
def another(graph: torch.fx.Graph, op: str, new: Any) -> Planted:
    """Replace an op with another op."""
    node = _at(graph, op)
    node.target = new
    return [(op, -1), _named(graph, node)]


@edit
def along(graph: torch.fx.Graph, op: str, dim: int) -> Planted:
    """Compute along another dimension."""
    node = _at(graph, op)
    index = next(i for i, a in enumerate(node.args) if isinstance(a, int))
    node.args = (*node.args[:index], dim, *node.args[index + 1 :])
    return [_named(graph, node)]


@edit
def reading_another(graph: torch.fx.Graph, op: str, number: int = 0, operand: int = 0) -> Planted:
    """Let an op read another value of the same shape and dtype."""
    node = _at(graph, op, number)
    kept = node.args[operand]
    before = list(graph.nodes)[: list(graph.nodes).index(node)]
    args = list(node.args)
    args[operand] = next(
        other
        for other in before
        if isinstance(other.meta.get("val"), Tensor)
        and other is not kept
        and other.meta["val"].shape == kept.meta["val"].shape
        and other.meta["val"].dtype == kept.meta["val"].dtype
    )
    node.args = tuple(args)
    return [_named(graph, node)]


@edit
def reshaped(graph: torch.fx.Graph, op: str, number: int = 0) -> Planted:
    """Reshape instead of permuting."""
    node = _at(graph, op, number)
    node.target, node.args = aten.reshape.default, (node.args[0], list(node.meta["val"].shape))
    return [(op, -1), _named(graph, node)]


@edit
def saving_another(graph: torch.fx.Graph, number: int = 0) -> Planted:
    """Let the backward read another saved value."""
    inputs = [
        node
        for node in graph.find_nodes(op="placeholder")
        if isinstance(node.meta.get("val"), Tensor)
        and node.meta["val"].is_floating_point()
        and node.meta["val"].dim() > 1
        and "tangent" not in node.name
    ]
    pairs = [
        (p, q)
        for p in inputs
        for q in inputs
        if p is not q and p.meta["val"].shape == q.meta["val"].shape
    ]
    kept, other = pairs[number]
    worklist, readers = list(kept.users), dict[torch.fx.Node, None]()
    kept.replace_all_uses_with(other)
    while worklist:
        user = worklist.pop()
        if user.op == "call_function" and user not in readers:
            readers[user] = None
            if is_view(str(user.target)):  # a view computes nothing: its users are wrong
                worklist += user.users
    return [_named(graph, user) for user in readers]


# -- planting --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """A fault in the compilation of a model.

    Attributes:
        model: the name of the model.
        stage: the expected stage.
        kind: the kind of fault.
        edit: edits a graph; or an op and its decomposition.
        backward: True for a fault in the backward.
        ops: for a decomposition, the expected eager op.
    """

    model: str
    stage: str
    kind: str
    edit: Any
    backward: bool = False
    ops: tuple[str, ...] = ()
    planted: Planted = field(default_factory=list, compare=False)

    @property
    def name(self) -> str:
        direction = "backward" if self.backward else "forward"
        return f"{self.model}-{self.stage}-{self.kind}-{direction}"

    @contextlib.contextmanager
    def plant(self) -> Iterator[Any]:
        """Plant the fault, and yield the mechanism to capture with."""
        self.planted.clear()
        if self.stage == "decomposition":
            op, function = self.edit
            self.planted.extend((name, -1) for name in self.ops)
            with get("inductor_config").patch(fallback_random=True):  # dropout draws like eager
                table = dict(get("inductor_decompositions")())
            table[op] = function(table.get(op))
            yield Aot(decompositions=table)
            return
        if self.stage == "passes":

            def edit(graph: torch.fx.Graph) -> None:
                inputs = [node.name for node in graph.find_nodes(op="placeholder")]
                if any("tangent" in name for name in inputs) == self.backward:
                    self.planted[:] = self.edit(graph)

            yield Inductor(codegen=False, options={"post_grad_custom_pre_pass": _Pass(edit)})
            return
        name = "default_partition" if self.stage == "aot" else "min_cut_partition"
        split = get(name)

        def partition(*args: Any, **kwargs: Any) -> Any:
            pair = split(*args, **kwargs)
            module = pair[self.backward]
            self.planted[:] = self.edit(module.graph)
            module.recompile()
            return pair

        with replaced(name, partition):
            yield (
                Aot()
                if self.stage == "aot"
                else Aot(decompositions="inductor", partition="min_cut")
            )


class _Pass(torch._inductor.custom_graph_pass.CustomGraphPass):  # type: ignore[misc, name-defined]
    def __init__(self, edit: Callable[[torch.fx.Graph], None]):
        self._edit = edit

    def __call__(self, graph: torch.fx.Graph) -> None:
        self._edit(graph)

    def uuid(self) -> Any:
        return None


# -- wrong decompositions --------------------------------------------------------------------------


def _silu(_old: Any) -> Any:
    return lambda x: x * torch.sigmoid(x * 1.01)


def _norm(_old: Any) -> Any:
    def norm(x: Tensor, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
        variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        scale = torch.rsqrt(variance)
        return (x - mean) * scale * weight + bias, mean, scale

    return norm


def _scaled_weight_gradient(old: Any) -> Any:

    def wrong(*args: Any) -> Any:
        results = old(*args)
        return results[0], results[1] * 1.002, results[2]

    return wrong


def _softmax_backward(_old: Any) -> Any:
    def wrong(grad: Tensor, output: Tensor, dim: int, dtype: Any) -> Tensor:
        product = grad * output
        return product - output * torch.sum(product, dim, keepdim=True) * 1.01

    return wrong


def _log_softmax(_old: Any) -> Any:
    def wrong(x: Tensor, dim: int, half: bool) -> Tensor:
        shifted = x - x.amax(dim, keepdim=True)
        return shifted - torch.log(torch.exp(shifted).sum(dim, keepdim=True) * 1.01)

    return wrong


def _decomposed(model: str, op: Any, function: Any, backward: bool = False) -> Fault:
    return Fault(model, "decomposition", f"{op}", (op, function), backward, (str(op),))


_LN = aten.native_layer_norm.default
_LNB = aten.native_layer_norm_backward.default
_MM = "aten.mm.default"
_MUL, _ADD, _SUB = "aten.mul.Tensor", "aten.add.Tensor", "aten.sub.Tensor"

FAULTS: list[Fault] = [
    _decomposed("attention", _LN, _norm),
    _decomposed("attention", aten._softmax_backward_data.default, _softmax_backward, True),
    _decomposed("dropped", _LNB, _scaled_weight_gradient, True),
    _decomposed("gated", aten.silu.default, _silu),
    _decomposed("convolution", aten._log_softmax.default, _log_softmax),
    Fault("attention", "aot", "removed", removed(_ADD)),
    Fault("attention", "aot", "reshaped", reshaped("aten.transpose.int", 1)),
    Fault("attention", "aot", "scaled", scaled(_MM, 1), True),
    Fault("attention", "passes", "removed", removed("aten.exp.default")),
    Fault("attention", "partition", "constant", constant(_MUL, -1), True),
    Fault("convolution", "aot", "another", another("aten.sigmoid.default", aten.tanh.default)),
    Fault("convolution", "aot", "removed", removed("aten.threshold_backward.default"), True),
    Fault("dropped", "aot", "swapped", swapped(str(_LNB)), True),
    Fault("gated", "passes", "swapped", swapped(_SUB)),
    Fault("gated", "passes", "scaled", scaled(_MM, 2), True),
    Fault("recurrent", "aot", "operand", reading_another("aten.tanh_backward.default", 1, 1), True),
    Fault("recurrent", "passes", "constant", constant(_MUL)),
    # Large models, with many values among which the search chooses.
    Fault("RobertaForMaskedLM", "aot", "along", along("aten._safe_softmax.default", -2)),
    Fault("GemmaForCausalLM", "aot", "operand", reading_another(_MM, 4)),
    Fault("GemmaForCausalLM", "partition", "scaled", scaled(_MM, 4), True),
    Fault("BloomForCausalLM", "partition", "saved", saving_another(3), True),
    Fault("CohereForCausalLM", "aot", "removed", removed(_ADD, 1), True),
    # A rule was corrected with this one.
    Fault("ElectraForMaskedLM", "aot", "scaled", scaled("aten.gelu_backward.default"), True),
]
