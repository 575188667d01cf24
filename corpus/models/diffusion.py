"""UNets, diffusion transformers and autoencoders of diffusers, with small configurations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..case import Case, add, floats, ids, library

GROUP = "diffusers"


def model(name: str, inputs: Callable[[], dict[str, Any]], label: str = "", **config: Any) -> None:
    """A model of diffusers, by its class."""

    def make() -> Case:
        kind = getattr(library("diffusers"), name)
        return Case(kind(**config).train(), (), inputs())

    add(GROUP, f"diffusers_{label or name}", make, lambda: getattr(library("diffusers"), name))


def noisy(*shape: int, **more: Callable[[], Any]) -> Callable[[], dict[str, Any]]:
    """A sample and a timestep, and more inputs."""

    def inputs() -> dict[str, Any]:
        extra = {key: value() for key, value in more.items()}
        return {"sample": floats(*shape), "timestep": torch.tensor([3]), **extra}

    return inputs


def hidden(*shape: int, **more: Callable[[], Any]) -> Callable[[], dict[str, Any]]:
    """Hidden states and a timestep, and more inputs."""

    def inputs() -> dict[str, Any]:
        extra = {key: value() for key, value in more.items()}
        return {"hidden_states": floats(*shape), "timestep": torch.tensor([3]), **extra}

    return inputs


def image(*shape: int) -> Callable[[], dict[str, Any]]:
    return lambda: {"sample": floats(*shape)}


def text(length: int = 4, width: int = 8) -> Callable[[], Tensor]:
    return lambda: floats(1, length, width)


UNET: dict[str, Any] = {"norm_num_groups": 4, "layers_per_block": 1}

model(
    "UNet2DModel",
    noisy(1, 3, 8, 8),
    block_out_channels=(8, 16),
    down_block_types=("DownBlock2D", "ResnetDownsampleBlock2D"),
    up_block_types=("ResnetUpsampleBlock2D", "UpBlock2D"),
    add_attention=False,
    sample_size=8,
    **UNET,
)
model(
    "UNet2DConditionModel",
    noisy(1, 4, 8, 8, encoder_hidden_states=text()),
    block_out_channels=(8, 16),
    down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    cross_attention_dim=8,
    attention_head_dim=2,
    sample_size=8,
    **UNET,
)
model(
    "UNet1DModel",
    noisy(1, 4, 32),
    block_out_channels=(32, 64),
    in_channels=4,
    out_channels=4,
    extra_in_channels=0,
    layers_per_block=1,
    down_block_types=("DownBlock1D", "AttnDownBlock1D"),
    up_block_types=("AttnUpBlock1D", "UpBlock1D"),
)
model(
    "UNet3DConditionModel",
    noisy(1, 4, 2, 8, 8, encoder_hidden_states=text()),
    block_out_channels=(8, 16),
    down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"),
    up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"),
    cross_attention_dim=8,
    attention_head_dim=4,
    **UNET,
)
model(
    "UNetSpatioTemporalConditionModel",
    noisy(
        1,
        2,
        8,
        8,
        8,
        encoder_hidden_states=text(1),
        added_time_ids=lambda: torch.ones(1, 3),
    ),
    block_out_channels=(32, 64),
    down_block_types=("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
    up_block_types=("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"),
    cross_attention_dim=8,
    num_attention_heads=(2, 4),
    layers_per_block=1,
    addition_time_embed_dim=8,
    projection_class_embeddings_input_dim=24,
)
model(
    "UVit2DModel",
    lambda: {
        "input_ids": ids(1, 4, 4, high=16),
        "encoder_hidden_states": floats(1, 4, 8),
        "pooled_text_emb": floats(1, 8),
        "micro_conds": torch.ones(1, 5),
    },
    hidden_size=32,
    cond_embed_dim=8,
    micro_cond_encode_dim=2,
    micro_cond_embed_dim=10,
    encoder_hidden_size=8,
    vocab_size=18,
    codebook_size=16,
    in_channels=32,
    block_out_channels=32,
    num_res_blocks=1,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    block_num_heads=2,
)
model(
    "DiTTransformer2DModel",
    hidden(1, 4, 8, 8, class_labels=lambda: torch.tensor([2])),
    num_layers=2,
    sample_size=8,
    num_attention_heads=2,
    attention_head_dim=8,
    in_channels=4,
    out_channels=8,
    num_embeds_ada_norm=10,
    norm_num_groups=4,
)
model(
    "PixArtTransformer2DModel",
    hidden(1, 4, 8, 8, encoder_hidden_states=text(4, 12)),
    num_layers=1,
    sample_size=8,
    num_attention_heads=2,
    attention_head_dim=8,
    in_channels=4,
    out_channels=8,
    caption_channels=12,
    cross_attention_dim=16,
    use_additional_conditions=False,
)
model(
    "SD3Transformer2DModel",
    hidden(1, 4, 8, 8, encoder_hidden_states=text(), pooled_projections=lambda: floats(1, 16)),
    sample_size=8,
    patch_size=2,
    in_channels=4,
    num_layers=2,
    attention_head_dim=8,
    num_attention_heads=2,
    joint_attention_dim=8,
    caption_projection_dim=16,
    pooled_projection_dim=16,
    out_channels=4,
    pos_embed_max_size=8,
)
model(
    "FluxTransformer2DModel",
    hidden(
        1,
        16,
        4,
        encoder_hidden_states=text(),
        pooled_projections=lambda: floats(1, 8),
        img_ids=lambda: torch.zeros(16, 3),
        txt_ids=lambda: torch.zeros(4, 3),
    ),
    in_channels=4,
    num_layers=1,
    num_single_layers=1,
    attention_head_dim=8,
    num_attention_heads=2,
    joint_attention_dim=8,
    pooled_projection_dim=8,
    axes_dims_rope=(2, 2, 4),
)
model(
    "AuraFlowTransformer2DModel",
    hidden(1, 4, 8, 8, encoder_hidden_states=text()),
    sample_size=8,
    in_channels=4,
    num_mmdit_layers=1,
    num_single_dit_layers=1,
    attention_head_dim=8,
    num_attention_heads=2,
    joint_attention_dim=8,
    caption_projection_dim=16,
    out_channels=4,
    pos_embed_max_size=16,
)
model(
    "SanaTransformer2DModel",
    hidden(1, 4, 8, 8, encoder_hidden_states=text()),
    in_channels=4,
    out_channels=4,
    num_attention_heads=2,
    attention_head_dim=8,
    num_layers=1,
    num_cross_attention_heads=2,
    cross_attention_head_dim=8,
    cross_attention_dim=16,
    caption_channels=8,
    sample_size=8,
    patch_size=1,
)
model(
    "CogVideoXTransformer3DModel",
    hidden(1, 1, 4, 8, 8, encoder_hidden_states=text(4, 8)),
    num_attention_heads=2,
    attention_head_dim=16,
    in_channels=4,
    out_channels=4,
    time_embed_dim=4,
    text_embed_dim=8,
    num_layers=1,
    sample_width=8,
    sample_height=8,
    sample_frames=1,
    max_text_seq_length=4,
)
model(
    "LTXVideoTransformer3DModel",
    hidden(
        1,
        16,
        4,
        encoder_hidden_states=text(),
        encoder_attention_mask=lambda: torch.ones(1, 4, dtype=torch.bool),
        num_frames=lambda: 1,
        height=lambda: 4,
        width=lambda: 4,
    ),
    in_channels=4,
    out_channels=4,
    num_attention_heads=2,
    attention_head_dim=8,
    cross_attention_dim=16,
    num_layers=1,
    caption_channels=8,
)
model(
    "WanTransformer3DModel",
    hidden(1, 4, 2, 8, 8, encoder_hidden_states=text()),
    patch_size=(1, 2, 2),
    num_attention_heads=2,
    attention_head_dim=12,
    in_channels=4,
    out_channels=4,
    text_dim=8,
    freq_dim=16,
    ffn_dim=16,
    num_layers=1,
    cross_attn_norm=True,
)
model(
    "MochiTransformer3DModel",
    hidden(
        1,
        4,
        2,
        8,
        8,
        encoder_hidden_states=text(),
        encoder_attention_mask=lambda: torch.ones(1, 4, dtype=torch.bool),
    ),
    num_attention_heads=2,
    attention_head_dim=8,
    num_layers=2,
    pooled_projection_dim=16,
    in_channels=4,
    out_channels=None,
    text_embed_dim=8,
    time_embed_dim=4,
    max_sequence_length=4,
)
model(
    "PriorTransformer",
    lambda: {
        "hidden_states": floats(1, 8),
        "timestep": torch.tensor([2]),
        "proj_embedding": floats(1, 8),
        "encoder_hidden_states": floats(1, 5, 8),
    },
    num_attention_heads=2,
    attention_head_dim=4,
    num_layers=1,
    embedding_dim=8,
    num_embeddings=5,
    additional_embeddings=4,
)
model(
    "StableAudioDiTModel",
    hidden(1, 4, 8, encoder_hidden_states=text(4, 8), global_hidden_states=lambda: floats(1, 1, 8)),
    sample_size=8,
    in_channels=4,
    out_channels=4,
    num_layers=1,
    attention_head_dim=8,
    num_attention_heads=2,
    num_key_value_attention_heads=1,
    cross_attention_dim=8,
    cross_attention_input_dim=8,
    global_states_input_dim=8,
    time_proj_dim=8,
)
VAE: dict[str, Any] = {"block_out_channels": (8, 16), "norm_num_groups": 4, "layers_per_block": 1}
model(
    "AutoencoderKL",
    image(1, 3, 8, 8),
    down_block_types=("DownEncoderBlock2D",) * 2,
    up_block_types=("UpDecoderBlock2D",) * 2,
    **VAE,
)
model(
    "AutoencoderKL",
    lambda: {"sample": floats(1, 3, 8, 8), "sample_posterior": True},
    label="AutoencoderKL_sampling",
    down_block_types=("DownEncoderBlock2D",) * 2,
    up_block_types=("UpDecoderBlock2D",) * 2,
    mid_block_add_attention=False,
    **VAE,
)
model(
    "VQModel",
    image(1, 3, 8, 8),
    down_block_types=("DownEncoderBlock2D",) * 2,
    up_block_types=("UpDecoderBlock2D",) * 2,
    num_vq_embeddings=8,
    mid_block_add_attention=False,
    **VAE,
)
model(
    "AutoencoderTiny",
    image(1, 3, 8, 8),
    encoder_block_out_channels=(8, 8),
    decoder_block_out_channels=(8, 8),
    num_encoder_blocks=(1, 1),
    num_decoder_blocks=(1, 1),
)
model(
    "AutoencoderDC",
    image(1, 3, 16, 16),
    in_channels=3,
    latent_channels=4,
    attention_head_dim=2,
    encoder_block_types=("ResBlock", "EfficientViTBlock"),
    decoder_block_types=("ResBlock", "EfficientViTBlock"),
    encoder_block_out_channels=(8, 8),
    decoder_block_out_channels=(8, 8),
    encoder_qkv_multiscales=((), (5,)),
    decoder_qkv_multiscales=((), (5,)),
    encoder_layers_per_block=(1, 1),
    decoder_layers_per_block=(1, 1),
    downsample_block_type="conv",
    upsample_block_type="interpolate",
    decoder_norm_types="rms_norm",
    decoder_act_fns="silu",
)
model(
    "AutoencoderOobleck",
    image(1, 2, 32),
    encoder_hidden_size=8,
    downsampling_ratios=[2, 4],
    channel_multiples=[1, 2],
    decoder_channels=8,
    decoder_input_channels=4,
)
model(
    "AutoencoderKLTemporalDecoder",
    lambda: {"sample": floats(2, 3, 8, 8), "num_frames": 2},
    block_out_channels=(32, 32),
    down_block_types=("DownEncoderBlock2D",) * 2,
    layers_per_block=1,
)
model(
    "AutoencoderKLWan",
    image(1, 3, 5, 16, 16),
    base_dim=4,
    z_dim=4,
    dim_mult=[1, 1, 1, 1],
    num_res_blocks=1,
    temperal_downsample=[False, True, True],
    latents_mean=[0.0] * 4,
    latents_std=[1.0] * 4,
)
model(
    "ControlNetModel",
    noisy(1, 4, 8, 8, encoder_hidden_states=text(), controlnet_cond=lambda: floats(1, 3, 16, 16)),
    block_out_channels=(8, 16),
    down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
    cross_attention_dim=8,
    attention_head_dim=2,
    conditioning_embedding_out_channels=(4, 4),
    norm_num_groups=4,
    layers_per_block=1,
)
model(
    "T5FilmDecoder",
    lambda: {
        "encodings_and_masks": [(floats(1, 4, 16), torch.ones(1, 4))],
        "decoder_input_tokens": floats(1, 6, 8),
        "decoder_noise_time": torch.tensor([0.3]),
    },
    input_dims=8,
    targets_length=6,
    d_model=16,
    num_layers=1,
    num_heads=2,
    d_kv=8,
    d_ff=16,
)
