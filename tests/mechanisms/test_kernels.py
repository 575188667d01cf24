"""Kernels and library calls of a capture, against what runs; and code that is only written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from mechanisms.models import Norm, example, mlp
from torch import Tensor, nn
from torch._inductor.runtime.runtime_utils import default_cache_dir as cache_dir
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_torchgraph import Capture, CaptureError, Inductor, capture, watch
from pytest_torchgraph.checks.kernels import MOST_LISTED

WRITTEN = Inductor(codegen=False)


@torch.library.custom_op("torchgraph_kernels::doubled", mutates_args=())
def doubled(x: Tensor) -> Tensor:
    return x * 2


@doubled.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def library_ops(x: Tensor) -> Tensor:
    ordered, positions = torch.sort(x, stable=True)
    total = torch.cumsum(ordered.relu(), 1) + positions
    return doubled(total @ total.t()).sin()


def one_branch(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.sin() @ x.t(), lambda x: x.cos(), (x,))


class Regions(nn.Module):
    """Two calls of one nested region."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = region(x, layer.weight)
        return x


@torch.compiler.nested_compile_region
def region(x: Tensor, weight: Tensor) -> Tensor:
    return (x @ weight).relu()


def broken(x: Tensor) -> Tensor:
    y = (x @ x.t()).sin()
    torch._dynamo.graph_break()
    return (y @ y).cumsum(0)


def viewed(x: Tensor) -> Tensor:
    return x.t()[1:]


class Dropped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.dropout(torch.relu(self.fc(x)), 0.5, True).sin()


def encoder() -> nn.Module:
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)


def norm() -> nn.Module:
    """In double precision: its gradients are differences of numbers that are far larger."""
    return Norm().double()


SUBJECTS: dict[str, tuple[Callable[[], Callable[..., Any]], Tensor]] = {
    "library_ops": (lambda: library_ops, example(6, 8)),
    "regions": (Regions, example(4, 8)),
    "broken": (lambda: broken, example(6, 8)),
    "mlp": (mlp, example(4, 8)),
    "norm": (norm, example(2, 2, 6, 6).double()),
    "dropped": (Dropped, example(4, 8)),
    "encoder": (encoder, example(2, 4, 8)),
}


