"""`restart`: a second start takes every graph from torch.compile's caches.

The targets call BLAS alone, for which inductor generates no C++ code to compile.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._functorch.config as functorch_config

from pytest_torchgraph import CacheLookup, CaptureError, Inductor, Restart, restart


@torch.compiler.allow_in_graph
def opaque(x: torch.Tensor) -> torch.Tensor:
    return x @ x


def square(x: torch.Tensor) -> torch.Tensor:
    return x @ x


def bypassed(x: torch.Tensor) -> torch.Tensor:
    return opaque(x)


def raises(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("of the target")


class Product(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ x


class WithLambda(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(4, 4))
        self.inner[0].hook = lambda x: x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


@pytest.fixture(scope="module")
def warm() -> Restart:
    return restart(square, (torch.ones(4, 4, requires_grad=True),))


@pytest.fixture(scope="module")
def refused() -> Restart:
    return restart(bypassed, (torch.ones(4, 4),))


def directories() -> set[str]:
    return {name for name in os.listdir(tempfile.gettempdir()) if name.startswith("torchgraph-")}


def test_second_start_hits_both_caches(warm: Restart) -> None:
    warm.assert_warm()
    assert {(one.graph, one.cache, one.state, one.reason) for one in warm.lookups} == {
        ("0/0", "aot", "hit", ""),
        ("0/0", "inductor", "hit", ""),
        ("0/0 backward", "inductor", "hit", ""),
    }
    assert warm.cold > 0
    assert warm.warm > 0


def test_bypass_is_a_miss_with_reason_and_line(refused: Restart) -> None:
    (miss,) = [one for one in refused.lookups if one.state != "hit"]
    assert isinstance(miss, CacheLookup)
    assert (miss.cache, miss.state) == ("aot", "bypass")
    assert miss.source is not None
    assert miss.source.code == "return opaque(x)"
    assert "0x" not in miss.reason
    assert "opaque" in miss.reason
    with pytest.raises(AssertionError, match="not warm: 1 of 2 lookups missed, expected at most 0"):
        refused.assert_warm()
    refused.assert_warm(max_misses=1)
    refused.assert_warm(allow="opaque")
    with pytest.raises(AssertionError, match="not warm"):
        refused.assert_warm(allow="autocast")


def test_reasons_are_the_same_in_two_runs(refused: Restart) -> None:
    again = restart(bypassed, (torch.ones(4, 4),))
    assert again.lookups == refused.lookups


def test_state_environment_and_directories_are_as_before() -> None:
    model, x = Product(), torch.ones(4, 4, requires_grad=True)
    attributes = set(vars(model))
    before, environment, settings = (
        directories(),
        dict(os.environ),
        functorch_config.get_config_copy(),
    )
    restart(model, (x,))
    assert set(vars(model)) == attributes  # torch.compile marks a module
    with pytest.raises(ValueError, match="of the target"):
        restart(raises, (x,))
    assert (x.grad, directories(), dict(os.environ)) == (None, before, environment)
    assert functorch_config.get_config_copy() == settings


def test_first_start_from_a_full_cache_is_vacuous(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def kept_directory() -> Iterator[None]:
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
        yield

    monkeypatch.setattr("pytest_torchgraph.api.warm_start.own_cache_directory", kept_directory)
    restart(square, (torch.ones(4, 4),)).assert_warm()
    with pytest.raises(AssertionError, match="the first start was warm already: 2 lookups hit in"):
        restart(square, (torch.ones(4, 4),)).assert_warm()


def test_dynamic_sizes_hit_with_fresh_gradients() -> None:
    x = torch.ones(4, 4, requires_grad=True)
    torch._dynamo.mark_dynamic(x, 0)
    result = restart(lambda x: x @ x.t(), (x,))
    result.assert_warm()
    assert x.grad is None


def test_nothing_compiled_is_vacuous() -> None:
    with pytest.raises(AssertionError, match="no graph was compiled"):
        restart(torch.compiler.disable(square), (torch.ones(4, 4),)).assert_warm()


def test_other_backend_is_vacuous() -> None:
    compiled = torch.compile(square, backend="eager")
    with pytest.raises(AssertionError, match="no cache was asked"):
        restart(compiled, (torch.ones(4, 4),)).assert_warm()


def test_caches_off_is_a_bypass() -> None:
    with (
        functorch_config.patch(enable_autograd_cache=False),
        pytest.raises(AssertionError, match="enable_autograd_cache"),
    ):
        restart(square, (torch.ones(4, 4),)).assert_warm()


def test_compiled_target_keeps_its_options() -> None:
    compiled = torch.compile(lambda x: x @ x, dynamic=True)
    restart(compiled, (torch.ones(4, 4),), (torch.ones(5, 5),)).assert_warm()


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        ((), {}, TypeError),
        ((torch.ones(2),), {}, TypeError),
        (((torch.ones(2),),), {"via": "aot"}, ValueError),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, options: Any, error: Any) -> None:
    with pytest.raises(error):
        restart(square, *arguments, **options)


def test_target_that_cannot_be_pickled_is_named() -> None:
    with pytest.raises(CaptureError, match=r"target\.inner\.0\.hook"):
        restart(WithLambda(), (torch.ones(2, 4),), process=True)


@pytest.mark.slow("two processes")
def test_second_process_hits_both_caches() -> None:
    result = restart(torch.mm, (torch.ones(4, 4), torch.ones(4, 4)), process=True)
    result.assert_warm()
    assert [one.state for one in result.lookups] == ["hit", "hit"]


@pytest.mark.slow("further processes")
def test_second_process_imports_test_modules_and_names_the_bypass(refused: Restart) -> None:
    result = restart(bypassed, (torch.ones(4, 4),), process=True, via=Inductor())
    assert result.lookups == refused.lookups
