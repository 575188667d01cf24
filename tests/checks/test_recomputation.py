"""Ops recomputed in a backward, against counts that share no code with the package."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._functorch.config
from subjects.recomputed_ops import NodesCopied, OpsRunAgain
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
from torch_releases import skip_before

import pytest_torchgraph as tg
from pytest_torchgraph import Capture, CaptureError, GraphCapture

aten = torch.ops.aten
ATTENTION = aten._scaled_dot_product_flash_attention_for_cpu.default
PRODUCTS = [aten.mm.default, aten.addmm.default]


class Block(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)
        self.mlp = nn.Sequential(
            nn.Linear(16, 32), nn.GELU(), nn.Dropout(dropout), nn.Linear(32, 16)
        )

    def forward(self, x: Tensor) -> Tensor:
        heads = (
            t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(*heads)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(x)


class Model(nn.Module):
    """Two blocks, each run by `call`."""

    def __init__(self, call: Callable[[nn.Module, Tensor], Tensor], dropout: float = 0.0) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(dropout) for _ in range(2))
        self.call = call

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = self.call(block, x)
        return x


def keeping(*ops: Any) -> Any:
    return functools.partial(create_selective_checkpoint_contexts, [*ops])


def plain(block: nn.Module, x: Tensor) -> Tensor:
    return block(x)  # type: ignore[no-any-return]


def again(block: Callable[[Tensor], Tensor], x: Tensor, **options: Any) -> Tensor:
    return checkpoint(block, x, **{"use_reentrant": False, **options})  # type: ignore[no-any-return]


def twice(block: nn.Module, x: Tensor) -> Tensor:
    return again(lambda y: again(block, y, use_reentrant=True), x, use_reentrant=True)


HOW = {
    "plain": plain,
    "every block": again,
    "reentrant": functools.partial(again, use_reentrant=True),
    "twice": twice,
    "attention again": functools.partial(again, context_fn=keeping(*PRODUCTS)),
    "attention kept": functools.partial(again, context_fn=keeping(*PRODUCTS, ATTENTION)),
}


def step(how: str, dropout: float = 0.0) -> tuple[Model, Tensor]:
    torch.manual_seed(0)
    return Model(HOW[how], dropout), torch.linspace(-1, 1, 160).reshape(2, 5, 16).requires_grad_()


@functools.cache
def captured(how: str, via: str, dropout: float = 0.0) -> Capture:
    model, x = step(how, dropout)
    mechanisms = {"min_cut": tg.Aot(partition="min_cut"), "inductor": tg.Inductor(codegen=False)}
    return tg.capture(model, x, via=mechanisms.get(via, via))


def counted(capture: Capture) -> Counter[str]:
    counts: Counter[str] = Counter()
    for recomputed_op in capture.recomputed:
        if recomputed_op.by != "formula":
            counts[recomputed_op.op] += recomputed_op.times
    return counts


@pytest.mark.parametrize(
    ("how", "dropout"), [*((how, 0.0) for how in HOW), ("attention again", 0.1)]
)
def test_recomputed_ops_of_an_eager_backward_equal_the_count(how: str, dropout: float) -> None:
    model, x = step(how, dropout)
    ops = OpsRunAgain()
    ops.watch(model.blocks)
    with ops:
        y = model(x)
        ops.in_backward = True
        y.sum().backward()
    counts = counted(captured(how, "dispatch", dropout))
    assert counts == ops.counts
    assert bool(counts) is (how != "plain")


def copied(how: str, partition: str) -> Counter[str]:
    """Count the nodes that AOTAutograd's partitioner copies into the backward."""
    model, x = step(how)
    nodes = NodesCopied(partition)
    torch._dynamo.reset()
    nodes.compiled(model)(x).sum().backward()
    torch._dynamo.reset()
    return nodes.counts


@pytest.mark.slow("compiles a second time; tests/subjects has a quick count")
@pytest.mark.parametrize("via", ["aot", "min_cut"])
def test_recomputed_ops_of_a_compiled_backward_equal_the_count(via: str) -> None:
    capture = captured("attention again", via)
    assert counted(capture) == copied("attention again", via) != Counter()
    assert all(recomputed_op.by == "checkpoint" for recomputed_op in capture.recomputed)


def test_constant_copied_by_the_partitioner_is_not_recomputed() -> None:
    def region(x: Tensor) -> Tensor:
        return (x.exp() * torch.tensor([1.0, 2.0])).sin().exp()

    x = torch.ones(2, requires_grad=True)
    capture = tg.capture(lambda x: again(region, x), x, via="aot")
    expected = {"aten.exp.default": 2, "aten.mul.Tensor": 1, "aten.sin.default": 1}
    assert counted(capture) == Counter(expected)


