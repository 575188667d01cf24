"""Behaviour of torch's private names on which a warm start depends."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch._inductor.codecache import PyCodeCache

from pytest_torchgraph import torch_private, watch
from pytest_torchgraph.torch_private.compile_cache import refused_nodes

CASTS_CACHED = not torch.__version__.startswith(("2.12.", "2.13."))


def graph_of(function: Callable[..., Any], *args: Any) -> tuple[torch.fx.GraphModule, list[Any]]:
    """Return Dynamo's graph with its fake inputs, as a backend receives them."""
    kept: list[tuple[torch.fx.GraphModule, list[Any]]] = []

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        values = [n.meta["example_value"] for n in gm.graph.nodes if n.op == "placeholder"]
        kept.append((gm, values))
        return gm

    torch.compile(function, backend=backend)(*args)
    return kept[0]


def square(x: torch.Tensor) -> torch.Tensor:
    return x @ x


def reduced(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x


def test_check_node_safe_raises_the_bypass_for_the_refused_node_alone() -> None:
    gm, _ = graph_of(square, torch.ones(2, 2))
    for node in gm.graph.nodes:
        torch_private.get("check_node_safe")(node)
    (call,) = [node for node in gm.graph.nodes if node.op == "call_function"]
    call.target = test_check_node_safe_raises_the_bypass_for_the_refused_node_alone
    with pytest.raises(torch_private.get("aot_cache_bypass"), match="Unsupported call_function"):
        torch_private.get("check_node_safe")(call)
    assert [refused.node for refused in refused_nodes(gm)] == [call]


@pytest.mark.skipif(CASTS_CACHED, reason="cached by this torch")
def test_both_nodes_of_autocast_are_refused() -> None:
    gm, _ = graph_of(reduced, torch.ones(2, 2))
    refused = [str(entry.node.target) for entry in refused_nodes(gm) if entry.node]
    assert [name for name in refused if "_enter_autocast" in name]


def test_key_is_equal_for_equal_graphs_and_needs_the_fake_mode_of_its_inputs() -> None:
    x = torch.ones(4, 4)
    torch._dynamo.mark_dynamic(x, 0)

    def gram(x: torch.Tensor) -> torch.Tensor:
        return x @ x.t()

    gm, inputs = graph_of(gram, x)
    sizes = [value for value in inputs if isinstance(value, torch.SymInt)]
    mode = torch_private.get("detect_fake_mode")(inputs)
    assert isinstance(mode, torch_private.get("fake_mode"))
    assert isinstance(mode.shape_env, torch_private.get("shape_env"))
    assert sizes or any(isinstance(size, torch.SymInt) for size in inputs[0].shape)
    # A size is a symbol. Without the inputs' mode torch raises, which would count as a bypass.
    assert torch_private.why_uncacheable(gm, inputs) == []


def test_settings_make_the_key_a_bypass() -> None:
    gm, inputs = graph_of(square, torch.ones(2, 2))
    assert torch_private.why_uncacheable(gm, inputs) == []
    with inductor_config.patch(freezing=True):
        (refused,) = torch_private.why_uncacheable(gm, inputs)
    assert (refused.node, "freezing" in refused.reason) == (None, True)


def test_each_setting_that_disables_the_cache_is_named() -> None:
    with inductor_config.patch(force_disable_caches=True):
        assert "force_disable_caches" in torch_private.caches_switched_off()
    with functorch_config.patch(enable_autograd_cache=False):
        assert "enable_autograd_cache" in torch_private.caches_switched_off()
    assert torch_private.caches_switched_off() == ""


@pytest.mark.skipif("should_save_cache" in torch_private.probe(), reason="this torch does not tell")
def test_unsaved_code_is_reported_with_its_compile_id() -> None:
    unsaved: list[tuple[str, bool]] = []
    with torch_private.on_unsaved(
        lambda compile_id, backward: unsaved.append((str(compile_id), backward))
    ):
        torch._dynamo.reset()
        torch.compile(lambda x: x + 1)(torch.ones(2, requires_grad=True)).sum().backward()
        torch.compile(square)(torch.ones(2, 2, requires_grad=True)).sum().backward()
    assert unsaved == [("0/0", True)]


def test_without_memory_caches_inductor_reads_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    assert torch_private.get("cache_dir")() != str(tmp_path)  # the default applies, not the setting
    torch_private.clear_memory_caches()
    torch._dynamo.reset()
    torch.compile(square)(torch.ones(3, 3))
    assert any(tmp_path.iterdir())
    assert PyCodeCache.modules
    torch_private.clear_memory_caches()
    assert not PyCodeCache.modules
    torch._dynamo.reset()
    with watch() as seen:
        torch.compile(square)(torch.ones(3, 3))
    assert {event.state for one in seen.watched.compiled for event in one.lookups} == {"hit"}


def test_memory_format_is_pickled_by_the_first_module_with_torch() -> None:
    """Explains why keys differ between a process of pytest and a script."""

    def pickled() -> bytes:
        stream = io.BytesIO()
        pickle.Pickler(stream).dump(torch.contiguous_format)
        return stream.getvalue()

    assert b"aaa_first" not in pickled()
    first: Any = ModuleType("aaa_first")
    first.torch = torch
    # pickle keeps this dict, so the module is put first in the dict itself.
    modules = dict(sys.modules)
    sys.modules.clear()
    sys.modules.update({"aaa_first": first, **modules})
    plain = pickled()
    with torch_private.stable_cache_keys():
        stable = pickled()
    del sys.modules["aaa_first"]
    assert b"aaa_first" in plain
    assert b"aaa_first" not in stable
    assert pickle.loads(stable) is torch.contiguous_format
    assert b"aaa_first" not in pickled()


def test_assigned_settings_differ_from_the_default() -> None:
    before = torch_private.assigned_settings()
    with inductor_config.patch({"cpp.threads": 3}), functorch_config.patch(debug_assert=False):
        settings = torch_private.assigned_settings()
    assert settings["torch._inductor.config"]["cpp.threads"] == 3
    assert torch_private.assigned_settings() == before
    # The patches put back what is assigned inside them.
    with inductor_config.patch({"cpp.threads": 2}), functorch_config.patch(debug_assert=True):
        torch_private.assign_settings(settings)
        assert inductor_config.cpp.threads == 3
    assert torch_private.assigned_settings() == before
