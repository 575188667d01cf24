"""Messages of refusals and failures: the innermost line, the specific reason, and what to do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from mechanisms.models import MECHANISMS, example, in_a_thread, mlp
from torch import Tensor, nn
from torch_releases import skip_before

from pytest_torchgraph import (
    Aot,
    CaptureError,
    CompiledAutograd,
    Dynamo,
    capture,
    watch,
)

COMPILING = ("aot", "inductor", "dynamo", "compiled_autograd")
BOILERPLATE = (
    "please visit",
    "report an issue",
    "Report an issue",
    "Developer debug context",
    " at 0x",
    "_Recorder",
    "WON'T CONVERT",
)

pytestmark = pytest.mark.filterwarnings(r"ignore:::torch")


def here(text: str) -> str:
    """Return this file and the number of its line with the comment `# text`."""
    lines = Path(__file__).read_text().splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {text}")]
    return f"tests/mechanisms/test_messages.py:{found}"


def refusal(target: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Return the message of a refused capture, and check that it has no irrelevant parts."""
    with pytest.raises(CaptureError) as caught:
        capture(target, *args, **kwargs)
    message = str(caught.value)
    assert not [words for words in BOILERPLATE if words in message]
    return message


def notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", []))


# -- the innermost line ----------------------------------------------------------------------------


class Printing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        print("seen")
        return y.relu()


class Looping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Printing() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x * 2


def printing_in_a_loop(x: Tensor) -> Tensor:
    for _ in range(2):
        x = x.sin()
        print("seen")  # in the loop
    return x


@pytest.mark.slow("long models; short ones are in every run", only=["inductor"])
@pytest.mark.parametrize("via", COMPILING)
def test_refusal_without_a_graph_names_the_line(via: str) -> None:
    message = refusal(printing_in_a_loop, example(3, 4), via=via)
    assert f"Graph break at {here('in the loop')}" in message
    assert 'print("seen")' in message
    assert message.startswith(f"nothing was captured via {via!r}: ")
    assert "Dynamo abandoned the target, and ran it eagerly" in message
    assert " in printing_in_a_loop: print(" in message
    assert "\nhint: Avoid calling builtin `print`" in message
    assert "via='dispatch'" in message
    assert message.count("\n") <= 5


# -- the reason of the case ------------------------------------------------------------------------


def test_refusal_of_a_torch_layer_that_depends_on_data() -> None:
    torch.manual_seed(0)
    layer = nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10])
    message = refusal(layer, example(4, 8), torch.randint(0, 20, (4,)), via="aot")
    assert "graph break inside torch's own code" in message
    assert "Graph break at torch/nn/modules/adaptive.py:" in message
    assert ": row_indices = target_mask.nonzero().squeeze()\nDynamic shape operator: " in message
    assert "causal" not in message
    assert "checkpoint" not in message


@pytest.mark.slow("compiles several models")
def test_refusal_advises_on_masks_only_for_a_transformer() -> None:
    model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(3)

    def call(source: Tensor, target: Tensor) -> Tensor:
        return model(source, target, tgt_mask=mask)  # type: ignore[no-any-return]  # called

    message = refusal(call, example(2, 4, 8), example(2, 3, 8), via="aot")
    assert "Graph break at torch/nn/modules/transformer.py:" in message
    assert f", called at {here('called')}: return model(source" in message
    assert "To avoid it, pass src_is_causal and tgt_is_causal" in message


