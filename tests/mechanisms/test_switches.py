"""A capture restores `requires_grad`, `training` and torch's global switches.

`account` reads every switch below torch's public functions, and so is independent of the package.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._functorch.config
import torch._inductor.config
from mechanisms.models import MECHANISMS
from torch import Tensor, nn
from torch._dynamo.eval_frame import TorchPatcher
from torch.distributions import Distribution
from torch_releases import skip_before

from pytest_torchgraph import capture, capture_ranks, steady, torch_private

pytestmark = pytest.mark.gpu

_C: Any = torch._C
opt_einsum: Any = torch.backends.opt_einsum
GLOBAL = nn.Parameter(torch.ones(4))
"""A parameter of no module."""


def account() -> dict[str, Any]:
    """Read each switch of the process, and of this thread."""
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    names = [
        name
        for name in dir(_C)
        if name.startswith("_get_")
        and any(part in name for part in ("cublas_allow", "cudnn", "_sdp", "deterministic", "mkld"))
        and not any(part in name for part in ("rocm", "reserve", "depthwise"))
    ]
    autocast = [
        (torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda", "xpu")
    ]
    precisions = [
        _C._get_fp32_precision_getter(*key)
        for key in (("generic", "all"), ("cuda", "matmul"), ("cuda", "conv"), ("mkldnn", "matmul"))
    ]
    values = {}
    for name in names:
        try:
            values[name] = getattr(_C, name)()
        except RuntimeError as error:  # torch cannot express the precision in the older flag
            values[name] = str(error)[:20]
    return {
        **values,
        "grad": torch.is_grad_enabled(),
        "dtype": torch.empty((), device="cpu").dtype,
        "device": None if context is None else str(context.device),
        "threads": torch.get_num_threads(),
        "anomaly": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "autocast": (torch.is_autocast_cache_enabled(), autocast),
        "precisions": precisions,
        "warn": torch.is_warn_always_enabled(),
        "backends": (torch.backends.mha._is_fastpath_enabled, _C._get_nnpack_enabled()),
        "sparse": _C._check_sparse_tensor_invariants(),
        "forward grad": _C._is_fwd_grad_enabled(),
        "einsum": opt_einsum.enabled,
        "distributions": Distribution._validate_args,
        "multithreading": _C._is_multithreading_enabled(),
        "configs": (
            torch._dynamo.config.recompile_limit,
            set(torch._dynamo.config.reorderable_logging_functions),
            torch._inductor.config.max_autotune,
            torch._functorch.config.donated_buffer,
            torch.compiler.config.job_id,
        ),
    }


FLIPS: dict[str, Callable[[], object]] = {
    "grad mode": lambda: torch.set_grad_enabled(False),
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "default device": lambda: torch.set_default_device("meta"),
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "deterministic": lambda: torch.use_deterministic_algorithms(True),
    "deterministic, warn only": lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    "debug mode": lambda: torch.set_deterministic_debug_mode("warn"),
    "fill": lambda: setattr(torch.utils.deterministic, "fill_uninitialized_memory", False),
    "anomaly": lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
    "autocast": lambda: torch.set_autocast_enabled("cpu", True),
    "autocast dtype": lambda: torch.set_autocast_dtype("cuda", torch.bfloat16),
    "autocast cache": lambda: torch.set_autocast_cache_enabled(False),
    "autocast entered": lambda: torch.autocast("cpu", torch.float16).__enter__(),
    "precision": lambda: torch.set_float32_matmul_precision("medium"),
    "TF32 of matmul": lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
    "TF32 of cudnn": lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
    "mkldnn precision": lambda: setattr(torch.backends.mkldnn.matmul, "fp32_precision", "bf16"),
    "reduction": lambda: setattr(
        torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", False
    ),
    **{
        f"{name} attention": lambda name=name: getattr(torch.backends.cuda, f"enable_{name}_sdp")(
            False
        )
        for name in ("flash", "mem_efficient", "math", "cudnn")
    },
    "math reduction": lambda: torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True),
    "cudnn": lambda: setattr(torch.backends.cudnn, "enabled", False),
    "cudnn benchmark": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "cudnn deterministic": lambda: setattr(torch.backends.cudnn, "deterministic", True),
    "mkldnn": lambda: setattr(torch.backends.mkldnn, "enabled", False),
    "warn always": lambda: torch.set_warn_always(True),
    "fast path": lambda: torch.backends.mha.set_fastpath_enabled(False),
    "nnpack": lambda: torch.backends.nnpack.set_flags(not _C._get_nnpack_enabled()),
    "sparse": lambda: torch.sparse.check_sparse_tensor_invariants.enable(),
    "forward grad": lambda: _C._set_fwd_grad_enabled(False),
    "einsum": lambda: setattr(opt_einsum, "enabled", not opt_einsum.enabled),
    "distributions": lambda: Distribution.set_default_validate_args(
        not Distribution._validate_args
    ),
    "multithreading": lambda: torch.autograd.set_multithreading_enabled(False),
    "dynamo config": lambda: setattr(torch._dynamo.config, "recompile_limit", 3),
    "set in a config": lambda: torch._dynamo.config.reorderable_logging_functions.add(print),
    "inductor config": lambda: setattr(torch._inductor.config, "max_autotune", True),
    "functorch config": lambda: setattr(torch._functorch.config, "donated_buffer", False),
    "compiler config": lambda: setattr(torch.compiler.config, "job_id", "mine"),
}


@pytest.fixture(autouse=True)
def _switches() -> Iterator[None]:
    """Restore what the tests flip themselves, and check that by the independent account."""
    before = account()
    with torch_private.switches_restored(), torch_private.configs_restored():
        yield
    assert account() == before


class Model(nn.Module):
    """A model with a trained and a frozen parameter, a buffer, and modules in both modes."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(4).eval()
        self.fc.bias.requires_grad_(False)
        self.register_buffer("scale", torch.ones(4))
        self.kept = [nn.Linear(4, 4)]
        self.plain = torch.ones(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.drop(self.fc(x))) * self.scale


