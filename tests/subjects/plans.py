"""Tiny models of transformers, split over ranks by their own tensor-parallel plans.

Includes the types whose own configuration has a plan. A model of several parts, such as one for
images and text, has the plans of its parts, and their types are included.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import torch
from ranks.counts import Collectives, by_torch, by_us
from ranks.parallel_models import Build
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from pytest_torchgraph import capture_ranks
from pytest_torchgraph.ranks.fake_group import fake_rank

SIZES = (2, 4)
"""The number of ranks over which each model is split."""
MOST_PARAMETERS = 8_000_000
"""Larger models are skipped: they have no small configuration here."""

SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "d_model": 32,
    "intermediate_size": 64,
    "ffn_hidden_size": 64,
    "num_hidden_layers": 2,
    "n_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "n_heads": 4,
    "head_dim": 8,
    "vocab_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "use_cache": False,
    # Of experts:
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_k": 2,
    "moe_topk": 2,
    "moe_intermediate_size": 32,
    "expert_ffn_hidden_size": 32,
    "shared_expert_intermediate_size": 32,
    "n_shared_experts": 1,
    "moe_num_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    # Of attention with latent keys and values:
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "qk_head_dim": 16,
    # Of embeddings of layers:
    "vocab_size_per_layer_input": 64,
    "hidden_size_per_layer_input": 8,
}
"""Values for fields of a configuration, if it has them."""


def _rope(*sections: int, **more: Any) -> dict[str, Any]:
    """Positions of three kinds."""
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": list(sections)}
    return {"rope_parameters": {**rope, **more}}


BESIDES: dict[str, dict[str, Any]] = {
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}
    },
    "cosmos3_edge_text": _rope(2, 1, 1),
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense", "sparse"]},
    "diffusion_gemma_text": {"top_k_experts": 2},
    "embedding_gemma2_text": {"global_head_dim": 8, "num_global_key_value_heads": 4},
    "ernie4_5_vl_moe_text": {"moe_intermediate_size": [32, 32], **_rope(1, 1, 2)},
    "gemma3n_text": {
        "num_kv_shared_layers": 0,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "glm4v_moe_text": {"head_dim": 16, **_rope(2, 1, 1, partial_rotary_factor=0.5)},
    "glm4v_text": _rope(2, 1, 1),
    "glm5_next_text": {"qk_rope_head_dim": 0},
    "glm_image_text": _rope(2, 1, 1),
    "glm_ocr_text": _rope(2, 1, 1),
    "granitemoehybrid": {
        "mamba_n_heads": 8,
        "mamba_d_head": 8,
        "layer_types": ["mamba", "attention"],
    },
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "longcat_flash": {"num_layers": 1, "zero_expert_num": 2},
    "mimo_v2_flash": {"head_dim": 24},
    "neomme": {"head_dim": 16},
    "paddleocr_vl_text": _rope(2, 1, 1),
    "qwen2_5_omni_text": _rope(2, 1, 1),
    "qwen2_5_vl_text": _rope(2, 1, 1),
    "qwen2_vl_text": _rope(2, 1, 1),
    "qwen3_omni_moe_talker_text": {"shared_expert_intermediate_size": 32},
    "step3p5": {"sliding_window": 4},
    "t5gemma2_decoder": {"dropout_rate": 0.0},
    "t5gemma2_text": {"dropout_rate": 0.0},
}
"""Additional values for some types."""


def planned() -> list[str]:
    """List the types of models whose configuration has a plan."""
    from transformers import CONFIG_MAPPING

    return [
        name for name in CONFIG_MAPPING if getattr(CONFIG_MAPPING[name], "base_model_tp_plan", None)
    ]


class NotRun(Exception):
    """Raised if a model does not run on one rank, so that nothing follows for several ranks."""


def _configuration(name: str) -> Any:
    from transformers import CONFIG_MAPPING

    kind: Any = CONFIG_MAPPING[name]
    fields = getattr(kind, "__dataclass_fields__", None)
    known = fields or inspect.signature(kind.__init__).parameters
    small = {key: value for key, value in SMALL.items() if key in known}
    return kind(**{**small, **BESIDES.get(name, {})})


def _class_for(configuration: Any) -> Any:
    """Return the class of the model, if possible one with a loss."""
    from transformers import PreTrainedModel
    from transformers.models.auto import modeling_auto as auto

    kind = type(configuration)
    for known in (
        auto.MODEL_FOR_CAUSAL_LM_MAPPING,
        auto.MODEL_FOR_MASKED_LM_MAPPING,
        auto.MODEL_MAPPING,
    ):
        if kind in known:
            return known[kind]
    module = importlib.import_module(kind.__module__.replace("configuration_", "modeling_"))
    found = [
        each
        for each in vars(module).values()
        if inspect.isclass(each)
        and issubclass(each, PreTrainedModel)
        and each.__module__ == module.__name__
        and each.config_class is kind
        and "PreTrained" not in each.__name__
    ]
    if not found:
        raise NotRun("no model is of this configuration alone")
    return min(found, key=lambda each: "CausalLM" not in each.__name__)


def loss(output: Any) -> Tensor:
    """Return the model's loss, or else the sum of its outputs."""
    own = getattr(output, "loss", None)
    return output[0].float().sum() if own is None else own


