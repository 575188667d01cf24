"""`assert_cacheable` and `cache_bypasses`: reasons that keep graphs out of torch's caches."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from subjects.cache_cases import (
    autocast_inside,
    branch,
    opaque,
    selective,
    selective_partial,
    shifted,
    square,
    with_opaque,
)
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch_releases import RELEASE

from pytest_torchgraph import CacheBypass, CaptureError, Inductor, capture, watch

CASTS_CACHED = not torch.__version__.startswith(("2.12.", "2.13."))


class Scale(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return self.inner(x)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = Scale()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale(x).sin()


def a_pass(graph: Any) -> None:
    pass


def square_input() -> torch.Tensor:
    return torch.ones(4, 4, requires_grad=True)


@pytest.mark.parametrize(
    ("target", "op", "code", "hint", "via"),
    [
        pytest.param(
            autocast_inside,
            "_enter_autocast",
            "(x @ x).sin()",
            "torch 2.14",
            "aot",
            marks=pytest.mark.skipif(CASTS_CACHED, reason="cached by this torch"),
        ),
        (with_opaque, "opaque", "opaque(x)", "unsafe_marked_cacheable_functions", "dynamo"),
        (branch, "cond", "torch.cond", "no release of torch caches", "aot"),
    ],
    ids=["autocast", "allow_in_graph", "cond"],
)
def test_refused_op_is_named_with_line_and_hint(
    target: Callable[..., Any], op: str, code: str, hint: str, via: str
) -> None:
    (bypass,) = capture(target, torch.ones(4, 4), via=via).cache_bypasses
    assert isinstance(bypass, CacheBypass)
    assert (bypass.graph, op in bypass.op, hint in bypass.hint) == ("forward", True, True)
    assert bypass.source is not None
    assert code in bypass.source.code
    assert bypass.source.file.endswith("cache_cases.py")
    assert not re.search(r"0x[0-9a-f]+|/site-packages/|\n", bypass.reason)


@torch.compiler.allow_in_graph
def early_exit_gate(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


def gated(x: torch.Tensor) -> torch.Tensor:
    y = opaque(x)
    return early_exit_gate(y)


def opaque_in_context(x: torch.Tensor) -> torch.Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return opaque(x)


@pytest.mark.parametrize(
    ("target", "ops"),
    [
        (gated, ["opaque", "early_exit_gate"]),
        (opaque_in_context, ["_backend_from_string", "opaque"]),
    ],
)
def test_no_refused_op_hides_another(target: Callable[..., Any], ops: list[str]) -> None:
    bypasses = capture(target, torch.ones(4, 4)).cache_bypasses
    assert [bypass.op.rpartition(".")[2] for bypass in bypasses] == ops


def test_refused_context_has_line_and_module_of_the_op_in_it() -> None:
    (bypass,) = capture(Model(), torch.ones(2, 4)).cache_bypasses
    assert (bypass.module, bypass.source and bypass.source.code) == (
        "scale.inner",
        "return self.inner(x)",
    )


@pytest.mark.parametrize(
    ("target", "hint"),
    [(selective, "cache_hash"), (selective_partial, "not as a functools.partial")],
)
def test_checkpoint_with_an_uncacheable_context_fn_is_named(target: Any, hint: str) -> None:
    (bypass,) = capture(target, square_input()).cache_bypasses
    assert "tag_activation_checkpoint" in bypass.op
    assert ("before torch 2.11" if RELEASE < (2, 11) else hint) in bypass.hint
    assert bypass.source is not None
    assert "checkpoint(" in bypass.source.code


def test_assert_cacheable_fails_with_each_bypass_and_passes_with_allow() -> None:
    step = capture(branch, torch.ones(4, 4))
    with pytest.raises(AssertionError, match="every process compiles 1 graph again") as failed:
        step.assert_cacheable()
    assert "torch.cond" in str(failed.value)
    assert "hint: " in str(failed.value)
    step.assert_cacheable(allow="higher_order.cond")
    with pytest.raises(AssertionError, match="not cacheable"):
        step.assert_cacheable(allow="autocast")


@pytest.mark.slow("compiles for a second")
def test_backward_without_op_is_never_saved() -> None:
    for via in ("aot", "dynamo", Inductor(codegen=False)):
        with pytest.raises(AssertionError, match="a graph without an op is never saved") as failed:
            capture(shifted, square_input(), via=via).assert_cacheable()
        assert "\n  backward: a graph without an op" in str(failed.value)
        assert "the forward is traced again with it" in str(failed.value)
        assert "hint: return something that needs an op in the backward" in str(failed.value)
        capture(square, square_input(), via=via).assert_cacheable()


@pytest.mark.parametrize(
    ("patch", "reason"),
    [
        (inductor_config.patch(force_disable_caches=True), "force_disable_caches"),
        (functorch_config.patch(enable_autograd_cache=False), "enable_autograd_cache"),
        (inductor_config.patch(fx_graph_cache=False), "FX graph cache is not enabled"),
        (inductor_config.patch(freezing=True), "freezing"),
        (inductor_config.patch(post_grad_custom_post_pass=a_pass), "custom pass"),
    ],
    ids=["force", "aot", "fx", "freezing", "pass"],
)
def test_settings_of_the_capture_are_judged(patch: Any, reason: str) -> None:
    with patch:
        step = capture(square, torch.ones(4, 4))
    with pytest.raises(AssertionError, match=reason):
        step.assert_cacheable()


def test_options_of_inductor_are_judged() -> None:
    options = {"post_grad_custom_post_pass": a_pass}
    step = capture(square, torch.ones(4, 4), via=Inductor(options=options, codegen=False))
    with pytest.raises(AssertionError, match="custom pass"):
        step.assert_cacheable()


def test_cache_bypasses_of_other_mechanisms_are_refused() -> None:
    with pytest.raises(CaptureError, match="are not available on a capture via 'dispatch': use"):
        capture(square, torch.ones(4, 4), via="dispatch").assert_cacheable()


def test_watch_names_the_bypass() -> None:
    with watch() as seen:
        torch.compile(with_opaque)(torch.ones(4, 4))
    with pytest.raises(AssertionError, match=r"0/0: \S+opaque") as failed:
        seen.assert_cacheable()
    assert "cache_cases.py" in str(failed.value)
    seen.assert_cacheable(allow="opaque")


def test_watch_without_a_lookup_is_vacuous() -> None:
    with watch() as seen:
        torch.compile(square, backend="eager")(torch.ones(4, 4))
    with pytest.raises(AssertionError, match="no cache was used"):
        seen.assert_cacheable()
    with watch() as seen:
        pass
    with pytest.raises(AssertionError, match="no graph was compiled"):
        seen.assert_cacheable()


def test_watch_sees_that_caches_are_off() -> None:
    with watch() as seen, functorch_config.patch(enable_autograd_cache=False):
        torch.compile(square)(torch.ones(4, 4))
    with pytest.raises(AssertionError, match="enable_autograd_cache"):
        seen.assert_cacheable()