class Dispatched(TorchDispatchMode):
    """The packets of the ops that generated code calls, views left out."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: Counter[str] = Counter()
        self.views: Counter[str] = Counter()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        packet = ".".join(str(func).split(".")[:2])
        if func.is_view:
            self.views[packet] += 1
        elif is_generated(sys._getframe(1)):
            self.ops[packet] += 1
        return func(*args, **(kwargs or {}))


def is_generated(frame: FrameType | None) -> bool:
    """Whether a frame of code that inductor stored is running."""
    while frame is not None and not frame.f_code.co_filename.startswith(cache_dir()):
        frame = frame.f_back
    return frame is not None


@pytest.fixture
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def dispatched(target: Callable[..., Any], x: Tensor) -> Dispatched:
    """What the generated code of a compiled step calls, in its second run."""
    compiled = torch.compile(target)
    for _ in range(2):
        with Dispatched() as ran:
            output = compiled(x)
            if output.requires_grad:
                output.backward(torch.ones_like(output))
    return ran


def library_calls(found: Capture) -> Counter[str]:
    calls: Counter[str] = Counter()
    for kernel in found.kernels:
        if kernel.kind == "extern":
            calls[kernel.ops[0]] += kernel.launches
    return calls


@pytest.mark.slow("inductor compiles C++ for each case")
@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.usefixtures("fresh")
def test_library_calls_are_those_that_run(name: str) -> None:
    make, x = SUBJECTS[name]
    found = capture(make(), x, via=WRITTEN)
    assert library_calls(found) == dispatched(make(), x).ops
    assert library_calls(found)


@pytest.mark.usefixtures("fresh")
def test_views_are_no_library_calls() -> None:
    found = capture(viewed, example(4, 4), via=WRITTEN)
    assert found.kernels == ()
    found.assert_kernel_count(0, extern=0, launches=0)
    ran = dispatched(viewed, example(4, 4))
    assert ran.views
    assert not ran.ops


def test_each_branch_of_a_condition_counts() -> None:
    found = capture(one_branch, example(4, 8), via=WRITTEN)
    assert library_calls(found) == {"aten.mm": 1}
    assert {"aten.cos", "aten.sin"} <= {op for kernel in found.kernels for op in kernel.ops}


def test_a_region_is_launched_for_each_call_of_it() -> None:
    found = capture(Regions(), example(4, 8), via=WRITTEN)
    forward = [kernel for kernel in found.kernels if kernel.graph == "forward"]
    assert sum(kernel.launches for kernel in forward if kernel.kind == "cpp") == 3
    assert sum(kernel.launches for kernel in forward if kernel.kind == "extern") == 3


# -- what is said of one ---------------------------------------------------------------------------


@pytest.mark.slow("inductor compiles C++")
def test_a_library_call_has_module_line_and_device() -> None:
    found = capture(mlp(), example(4, 8), via=WRITTEN)
    calls = [kernel for kernel in found.kernels if kernel.graph == "forward" and kernel.is_extern]
    assert [kernel.modules for kernel in calls] == [
        ("blocks.0",),
        ("blocks.1",),
        ("blocks.2",),
        ("head",),
    ]
    assert {kernel.name for kernel in calls} == {"extern_kernels.addmm"}
    assert {kernel.device for kernel in calls} == {"cpu"}
    assert calls[0].lines[0].code == "x = x + torch.relu(block(x))"
    assert calls[0].lines[0].file.endswith("models.py")
    backward = [kernel for kernel in found.kernels if kernel.graph == "backward"]
    assert {module for kernel in backward for module in kernel.modules} == {
        *(f"blocks.{number}" for number in range(3)),
        "norm",
        "head",
    }


@pytest.mark.slow("inductor compiles C++")
def test_a_generated_kernel_has_its_modules() -> None:
    found = capture(mlp(), example(4, 8), via=WRITTEN)
    norm = next(kernel for kernel in found.kernels if "aten.native_layer_norm" in kernel.ops)
    assert norm.modules == ("norm",)
    assert "return self.head(self.norm(x))" in {line.code for line in norm.lines}


def test_an_op_in_a_body_has_its_line() -> None:
    found = capture(one_branch, example(4, 8), via=WRITTEN)
    (call,) = [kernel for kernel in found.kernels if kernel.is_extern]
    assert [line.function for line in call.lines] == ["<lambda>"]


# -- assert_kernel_count ---------------------------------------------------------------------------


def fused(x: Tensor) -> Tensor:
    return torch.tanh(x * 2).relu()


def test_one_kernel_and_no_library_call() -> None:
    found = capture(fused, example(8), via=WRITTEN)
    found.assert_kernel_count(1, extern=0, launches=1)
    found.assert_kernel_count({"cpu": (None, 1)}, extern={"cpu": 0, "cuda": 1})


def test_a_planted_library_call_is_named() -> None:
    def planted(x: Tensor) -> Tensor:
        return torch.tanh(x.cumsum(0) * 2).relu()

    found = capture(planted, example(8), via=WRITTEN)
    found.assert_kernel_count(1)
    with pytest.raises(AssertionError) as raised:
        found.assert_kernel_count(1, extern=0)
    message = str(raised.value)
    assert "library calls: expected 0, found 1" in message
    assert "generated kernels" not in message
    assert "torch.ops.aten.cumsum.default (library call on cpu)" in message
    assert "test_kernels.py:" in message
    assert "torch.tanh(x.cumsum(0) * 2).relu()" in message


def test_a_second_kernel_and_a_second_launch_are_named() -> None:
    def apart(x: Tensor) -> Tensor:
        return (x.sin().cumsum(0).sin()).cumsum(0)

    found = capture(apart, example(8), via=WRITTEN)
    generated = [kernel for kernel in found.kernels if not kernel.is_extern]
    launched = sum(kernel.launches for kernel in generated)
    assert launched == 2
    with pytest.raises(AssertionError, match="launches of generated kernels: expected 1, found 2"):
        found.assert_kernel_count(launches=1)
    with pytest.raises(AssertionError, match=r"generated kernels: expected at most 1, found 2"):
        found.assert_kernel_count((None, 1))
    with pytest.raises(AssertionError, match="library calls: expected at least 3, found 2"):
        found.assert_kernel_count(extern=(3, None))


def test_many_calls_are_listed_together_and_no_more_than_fits() -> None:
    def alike(x: Tensor) -> Tensor:
        for number in range(15):
            x = x.cumsum(0) + number
        return x

    found = capture(alike, example(8), via=WRITTEN)
    with pytest.raises(AssertionError) as raised:
        found.assert_kernel_count(extern=1)
    message = str(raised.value)
    assert message.count("aten.cumsum.default (library call on cpu, 15 times)") == 1
    assert "kernel on cpu" not in message, "only what was counted wrong is listed"
    with pytest.raises(AssertionError) as raised:
        found.assert_kernel_count(1)
    message = str(raised.value)
    kernels = sum(not kernel.is_extern for kernel in found.kernels)
    assert message.count("cpp kernel on cpu") == MOST_LISTED < kernels
    assert (
        f"... and {kernels - MOST_LISTED} more; to see all, with their ops: print(capture.kernels)"
        in message
    )


def test_nothing_to_check_is_an_error() -> None:
    found = capture(fused, example(8), via=WRITTEN)
    with pytest.raises(TypeError, match="checks nothing"):
        found.assert_kernel_count()
    with pytest.raises(TypeError, match="checks nothing"):
        found.assert_kernel_count((0, None), launches=(0, None))
    found.assert_kernel_count((0, None), launches=1)
    with pytest.raises(ValueError, match="missing count for device 'cpu'"):
        found.assert_kernel_count({"cuda": 1})
    with pytest.raises(CaptureError, match=r"'aot' has no kernels.*via='inductor'"):
        capture(fused, example(8)).assert_kernel_count(1)


@pytest.mark.slow("inductor compiles C++")
def test_a_graph_without_code_is_no_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pytest_torchgraph.mechanisms.torch_compile.inductor._InductorRecorder.at_code",
        lambda *_: None,
    )
    found = capture(fused, example(8), via="inductor")
    with pytest.raises(CaptureError, match="no Python code for 1 of 1 graphs"):
        found.assert_kernel_count(extern=0)


def test_code_that_is_not_read_is_no_zero() -> None:
    via = Inductor(codegen=False, options={"cpp_wrapper": True})
    found = capture(fused, example(8), via=via)
    with pytest.raises(CaptureError, match="cpp_wrapper"):
        found.assert_kernel_count(extern=0)


def test_a_watch_without_a_graph_fails() -> None:
    with watch() as seen:
        pass
    with pytest.raises(AssertionError, match="no compiled function or module was called"):
        seen.assert_kernel_count(extern=0)


@pytest.mark.slow("inductor compiles C++")
@pytest.mark.usefixtures("fresh")
def test_a_watch_of_two_backends_does_not_know_all() -> None:
    def other(x: Tensor) -> Tensor:
        return (x @ x.t()).sin()

    x = example(4, 4)
    with watch() as seen:
        torch.compile(fused)(x)
        torch.compile(other, backend="aot_eager")(x)
    with pytest.raises(
        CaptureError, match=r"other \(.*\.py:\d+\) was compiled with a backend other"
    ):
        seen.assert_kernel_count(1, extern=0)
    seen.only(function="fused").assert_kernel_count(1, extern=0)


# -- code that is only written ---------------------------------------------------------------------


@pytest.mark.slow("inductor compiles C++ for each case")
@pytest.mark.parametrize("name", SUBJECTS)
def test_the_kernels_are_those_of_code_that_is_compiled(name: str) -> None:
    make, x = SUBJECTS[name]
    written = capture(make(), x, via=WRITTEN)
    compiled = capture(make(), x, via="inductor")
    assert written.kernels == compiled.kernels
    assert written.to_text("full") == compiled.to_text("full")
    written.assert_matches_eager()


LATER = """
import sys
import torch
from mechanisms.models import example, mlp
from pytest_torchgraph import Inductor, capture