def test_recomputation_in_a_backward_that_takes_only_inputs() -> None:
    def target(x: Tensor) -> Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.sigmoid().tanh()

    x = torch.ones(3, requires_grad=True)
    with torch._functorch.config.patch(activation_memory_budget=0.0):
        capture = tg.capture(target, x, via=tg.Aot(partition="min_cut"))
    assert counted(capture) == Counter({"aten.sigmoid.default": 1, "aten.tanh.default": 1})
    with pytest.raises(AssertionError, match=r"aten\.sigmoid\.default"):
        capture.assert_not_recomputed("aten.sigmoid")


def test_recomputation_in_an_eager_backward_that_takes_only_inputs_and_a_global_tensor() -> None:
    table = torch.randn(4, 4)
    x = torch.ones(3, 4, requires_grad=True)
    capture = tg.capture(lambda x: again(lambda x: (x @ table).sin(), x), x, via="dispatch")
    with pytest.raises(AssertionError, match=r"aten\.mm\.default"):
        capture.assert_not_recomputed("aten.mm")


@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_op_on_another_global_tensor_is_not_recomputation(via: str) -> None:
    if via == "aot":
        skip_before("2.11", "a compiled Function.apply has no backward")
    first, second = torch.randn(4, 4), torch.randn(4, 4)

    def backward_with(table: Tensor) -> Any:
        class Function(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Tensor) -> Tensor:
                ctx.save_for_backward(x)
                return x @ first

            @staticmethod
            def backward(ctx: Any, grad: Tensor) -> Tensor:
                return grad * (ctx.saved_tensors[0] @ table)

        return Function.apply

    x = torch.ones(4, 4, requires_grad=True)
    recomputed = [
        [entry.op for entry in tg.capture(backward_with(table), x, via=via).recomputed]
        for table in (first, second)
    ]
    assert recomputed == [["aten.mm.default"], []]


def test_backward_formula_of_a_copied_op_is_not_recomputation() -> None:
    def target(x: Tensor) -> Tensor:
        return (x / x.norm(dim=-1, keepdim=True)).sin()

    x = torch.ones(3, requires_grad=True)
    with torch._functorch.config.patch(activation_memory_budget=0.0):
        capture = tg.capture(target, x, via=tg.Aot(partition="min_cut"))
    entries = [(entry.by, entry.times) for entry in capture.recomputed if "div" in entry.op]
    assert sorted(entries) == [("formula", 1), ("partitioner", 1)]


@pytest.mark.slow("a capture via inductor")
def test_inductor_recomputes_the_same_ops_as_aot() -> None:
    capture = captured("attention again", "inductor")
    capture.assert_recomputed({"aten._scaled_dot_product*": 2})
    capture.assert_saved("aten.addmm", module="blocks.*.qkv")
    assert capture.recomputed_flops == captured("attention again", "aot").recomputed_flops


@pytest.mark.parametrize("how", ["attention again", "reentrant"])
def test_recomputation_of_a_stored_capture_has_no_cause(how: str, tmp_path: Any) -> None:
    """The reentrant checkpoint recomputes the last op of a block unnecessarily."""
    capture = captured(how, "dispatch")
    file = tmp_path / "step.tgraph"
    file.write_text(capture.to_text())
    read = tg.load(file)
    assert counted(read) == counted(capture)
    assert {recomputed_op.by for recomputed_op in read.recomputed} == {""}
    with pytest.raises(AssertionError, match="The file does not store why an op is recomputed"):
        read.assert_not_recomputed("aten._scaled_dot_product*")
    for either in (read, capture):
        with pytest.raises(AssertionError, match=r"aten\.gelu: expected 99, found 2"):
            either.assert_recomputed({"aten.gelu": 99})


@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_recomputation_by_a_custom_backward_is_named(graph_capture: GraphCapture, via: str) -> None:
    if via == "aot":
        skip_before("2.10", "AOTAutograd does not mark the ops of an autograd.Function")
    again = _function(*[lambda x: torch.sigmoid(x @ x)] * 2)
    capture = graph_capture(again, torch.ones(8, 8, requires_grad=True), via=via)
    assert [(recomputed_op.op, recomputed_op.by) for recomputed_op in capture.recomputed] == [
        ("aten.mm.default", "function"),
        ("aten.sigmoid.default", "function"),
    ]
    assert capture.recomputed_flops == 2 * 8 * 8 * 8
    with pytest.raises(AssertionError, match=r"aten\.mm.*by the backward of an autograd\.Function"):
        capture.assert_not_recomputed("aten.mm")