def flags(model: Model, *tensors: Tensor) -> list[bool]:
    """Return each `requires_grad` and each `training`."""
    modules = [*model.modules(), *model.kept]
    owned = [*model.parameters(), *model.kept[0].parameters(), model.scale, model.plain, GLOBAL]
    return [t.requires_grad for t in (*owned, *tensors)] + [m.training for m in modules]


CHANGES: dict[str, Callable[[Model, Tensor], object]] = {
    "freeze": lambda model, x: model.fc.weight.requires_grad_(False),
    "unfreeze": lambda model, x: model.fc.bias.requires_grad_(True),
    "freeze all": lambda model, x: model.requires_grad_(False),
    "attribute": lambda model, x: setattr(model.fc.weight, "requires_grad", False),
    "buffer": lambda model, x: model.scale.requires_grad_(),
    "plain": lambda model, x: model.plain.requires_grad_(),
    "argument": lambda model, x: x.requires_grad_(),
    "global": lambda model, x: GLOBAL.requires_grad_(False),
    "module in a list": lambda model, x: model.kept[0].requires_grad_(False),
    "eval": lambda model, x: model.eval(),
    "train": lambda model, x: model.train(),
    "child": lambda model, x: setattr(model.norm, "training", True),
    "list": lambda model, x: model.kept[0].eval(),
}


def target_with(
    model: Model, change: Callable[[Model, Tensor], object] | None, raises: bool
) -> Callable[[Tensor], Tensor]:
    def target(x: Tensor) -> Tensor:
        y = model(x) * GLOBAL
        if change is not None:
            change(model, x)
        if raises:
            raise LookupError("mine")
        return y

    return target


OTHERS = [via for via in MECHANISMS if via != "dispatch"]


@pytest.mark.slow("compiles each case", unless=["dispatch-*", "fx-*"])
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("via", "change"),
    [*(("dispatch", change) for change in CHANGES), *zip(itertools.cycle(OTHERS), CHANGES)],
)
def test_flags_are_restored(via: str, change: str) -> None:
    for raises in (False, True):
        model, x = Model(), torch.ones(2, 4)
        before = flags(model, x)
        try:
            capture(target_with(model, CHANGES[change], raises), x, via=via)
        except Exception as error:
            print(type(error), error)
        assert flags(model, x) == before