def step():
    model = mlp()
    torch.compile(model)(example(4, 8)).sum().backward()
    return {name: each.grad for name, each in model.named_parameters()}

started = []
sys.addaudithook(lambda name, args: name == "subprocess.Popen" and started.append(args[1]))
found = capture(mlp(), example(4, 8), via=Inductor(codegen=False))
assert all(list(each)[1:] == ["--version"] for each in started), started
torch._dynamo.utils.counters.clear()
grads = step()
model = mlp()
model(example(4, 8)).sum().backward()
for name, each in model.named_parameters():
    torch.testing.assert_close(grads[name], each.grad)
print(dict(torch._dynamo.utils.counters["inductor"]).get("fxgraph_cache_miss", 0))
assert capture(mlp(), example(4, 8), via="inductor").kernels == found.kernels
"""


@pytest.mark.slow("inductor compiles C++ for each case")
def test_what_compiles_later_is_not_spoilt(tmp_path: Path) -> None:
    """A real compilation after code that was only written, in the process and in another one.

    The first has nothing in its cache, and compiles forward and backward; the second finds both.
    """
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    for misses in ("2", "0"):
        command = [sys.executable, "-c", LATER]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (ran.stdout.strip(), ran.returncode) == (misses, 0), ran.stderr


@pytest.mark.slow("runs pytest in a new process")
def test_nothing_is_stored_and_nothing_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor import codecache, cpu_vec_isa, debug
    from torch._inductor.codegen import cpp

    def refuse(*_args: Any, **_kwargs: Any) -> Any:
        raise AssertionError("something was compiled or stored")

    monkeypatch.setattr(codecache.PyCodeCache, "load_by_key_path", refuse)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    cpu_vec_isa.valid_vec_isa_list.cache_clear()
    tells = debug.set_kernel_post_grad_provenance_tracing
    found = capture(mlp(), example(4, 8), via=WRITTEN)
    found.assert_kernel_count(extern=(1, None))
    found.assert_matches_eager()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not cpu_vec_isa.valid_vec_isa_list.cache_info().currsize
    assert debug.set_kernel_post_grad_provenance_tracing is tells
    assert cpp.set_kernel_post_grad_provenance_tracing is tells
    with pytest.raises(Exception, match="compiled or stored"):  # the probe is live
        capture(mlp(), example(4, 8), via="inductor")


def test_a_wrong_pass_is_seen() -> None:
    def pass_(graph: torch.fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.tanh.default):
            node.target = torch.ops.aten.sin.default

    via = Inductor(codegen=False, options={"post_grad_custom_post_pass": pass_})
    found = capture(fused, example(8), via=via)
    found.assert_op_counts({"aten.sin": 1, "aten.tanh": 0})
    with pytest.raises(AssertionError, match="output"):
        found.assert_matches_eager()


def test_the_backward_draws_what_the_forward_drew() -> None:
    """A mask that is computed again in the backward is the same: inductor draws by seeds."""

    def squared(x: Tensor) -> Tensor:
        return torch.dropout(x, 0.5, True).square()

    def again(x: Tensor) -> Tensor:
        return torch.utils.checkpoint.checkpoint(squared, x, use_reentrant=False)

    x = (example(64) + 2).requires_grad_()
    grads: list[Tensor] = []
    x.register_hook(grads.append)
    found = capture(again, x, via=WRITTEN)
    drawn = [graph.kind for graph in found.graphs if graph.count("prims.inductor_random")]
    assert drawn == ["forward", "backward"]
    kept = found.output != 0
    assert 0 < kept.sum() < 64
    assert torch.equal(grads[0] != 0, kept)


def test_calls_that_only_generated_code_can_compute_are_run_before_the_passes() -> None:
    from torch._inductor.pattern_matcher import (
        CallFunction,
        KeywordArg,
        PatternMatcherPass,
        register_lowering_pattern,
    )

    passes = PatternMatcherPass()
    tanh = torch.ops.aten.tanh.default

    @register_lowering_pattern(CallFunction(tanh, KeywordArg("x")), pass_dict=passes)
    def lowered(match: Any, x: Any) -> Any:
        from torch._inductor.lowering import lowerings

        return lowerings[torch.ops.aten.tanh](x)

    via = Inductor(codegen=False, options={"post_grad_custom_post_pass": passes.apply})
    found = capture(fused, example(8), via=via)
    assert torch.equal(found.output, fused(example(8)))
    found.assert_kernel_count(1, extern=0)
    with pytest.raises(CaptureError, match=r"codegen=False.*lowered.*use Inductor\(\)"):
        found.assert_matches_eager()


def test_fullgraph_and_dynamic_reach_it() -> None:
    with pytest.raises(Exception, match="graph_break"):
        capture(broken, example(6, 8), via=Inductor(codegen=False, fullgraph=True))
    found = capture(fused, example(8), via=Inductor(codegen=False, dynamic=True))
    found.assert_dynamic("x", dim=0)
    found.assert_kernel_count(1, extern=0)