def test_recomputation_by_the_formula_of_a_custom_op_counts(graph_capture: GraphCapture) -> None:
    @torch.library.custom_op("torchgraph_recomputation::grown", mutates_args=())
    def grown(x: Tensor) -> Tensor:
        return x.exp()

    grown.register_fake(torch.empty_like)
    grown.register_autograd(
        lambda ctx, grad: grad * grown(*ctx.saved_tensors),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    x = torch.ones(4, requires_grad=True)
    capture = graph_capture(lambda x: grown(x * 2) * 3, x, via="dispatch")
    assert [recomputed_op.by for recomputed_op in capture.recomputed] == ["function"]
    with pytest.raises(AssertionError, match=r"by the backward of an autograd\.Function"):
        capture.assert_not_recomputed("torchgraph_recomputation.grown")


def _function(run: Callable[[Tensor], Tensor], rerun: Callable[[Tensor], Tensor]) -> Any:
    """Return a function that runs `run` in the forward and `rerun` in the backward."""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return run(x)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return grad * rerun(x)

    return lambda x: Function.apply(x).sin()


IN_PLACE: dict[str, tuple[Any, Any, list[str]]] = {
    "backward": (torch.exp, lambda x: x.clone().exp_(), ["aten.exp.default"]),
    "forward": (lambda x: x.clone().exp_(), torch.exp, ["aten.exp_.default"]),
    "of a result": (lambda x: (x * 2).exp(), lambda x: x.mul(2).exp_(), ["mul.Tensor", "exp"]),
    "tensor operand": (lambda x: x * x, lambda x: x.clone().mul_(x), ["aten.mul.Tensor"]),
    "after a write": (torch.exp, lambda x: x.clone().mul_(2).exp_(), []),
    "other constant": (lambda x: x * 2, lambda x: x.clone().mul_(3), []),
    "other dtype": (lambda x: x.gt(1), lambda x: x.clone().gt_(1), []),
    "promoted dtype": (lambda x: x + x.double(), lambda x: x.clone().add_(x.double()), ["copy"]),
    "part": (torch.exp, lambda x: x.clone()[1:].exp_().sum(), []),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_op_in_place_on_a_copy_recomputes_the_op(graph_capture: GraphCapture, name: str) -> None:
    run, rerun, ops = IN_PLACE[name]
    captured = graph_capture(
        _function(lambda x: run(x).float(), rerun),
        torch.ones(3, requires_grad=True),
        via="dispatch",
    )
    entries = captured.recomputed
    assert len(entries) == len(ops)
    assert all(op in entry.op for op, entry in zip(ops, entries, strict=True))
    if ops:
        with pytest.raises(AssertionError, match=r"expected none of .*, found 1"):
            captured.assert_not_recomputed(entries[0].op)


def _exp_in_an_unpack_hook(x: Tensor) -> Tensor:
    y = x.exp()
    with torch.autograd.graph.saved_tensors_hooks(lambda _: None, lambda _: x.detach().exp()):
        return y.sin()


def _exp_in_a_tensor_hook(x: Tensor) -> Tensor:
    y = x.exp()
    y.register_hook(lambda grad: grad * x.detach().exp())
    return y.sin()


def _exp_in_an_eager_hook(x: Tensor) -> Tensor:
    return torch.compiler.disable(_exp_in_a_tensor_hook)(x * 1)


@pytest.mark.parametrize(
    ("target", "via"),
    [
        (_exp_in_an_unpack_hook, "aot"),
        (_exp_in_a_tensor_hook, "dispatch"),
        (_exp_in_an_eager_hook, "aot"),
    ],
)
def test_recomputation_in_a_hook_of_the_user_counts(
    graph_capture: GraphCapture, target: Any, via: str
) -> None:
    captured = graph_capture(target, torch.ones(3, requires_grad=True), via=via)
    (entry,) = captured.recomputed
    assert (entry.op, entry.by) == ("aten.exp.default", "function")
    with pytest.raises(AssertionError, match=r"aten\.exp\.default"):
        captured.assert_not_recomputed("aten.exp")


def test_autograd_formula_is_listed_and_not_counted(graph_capture: GraphCapture) -> None:
    x = torch.ones(4, requires_grad=True)
    capture = graph_capture(lambda x: x / (x + 1), x, via="dispatch")
    assert [(recomputed_op.op, recomputed_op.by) for recomputed_op in capture.recomputed] == [
        ("aten.div.Tensor", "formula")
    ]
    capture.assert_not_recomputed("aten.div")
    capture.assert_recomputed({}, exact=True)
    assert capture.recomputed_flops == 0


def test_ops_left_out_of_a_policy_are_named_with_module_line_and_share() -> None:
    capture = captured("attention again", "dispatch")
    with pytest.raises(AssertionError) as failure:
        capture.assert_not_recomputed("aten._scaled_dot_product*")
    message = str(failure.value)
    assert "found 2 (6.4 kFLOP, 7.2% of the forward)" in message
    assert "blocks.{0, 1}: aten._scaled_dot_product_flash_attention_for_cpu" in message
    assert "test_recomputation.py:" in message
    assert "(2 times, recomputed by a checkpoint)  " in message
    captured("attention kept", "dispatch").assert_not_recomputed("aten._scaled_dot_product*")


def test_recomputed_counts_that_differ_list_the_recomputed_ops() -> None:
    capture = captured("every block", "dispatch")
    capture.assert_recomputed({"aten.addmm": (1, None), "aten.gelu": 2})
    capture.assert_recomputed({"aten.gelu": 1}, module="blocks.1")
    with pytest.raises(AssertionError, match=r"aten\.gelu: expected 3, found 2"):
        capture.assert_recomputed({"aten.gelu": 3})
    with pytest.raises(AssertionError, match=r"ops that match no pattern \(exact=True\)"):
        capture.assert_recomputed({"aten.gelu": 2}, exact=True)
    with pytest.raises(TypeError, match="checks nothing"):
        capture.assert_recomputed({})
    with pytest.raises(ValueError, match=r"blocks\.7"):
        capture.assert_recomputed({"aten.gelu": 2}, module="blocks.7")


def test_saved_results_are_distinguished() -> None:
    capture = captured("attention again", "dispatch")
    capture.assert_saved("aten.addmm", module="blocks.*.qkv")
    capture.assert_not_saved("aten.gelu")
    capture.assert_not_saved("aten.addmm", max_bytes=10_000)
    with pytest.raises(AssertionError, match=r"every result of aten\.gelu .*, but 2 are not saved"):
        capture.assert_saved("aten.gelu")
    with pytest.raises(AssertionError, match=r"expected at most 0 B of .*, found 3\.8 kB"):
        capture.assert_not_saved("aten.addmm", module="blocks.*.qkv")


def test_recomputation_check_of_an_absent_op_fails() -> None:
    capture = captured("every block", "dispatch")
    for check in (capture.assert_not_recomputed, capture.assert_saved, capture.assert_not_saved):
        with pytest.raises(AssertionError, match=r"the forward does not run aten\.bmm"):
            check("aten.bmm")
        with pytest.raises(TypeError, match="checks nothing"):
            check()


def test_recomputation_budget_is_a_share_of_forward_flops() -> None:
    capture = captured("attention again", "dispatch")
    capture.assert_budget(recomputed_flops="10%")
    with pytest.raises(AssertionError, match=r"recomputed_flops: expected at most 883, found 6400"):
        capture.assert_budget(recomputed_flops="1%")
    with pytest.raises(ValueError, match="10%"):
        capture.assert_budget(recomputed_flops="much")


def test_result_used_outside_its_checkpoint_is_saved(graph_capture: GraphCapture) -> None:
    first, second = nn.Linear(8, 32), nn.Linear(32, 8)

    def leak(x: Tensor) -> Tensor:
        return again(lambda y: second(first(y).relu()), x).tanh().mul(x)

    capture = graph_capture(leak, torch.ones(4, 8, requires_grad=True), via="dispatch")
    capture.assert_not_saved("aten.relu")
    with pytest.raises(AssertionError, match=r"expected at most 0 B of aten\.tanh, found 128 B"):
        capture.assert_not_saved("aten.tanh")


def _no_backward(capture: Capture) -> Iterator[Callable[[], object]]:
    yield lambda: capture.recomputed
    yield lambda: capture.recomputed_flops
    yield lambda: capture.assert_recomputed({"aten.sin": 1})
    yield lambda: capture.assert_not_recomputed("aten.sin")
    yield lambda: capture.assert_saved("aten.sin")
    yield lambda: capture.assert_not_saved("aten.sin")
    yield lambda: capture.assert_budget(recomputed_flops=0)


def test_recomputation_without_a_backward_is_refused(graph_capture: GraphCapture) -> None:
    capture = graph_capture(torch.sin, torch.ones(2), via="dispatch")
    for ask in _no_backward(capture):
        with pytest.raises(CaptureError, match="no backward ran"):
            ask()


def test_recomputation_refusal_names_suitable_mechanisms(
    graph_capture: GraphCapture,
) -> None:
    capture = graph_capture(torch.sin, torch.ones(2, requires_grad=True), via="dynamo")
    with pytest.raises(CaptureError, match="Capture via 'aot', 'inductor' or 'dispatch'"):
        _ = capture.recomputed


def _branch(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda y: y.sigmoid().sin(), lambda y: y.sin(), (x,)).sin()


@pytest.mark.slow("compiles for a second")
def test_recomputation_in_a_body_is_unknown(graph_capture: GraphCapture) -> None:
    # The backward of torch.cond recomputes the forward of a branch in its body.
    capture = graph_capture(_branch, torch.ones(4, requires_grad=True), via="aot")
    (backward,) = capture.backwards
    assert backward.count("aten.sigmoid") == 1
    problem = r"runs a subgraph in the backward\. Check a model without it"
    for ask in (
        lambda: capture.recomputed,
        lambda: capture.assert_not_recomputed("aten.sigmoid"),
        lambda: capture.assert_recomputed({"aten.sigmoid": 0}),
        lambda: capture.assert_saved("aten.sigmoid"),
        lambda: capture.assert_not_saved("aten.sigmoid"),
        lambda: capture.assert_budget(recomputed_flops=0),
    ):
        with pytest.raises(CaptureError, match=problem):
            ask()


def test_saving_of_a_bodys_op_is_unknown(graph_capture: GraphCapture) -> None:
    def beside(x: Tensor) -> Tensor:
        return _branch(x.detach()) + x.exp()

    capture = graph_capture(beside, torch.ones(4, requires_grad=True), via="aot")
    assert capture.recomputed == ()
    for check in (capture.assert_not_recomputed, capture.assert_saved, capture.assert_not_saved):
        with pytest.raises(
            CaptureError, match=r"aten\.sigmoid\.default runs inside a higher-order op"
        ):
            check("aten.sigmoid")


def test_ops_that_only_return_views_have_nothing_to_check() -> None:
    capture = captured("every block", "dispatch")
    for check in (capture.assert_saved, capture.assert_not_saved):
        with pytest.raises(
            AssertionError, match=r"nothing to check, because aten\.t only returned views"
        ):
            check("aten.t")
    captured("plain", "dispatch").assert_saved(module="blocks.0.qkv")


def test_recomputation_budget_without_flops_is_refused(graph_capture: GraphCapture) -> None:
    x = torch.ones(4, requires_grad=True)
    capture = graph_capture(lambda x: again(torch.sin, x).exp(), x, via="dispatch")
    with pytest.raises(AssertionError, match="the forward has no FLOPs"):
        capture.assert_budget(recomputed_flops="10%")
    capture.assert_budget(recomputed_flops=0)


@pytest.mark.slow("a capture via inductor")
def test_recomputation_of_a_stored_inductor_capture_is_refused(tmp_path: Any) -> None:
    file = tmp_path / "step.tgraph"
    file.write_text(captured("every block", "inductor").to_text())
    with pytest.raises(CaptureError, match="level 'post_grad'"):
        _ = tg.load(file).recomputed


def test_costs_by_module_have_recomputed_flops() -> None:
    capture = captured("attention again", "dispatch")
    again = {path: cost.recomputed_flops for path, cost in capture.by_module().items()}
    assert again.pop("blocks.0") == again.pop("blocks.1") == capture.recomputed_flops // 2
    assert set(again.values()) == {0}
    assert capture.by_module(depth=0)[""].recomputed_flops == capture.recomputed_flops
    plain = captured("plain", "dispatch").by_module().values()
    assert {cost.recomputed_flops for cost in plain} == {None}
    lines = capture.cost_table().splitlines()
    assert "  recomputed FLOPs" in lines[0]
    assert f" {capture.recomputed_flops:,} " in lines[2]
    assert "recomputed" not in captured("plain", "dispatch").cost_table()

    from pytest_torchgraph.report.page.collect import cost_data

    data = cost_data(capture.program, capture.by_module)
    assert data is not None
    column = data["titles"].index("recomputed FLOPs") + 2
    assert data["rows"][0][column] == capture.recomputed_flops
    assert "6.4 kFLOP recomputed" in data["about"]