def build_of(name: str) -> Build:
    """Return the build of each rank, as in `from_pretrained(..., distributed_config=...)`.

    That function needs another package to place the weights that it loads. It applies the plan in
    the same way, to a mesh that it creates itself.

    Raises:
        NotRun: if the unsplit model does not run.
    """
    from transformers import initialization
    from transformers.distributed import DistributedConfig
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    try:
        kind = _class_for(_configuration(name))
        with torch.device("meta"):
            size = sum(parameter.numel() for parameter in kind(_configuration(name)).parameters())
        if size > MOST_PARAMETERS:
            raise NotRun(f"its configuration is not a small one: {size:,} parameters")
        tokens = torch.arange(16).reshape(2, 8) % 50 + 3
        inputs = {"input_ids": tokens}
        if "labels" in inspect.signature(kind.forward).parameters:
            inputs["labels"] = tokens
        loss(kind(_configuration(name)).eval()(**inputs)).backward()
    except NotRun:
        raise
    except Exception as error:
        raise NotRun(_said(error)) from error

    def build(mesh: DeviceMesh) -> tuple[Any, ...]:
        torch.manual_seed(0)
        with initialization.no_tie_weights():  # a plan names both of the tied parameters
            model = kind(_configuration(name)).eval()
        plan, *_ = model._resolve_parallel_plans(DistributedConfig(tp_size=mesh.size()))
        apply_tensor_parallelism(model, mesh, plan)
        model.tie_weights()
        return model, (), inputs

    return build


def results(name: str, via: str = "dispatch") -> Iterator[tuple[int, str, str]]:
    """For each size, yield the result of a capture of the last rank, and its errors.

    Raises:
        NotRun: if the unsplit model does not run.
    """
    build = build_of(name)
    for size in SIZES:
        yield (size, *_result(build, size, via))


def _result(build: Build, size: int, via: str) -> tuple[str, str]:
    mesh = {"tp": size}
    try:
        _run(build, size - 1, mesh)
    except Exception as error:
        return "does not run", _said(error)
    ranks = capture_ranks(build, ranks=(0, size - 1), via=via, loss_fn=loss, **mesh)
    found = by_us(ranks[-1])
    reasons = []
    try:
        counts = by_torch(build, size - 1, mesh, loss)
    except Exception as error:
        counts = by_torch(build, size - 1, mesh, loss, Collectives)
        reasons.append(f"counted by a dispatch mode, for CommDebugMode raises {_said(error)}")
    if found != counts:
        return "WRONG", f"counted were {_shown(*counts)}, and by us {_shown(*found)}"
    if {collective.group for collective in ranks[-1].collectives} - {"tp"}:
        return "WRONG", "a collective has another group"
    try:
        ranks.assert_same_collectives()
    except AssertionError as error:
        reasons.append(f"ranks differ: {_said(error)}")
    return _shown(*found), "; ".join(reasons)


def _run(build: Build, rank: int, mesh: dict[str, int]) -> None:
    """Run one rank without recording it."""
    with fake_rank(rank, mesh, "cpu") as device_mesh:
        target, args, kwargs = build(device_mesh)
        loss(target(*args, **kwargs)).backward()


def _shown(forward: Any, backward: Any) -> str:
    kinds = sorted({*forward, *backward})
    return ", ".join(f"{forward[kind]} + {backward[kind]} {kind}" for kind in kinds) or "none"


def _said(error: Exception) -> str:
    said = " ".join(str(error).split()).replace("|", "/")
    said = re.sub(r" from '/[^']+'", "", said)  # a path of this machine
    return f"{type(error).__name__}: {said}".removesuffix(": ")[:200]
