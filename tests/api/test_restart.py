"""`restart`: a second start takes every graph from torch.compile's caches.

The targets call only BLAS, so inductor generates no C++ code to compile.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo.config as dynamo_config
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.nn.attention import SDPBackend, sdpa_kernel

from pytest_torchgraph import CacheLookup, CaptureError, Inductor, Restart, restart


@torch.compiler.allow_in_graph
def opaque(x: torch.Tensor) -> torch.Tensor:
    return x @ x


def square(x: torch.Tensor) -> torch.Tensor:
    return x @ x


def bypassed(x: torch.Tensor) -> torch.Tensor:
    return opaque(x)


def gram(x: torch.Tensor) -> torch.Tensor:
    return x @ x.t()


SECOND = os.environ.setdefault("FIRST_PID", str(os.getpid())) != str(os.getpid())


def differs(x: torch.Tensor) -> torch.Tensor:
    return x @ x @ x if SECOND else x @ x


ran: list[int] = []


@torch.compiler.disable
def noted(x: torch.Tensor) -> torch.Tensor:
    ran.append(os.getpid())
    return x


@torch.compiler.disable
def raises(x: torch.Tensor) -> torch.Tensor:
    os.environ["_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"] = "as inductor does"
    raise ValueError("of the target")


class Product(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ x


def attend(x: torch.Tensor) -> torch.Tensor:
    x = x[None, None]
    return torch.nn.functional.scaled_dot_product_attention(x, x, x)


class OwnPass(CustomGraphPass):
    def __call__(self, graph: torch.fx.Graph) -> None:
        pass

    def uuid(self) -> str:
        return "1"


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


@pytest.mark.slow("C++ code")
def test_variable_set_by_inductor_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", "7"):
        if value:
            monkeypatch.setenv("_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR", value)
        before = dict(os.environ)
        restart(torch.sin, (torch.ones(4, 4),)).assert_warm()
        assert dict(os.environ) == before


def test_first_start_from_a_full_cache_is_vacuous(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def kept_directory() -> Iterator[None]:
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
        yield

    monkeypatch.setattr("pytest_torchgraph.api.warm_start.own_cache_directory", kept_directory)
    restart(square, (torch.ones(4, 4),)).assert_warm()
    with pytest.raises(AssertionError, match="the first start was already warm: 2 lookups hit in"):
        restart(square, (torch.ones(4, 4),)).assert_warm()


def test_dynamic_sizes_hit_with_fresh_gradients() -> None:
    x = torch.ones(4, 4, requires_grad=True)
    torch._dynamo.mark_dynamic(x, 0)
    result = restart(gram, (x,))
    result.assert_warm()
    assert x.grad is None


def test_nothing_compiled_is_vacuous() -> None:
    with pytest.raises(AssertionError, match="no graph was compiled"):
        restart(torch.compiler.disable(square), (torch.ones(4, 4),)).assert_warm()


def test_other_backend_is_vacuous() -> None:
    compiled = torch.compile(square, backend="eager")
    with pytest.raises(AssertionError, match="used no cache"):
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


@pytest.mark.slow("a process")
def test_killed_process_leaves_only_a_temporary_directory(tmp_path: Path) -> None:
    for name in ("home", "work", "temporary"):
        (tmp_path / name).mkdir()
    places = {"HOME": "home", "TMPDIR": "temporary", "XDG_CACHE_HOME": "home/cache"}
    ended = subprocess.run(
        [sys.executable, "-c", KILLED],
        env={**os.environ, **{name: str(tmp_path / at) for name, at in places.items()}},
        cwd=tmp_path / "work",
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    (left,) = tmp_path.glob("*/*")
    assert left.parent.name == "temporary"
    assert left.name.startswith("torchgraph-restart-")


KILLED = """
import os, signal, torch
from pytest_torchgraph import restart

@torch.compiler.disable
def kill():
    os.kill(os.getpid(), signal.SIGKILL)

def step(x):
    y = x @ x
    kill()
    return y

restart(step, (torch.ones(4, 4),))
"""


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
    with pytest.raises(CaptureError, match=r"^target cannot .*WithLambda.*<lambda>"):
        restart(WithLambda(), (torch.ones(2, 4),), process=True)


def test_setting_that_cannot_be_pickled_is_named() -> None:
    with (
        inductor_config.patch(joint_custom_pre_pass=lambda graph: None),
        pytest.raises(CaptureError, match=r"^torch\._inductor\.config\.joint_custom_pre_pass "),
    ):
        restart(square, (torch.ones(4, 4),), process=True)


@pytest.mark.slow("further processes")
def test_first_half_runs_in_this_process() -> None:
    ran.clear()
    restart(noted, (torch.ones(4, 4),), process=True)
    assert ran == [os.getpid()]


@pytest.mark.slow("further processes")
def test_second_process_has_modes_and_settings_of_this_process() -> None:
    x = torch.ones(4, 4, requires_grad=True)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        with (
            torch.no_grad(),
            torch.autocast("cpu", torch.bfloat16),
            sdpa_kernel(SDPBackend.MATH),
            inductor_config.patch(post_grad_custom_post_pass=OwnPass()),
            dynamo_config.patch(assume_static_by_default=False),
        ):
            result = restart(attend, (x,), process=True)
    finally:
        torch.set_num_threads(threads)
    result.assert_warm()
    # Without a mode, the second half would have a backward or another key.
    assert {one.graph for one in result.lookups} == {"0/0"}


@pytest.mark.slow("further processes")
def test_miss_names_the_parts_of_the_key_that_differ() -> None:
    result = restart(differs, (torch.ones(4, 4),), process=True)
    reasons = {lookup.cache: lookup.reason for lookup in result.lookups}
    # Functions in a key have an address in their text, and the same hash.
    assert reasons == {"aot": "the key differs", "inductor": "the key differs in gm"}


@pytest.mark.slow("further processes")
def test_second_process_imports_test_modules_and_names_the_bypass(refused: Restart) -> None:
    result = restart(bypassed, (torch.ones(4, 4),), process=True, via=Inductor())
    assert result.lookups == refused.lookups