class Masked(nn.Module):
    """The backward of the masked assignment has a data-dependent shape."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.embedding = nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        hidden = self.linear(x)
        hidden[mask] = self.embedding
        return hidden.relu()  # the end of the graph


class MaskedBeside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.masked = Masked()
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.head(x)
        torch._dynamo.graph_break()
        return self.masked(x, mask)  # type: ignore[no-any-return]


MASK = torch.tensor([True, False, True])


@pytest.mark.slow("long models; short ones are in every run", unless=["aot"])
@pytest.mark.parametrize("via", ["aot", "inductor", "compiled_autograd"])
def test_a_graph_that_the_backend_fails_on(via: str) -> None:
    message = refusal(Masked(), example(3, 4), MASK, via=via)
    name = "inductor" if via == "inductor" else "AOTAutograd"
    assert f"Graph break at {here('the end of the graph')}" in message
    assert (
        f"\nBackend compiler exception: {name} failed on the graph that ends here: "
        "DynamicOutputShapeException: aten.nonzero.default\n" in message
    )
    assert str(Path(__file__).parent) not in message


def test_a_failure_of_the_backend_among_the_breaks() -> None:
    captured = capture(MaskedBeside(), example(3, 4), MASK)
    kinds = {
        graph_break.kind.removeprefix("frame skipped: "): graph_break
        for graph_break in captured.breaks
    }
    found = kinds["Backend compiler exception"]
    assert found.reason == (
        "AOTAutograd failed on the graph that ends here: "
        "DynamicOutputShapeException: aten.nonzero.default"
    )
    assert f"{found.file}:{found.line}" == here("the end of the graph")
    assert not [w for w in BOILERPLATE for each in captured.breaks if w in f"{each}{each.reason}"]


# -- exceptions of torch, of Dynamo and of the target ----------------------------------------------


@torch.library.custom_op("torchgraph_messages::wrong_meta", mutates_args=())
def wrong_meta(x: Tensor) -> Tensor:
    return x * 2


@wrong_meta.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[0] + 1, *x.shape[1:])


def fails_compiled(x: Tensor) -> Tensor:
    return wrong_meta(x) + x


@pytest.mark.slow("long models; short ones are in every run", only=["inductor"])
@pytest.mark.parametrize("via", COMPILING)
def test_target_that_fails_only_compiled_is_reported_so(via: str) -> None:
    assert fails_compiled(example(3, 4)).shape == (3, 4)
    with pytest.raises(torch._dynamo.exc.TorchRuntimeError) as caught:
        capture(fails_compiled, example(3, 4), via=via)
    assert notes(caught.value) == (
        f"The target runs eagerly without an error, but its compilation via {via!r}, or the "
        "compiled code, fails. To capture the eager ops, use via='dispatch'."
    )


def test_an_exception_of_an_op_of_the_users_in_a_compiled_graph_passes_after_one_call() -> None:
    calls = []

    @torch.library.custom_op("torchgraph_messages::runs_once", mutates_args=())
    def runs_once(x: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) == 1:
            raise ArithmeticError("own")
        return x * 2

    runs_once.register_fake(torch.empty_like)
    with pytest.raises(ArithmeticError, match=r"\Aown\Z") as caught:
        capture(lambda x: runs_once(x) + 1, example(3, 4))
    assert (len(calls), notes(caught.value)) == (1, "")


def test_a_compiled_graph_that_fails_when_it_runs() -> None:
    """The exception is not one of Dynamo's: the op's real shape differs from its registered one."""
    model = nn.Linear(4, 4)

    @torch.library.custom_op("torchgraph_messages::misled", mutates_args=())
    def misled(x: Tensor) -> Tensor:
        return x.t().contiguous().t()

    misled.register_fake(torch.empty_like)
    misled.register_autograd(lambda ctx, grad: grad)
    with pytest.raises((RuntimeError, AssertionError)) as caught:
        capture(lambda x: misled(model(x)).reshape(-1), example(3, 4), via="aot", backward=False)
    assert not isinstance(caught.value, torch._dynamo.exc.TorchDynamoException)
    assert "The target runs eagerly without an error" in notes(caught.value)


def test_a_failure_of_aot_keeps_its_type_and_has_no_address() -> None:
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        capture(mlp(), example(4, 8), via=Aot(decompositions={torch.ops.aten.addmm.default: 3}))
    message = str(caught.value)
    assert message.startswith("backend='AOTAutograd' raised:\nTypeError: 'int' object is not")
    assert "_Recorder" not in message
    assert "The target runs eagerly without an error" in notes(caught.value)


@pytest.mark.slow("long models; short ones are in every run", only=["inductor"])
@pytest.mark.parametrize("via", MECHANISMS)
def test_an_exception_of_the_target_comes_after_one_call_and_without_a_note(via: str) -> None:
    calls = []
    error = ArithmeticError("own")

    def fails(x: Tensor) -> Tensor:
        calls.append(1)
        raise error

    with pytest.raises(ArithmeticError) as caught:
        capture(fails, example(4), via=via)
    assert (caught.value is error, notes(error)) == (True, "")
    if via not in ("fx", "export"):  # these two ask the target itself
        assert len(calls) == 1


class Wrong(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).relu()  # wrong shape


@pytest.mark.slow(
    "long models; short ones are in every run",
    only=["Dynamo(dynamic=None, fullgraph=True)", "inductor"],
)
@pytest.mark.parametrize("via", [*MECHANISMS, Aot(fullgraph=True), Dynamo(fullgraph=True)], ids=str)
def test_wrong_shape_raises_the_targets_exception(via: Any) -> None:
    with pytest.raises(RuntimeError) as caught:
        capture(Wrong(), example(3, 5), via=via)
    assert type(caught.value) is RuntimeError
    own = str(caught.value).removeprefix("addmm: ")  # torch 2.15 includes it, too
    assert own == "mat1 and mat2 shapes cannot be multiplied (3x5 and 4x4)"
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or via == "dispatch"
    assert notes(caught.value) == ""
    lines = [f"tests/mechanisms/{each.path.name}:{each.lineno + 1}" for each in caught.traceback]
    assert here("wrong shape") in lines


@pytest.mark.parametrize(
    "via",
    [
        Aot(fullgraph=True),
        CompiledAutograd(forward_fullgraph=True),
    ],
    ids=str,
)
def test_fullgraph_raises_what_torch_raises(via: Any) -> None:
    with pytest.raises(torch._dynamo.exc.Unsupported, match="builtin `print`") as caught:
        capture(Looping(), example(3, 4), via=via)
    assert notes(caught.value) == ""


# -- one capture at a time -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outer", "inner"), [("dispatch", "aot"), ("fx", "aot"), ("export", "dispatch")]
)
def test_a_capture_inside_a_capture(outer: str, inner: str) -> None:
    """Refused, unless both capture without a reset of Dynamo."""

    def around(x: Tensor) -> Tensor:
        capture(torch.relu, x, via=inner)
        return x * 2

    message = refusal(around, example(4), via=outer)
    assert message == (
        "a capture runs inside another capture, in its target or loss_fn, and both change global "
        "state (the RNG, Dynamo): run the captures one after the other"
    )
    assert capture(torch.relu, example(4), via=inner).graphs


@pytest.mark.parametrize("inner", ["aot", "dispatch"])
def test_a_capture_from_a_second_thread(inner: str) -> None:
    failed: list[BaseException] = []

    def run() -> None:
        try:
            capture(torch.relu, example(4), via=inner)
        except CaptureError as error:
            failed.append(error)

    def around(x: Tensor) -> Tensor:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join(60)
        return x * 2

    capture(around, example(4), via="dispatch")
    assert str(failed[0]).startswith("another thread is capturing")
    assert "watch()" not in str(failed[0])


def test_an_open_watch_keeps_its_message() -> None:
    with watch():
        message = refusal(torch.relu, example(4))
    assert "inside an open watch(), because the capture resets Dynamo" in message


# -- the meta device -------------------------------------------------------------------------------

ON_META = (
    "The target is on the meta device (parameter 'linear.weight' and 1 more), where tensors have "
    "no data. To capture it as if on the CPU, pass fake=True, via 'aot', 'dispatch', 'dynamo' or "
    "'export'."
)


@pytest.mark.slow("long models; short ones are in every run", only=["inductor"])
@pytest.mark.parametrize("via", MECHANISMS)
def test_a_model_on_meta_with_real_arguments(via: str) -> None:
    with torch.device("meta"):
        model = Wrong()
    with pytest.raises(RuntimeError, match="Tensor on device meta is not on the") as caught:
        capture(model, example(3, 4), via=via)
    assert notes(caught.value) == ON_META


def test_an_error_of_the_target_on_meta() -> None:
    skip_before("2.11", "AOTAutograd refuses fake tensors that Dynamo got as inputs")
    with pytest.raises(RuntimeError) as caught:
        capture(lambda x: x * x.sum().item(), torch.ones(3, device="meta"), via="dispatch")
    assert "meta" in str(caught.value)
    assert (
        "(input 'x'), where tensors have no data. To capture it as if on the CPU, pass fake=True"
        in notes(caught.value)
    )
    assert capture(lambda x: x * 2, torch.ones(3, device="meta"), fake=True).graphs


# -- ops that ran unrecorded -----------------------------------------------------------------------


@pytest.mark.parametrize("via", ["aot", "dispatch"])
def test_a_value_of_a_thread(via: str) -> None:
    def threaded(x: Tensor) -> Tensor:
        y = torch.compiler.disable(in_a_thread)(lambda: x.cos())  # waits
        return x.sin() + y  # used

    code = {"waits": "y = torch.compiler.disable(in_a_thread)(lambda: x.cos())"}
    code["used"] = "return x.sin() + y"
    text = "waits" if via == "aot" else "used"  # a compiled graph continues after the call
    assert refusal(threaded, example(3), via=via) == (
        "something ran unrecorded, so the graphs would be incomplete: a tensor first used at "
        f"{here(text)} in threaded ({code[text]}  # {text}) is not a parameter, buffer or argument "
        "of the target, and not the result of a recorded op. It may be a result of thread "
        "'worker', started during the capture. Compute the tensor inside the target, in the "
        "thread that calls the target, or pass it as an argument"
    )


@pytest.mark.parametrize("via", ["aot", "dispatch"])
def test_an_output_of_a_thread(via: str) -> None:
    def threaded(x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.compiler.disable(in_a_thread)(lambda: x.detach().cos())
        return x.sin(), y

    message = refusal(threaded, example(3), via=via)
    assert message.startswith(
        "something ran unrecorded, so the graphs would be incomplete: a tensor that the target "
        "returns or keeps is not a parameter, buffer or argument of the target, and not the result "
    )


@pytest.mark.parametrize("via", ["aot", "dispatch"])
def test_a_value_from_a_thread_that_was_there(via: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(len, "").result()
        message = refusal(
            lambda x: pool.submit(x.sin().exp).result().cos(), example(3, grad=True), via=via
        )
    assert (
        "The op that computed the tensor ran before the capture, or in a thread that was started "
        "before the capture" in message
    )


@pytest.mark.parametrize("via", ["aot", "dispatch"])
def test_constant_beside_a_thread_is_not_refused(via: str) -> None:
    @torch.compiler.disable
    def constant(x: Tensor) -> Tensor:
        in_a_thread(lambda: torch.ones(2))
        return x * torch.tensor([1.0, 2.0, 3.0])

    captured = capture(lambda x: constant(x.sin()), example(3), via=via)
    assert captured.graphs
    captured.assert_matches_eager()


def test_a_thread_of_tqdm_computes_nothing() -> None:
    """torch.fx shows its progress with tqdm, which starts a thread on first use."""
    tqdm = pytest.importorskip("tqdm")
    weight = torch.ones(3)

    def shows(x: Tensor) -> Tensor:
        tqdm.tqdm.monitor_interval = 10
        if tqdm.tqdm.monitor is not None:
            tqdm.tqdm.monitor.exit()
            tqdm.tqdm.monitor = None
        for _ in tqdm.tqdm(range(1), disable=True):
            pass
        return x * weight

    assert capture(shows, example(3), via="dispatch").graphs


def test_higher_order_op_with_an_unrecorded_body_is_refused() -> None:
    @torch.compiler.disable
    def chosen(x: Tensor) -> Tensor:
        return torch.ops.higher_order.cond(x.sum() > 0, torch.sin, torch.cos, (x,))  # chosen

    message = refusal(lambda x: chosen(x.tan()), example(3), backward=False)
    assert message.startswith(
        f"higher_order.cond ran eagerly at {here('chosen')} in chosen (return torch.ops"
    )
    assert "Remove the graph break around it: via=Aot(fullgraph=True)" in message


@pytest.mark.parametrize("via", ["aot", "dispatch", "export"])
def test_lazy_module_is_refused_with_the_remedy(via: str) -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU())
    message = refusal(model, torch.ones(2, 3), via=via)
    assert message == (
        "'0.weight' of the target is uninitialized, because LazyLinear creates it in its first "
        "call. Call the target once before the capture: model(x)"
    )
    assert isinstance(model[0], nn.LazyLinear), "the refused capture called it"
    model(torch.ones(2, 3))
    assert capture(model, torch.ones(2, 3), via=via).graphs