@pytest.mark.slow("compiles each case", unless=["dispatch-*"])
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("via", "flip"),
    [*(("dispatch", flip) for flip in FLIPS), *(("aot", flip) for flip in [*FLIPS][::4])],
)
def test_switches_are_restored(via: str, flip: str) -> None:
    model, x, before = Model(), torch.ones(2, 4), account()
    for raises in (False, True):
        try:
            capture(target_with(model, lambda *_: FLIPS[flip](), raises), x, via=via)
        except Exception as error:
            print(type(error), error)
        assert account() == before
    FLIPS[flip]()
    assert account() != before  # the flip changes what the account reads


@pytest.mark.slow("compiles for a second")
def test_validation_of_distributions_is_as_without_a_capture() -> None:
    for via in ("aot", "dynamo", "dispatch"):
        TorchPatcher.patch.cache_clear()  # as in a new process
        Distribution.set_default_validate_args(True)
        capture(nn.Linear(4, 4), torch.ones(2, 4), via=via)
        assert Distribution._validate_args, via
        compiled: Any = torch.compile(torch.sin, backend="eager")  # Dynamo switches it off
        compiled(torch.ones(3))
        assert not Distribution._validate_args, via
        capture(nn.Linear(4, 4), torch.ones(2, 4), via=via)
        assert not Distribution._validate_args, via


@pytest.mark.filterwarnings("ignore")
def test_switches_flipped_by_the_caller_stay() -> None:
    for flip in FLIPS.values():
        flip()
    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)
    before = account()
    capture(lambda x: x * 2, torch.ones(2), via="dispatch")
    assert account() == before
    with torch.device("meta"):  # no global switch
        capture(lambda x: x * torch.ones(2), torch.ones(2), via="dispatch")
    assert account() == before


def test_gradient_of_an_argument_that_the_target_marks_is_removed() -> None:
    x = torch.ones(3)

    def target(x: Tensor) -> Tensor:
        (x.requires_grad_() ** 2).sum().backward()
        return x.grad * 2

    capture(target, x, via="dispatch")
    assert (x.requires_grad, x.grad) == (False, None)


def test_reassigned_parameter_is_put_back() -> None:
    model = nn.Linear(4, 4)
    weight = model.weight

    def freeze(x: Tensor) -> Tensor:
        model.weight = nn.Parameter(model.weight.detach(), requires_grad=False)
        return model(x)

    capture(freeze, torch.ones(2, 4), via="dispatch")
    assert model.weight is weight


def test_eager_runs_and_ranks_restore_switches() -> None:
    model, before = Model(), account()
    was = flags(model)

    def target(x: Tensor) -> Tensor:
        y = model(x)
        model.eval()
        torch.set_anomaly_enabled(True)
        torch._inductor.config.max_autotune = True
        return y

    captured = capture(target, torch.ones(2, 4), via="dispatch")
    captured.assert_matches_eager()
    steady(target, (torch.ones(2, 4),), (torch.ones(2, 4),))
    assert (flags(model), account()) == (was, before)

    def build(mesh: Any) -> tuple[Any, ...]:
        torch.set_default_device("cpu")
        torch.backends.cudnn.benchmark = True
        torch._dynamo.config.recompile_limit = 3
        return target, (torch.ones(2, 4),)

    capture_ranks(build, dp=1, via="dispatch")
    assert (flags(model), account()) == (was, before)


@pytest.mark.slow("compiles several models", only=["aot-*"])
@pytest.mark.parametrize("options", [{"fake": True}, {"device": "cpu"}], ids=["fake", "device"])
@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_flags_of_copies_and_fakes_are_restored(via: str, options: dict[str, Any]) -> None:
    if via == "aot" and "fake" in options:
        skip_before("2.11", "AOTAutograd refuses fake tensors that Dynamo got as inputs")
    model, x, before = Model(), torch.ones(2, 4), account()
    was = flags(model, x)

    class Freezing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> Tensor:
            y = self.model(x)
            self.model.eval().fc.weight.requires_grad_(False)
            torch.set_default_dtype(torch.float64)
            return y

    capture(Freezing(), x, via=via, **options)
    assert (flags(model, x), account()) == (was, before)


def test_switch_that_a_hook_of_the_backward_flips_is_restored() -> None:
    before = account()

    def target(x: Tensor) -> Tensor:
        y = x * 2
        y.register_hook(lambda grad: torch.use_deterministic_algorithms(True))
        return y

    capture(target, torch.ones(2, requires_grad=True), via="dispatch", backward=True)
    assert account() == before
