"""Models of transformers for images, videos, and images with text."""

from __future__ import annotations

from typing import Any

import torch

from ..case import floats, ids
from .text import LLAMA, TINY, Inputs, hf

VIT: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "image_size": 16, "patch_size": 4,
}  # fmt: skip


def pixels(size: int = 16, label: bool = True, count: int = 2, **more: Any) -> Inputs:
    """Images with a class each."""

    def inputs() -> dict[str, Any]:
        found: dict[str, Any] = {"pixel_values": floats(count, 3, size, size)}
        if label:
            found["labels"] = torch.arange(count) % 2
        return {**found, **{key: value() for key, value in more.items()}}

    return inputs


def boxes(count: int = 1) -> list[dict[str, torch.Tensor]]:
    box = torch.tensor([[0.5, 0.5, 0.2, 0.3], [0.3, 0.4, 0.2, 0.2]])
    return [{"class_labels": torch.tensor([0, 1]), "boxes": box} for _ in range(count)]


# fmt: off
hf("DeiTForImageClassificationWithTeacher", pixels(label=False), **VIT)
hf("BeitForImageClassification", pixels(), **{**VIT, "drop_path_rate": 0.3,
    "use_relative_position_bias": True})
hf("BeitForMaskedImageModeling", pixels(label=False,
    bool_masked_pos=lambda: torch.arange(16).repeat(2, 1) % 3 == 0), **{**VIT,
    "use_mask_token": True, "vocab_size": 20})
hf("Data2VecVisionForImageClassification", pixels(), **VIT)
hf("ViTMAEForPreTraining", pixels(label=False), **{**VIT, "decoder_hidden_size": 16,
    "decoder_num_hidden_layers": 1, "decoder_num_attention_heads": 2,
    "decoder_intermediate_size": 32})
hf("ViTMSNForImageClassification", pixels(), **VIT)
hf("Dinov2ForImageClassification", pixels(), **{**VIT, "drop_path_rate": 0.3})
hf("Dinov2WithRegistersForImageClassification", pixels(), **VIT)
hf("IJepaForImageClassification", pixels(), **VIT)
hf("YolosForObjectDetection", pixels(label=False, count=1), **{**VIT, "image_size": [16, 16],
    "num_detection_tokens": 3})
SWIN: dict[str, Any] = {"image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [2, 2],
    "num_heads": [2, 2], "window_size": 2}
hf("SwinForImageClassification", pixels(), **{**SWIN, "drop_path_rate": 0.3})
hf("Swinv2ForImageClassification", pixels(), **SWIN)
hf("SwinForMaskedImageModeling", pixels(label=False,
    bool_masked_pos=lambda: torch.arange(64).repeat(2, 1) % 3 == 0), **{**SWIN,
    "encoder_stride": 4})
hf("ConvNextForImageClassification", pixels(32), hidden_sizes=[8, 16], depths=[1, 1], num_stages=2,
    drop_path_rate=0.3)
hf("ConvNextV2ForImageClassification", pixels(32), hidden_sizes=[8, 16], depths=[1, 1],
    num_stages=2)
hf("ResNetForImageClassification", pixels(32), embedding_size=8, hidden_sizes=[8, 16], depths=[1,
    1])
hf("RegNetForImageClassification", pixels(32), embedding_size=8, hidden_sizes=[8, 16], depths=[1,
    1], groups_width=4)
hf("BitForImageClassification", pixels(32), embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1],
    num_groups=4)
hf("MobileNetV1ForImageClassification", pixels(64), depth_multiplier=0.25)
hf("MobileNetV2ForImageClassification", pixels(32), depth_multiplier=0.25)
hf("MobileViTForImageClassification", pixels(32), hidden_sizes=[8, 8, 8], neck_hidden_sizes=[4, 4,
    8, 8, 8, 8, 8], num_attention_heads=2, image_size=32)
hf("EfficientNetForImageClassification", pixels(32), image_size=32, width_coefficient=0.25,
    depth_coefficient=0.25, hidden_dim=320)
hf("PoolFormerForImageClassification", pixels(32), hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1],
    drop_path_rate=0.3)
hf("SegformerForSemanticSegmentation", pixels(32, label=False, labels=lambda: torch.randint(0, 2,
    (2, 32, 32))), hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], num_attention_heads=[1, 1, 2,
    2], decoder_hidden_size=8)
hf("PvtForImageClassification", pixels(32), image_size=32, hidden_sizes=[8, 8, 16, 16], depths=[1,
    1, 1, 1], num_attention_heads=[1, 1, 2, 2])
hf("PvtV2ForImageClassification", pixels(32), image_size=32, hidden_sizes=[8, 8, 16, 16], depths=[1,
    1, 1, 1], num_attention_heads=[1, 1, 2, 2])
hf("CvtForImageClassification", pixels(32), embed_dim=[8, 8, 16], depth=[1, 2, 3], num_heads=[1, 2,
    2])
hf("LevitForImageClassification", pixels(64), image_size=64, hidden_sizes=[16, 16, 16],
    num_attention_heads=[2, 2, 2], depths=[1, 1, 1], key_dim=[4, 4, 4])
hf("FocalNetForImageClassification", pixels(), image_size=16, patch_size=2, embed_dim=8, depths=[1,
    1], focal_levels=[1, 1], focal_windows=[3, 3])
hf("SwiftFormerForImageClassification", pixels(64), depths=[1, 1, 1, 1], embed_dims=[8, 8, 16, 16],
    image_size=64)
hf("HieraForImageClassification", pixels(64), image_size=[64, 64], embed_dim=8, depths=[1, 1, 1, 1],
    num_heads=[1, 2, 2, 2], hidden_size=64)
hf("GLPNForDepthEstimation", pixels(32, label=False, labels=lambda: torch.rand(2, 32, 32) + 0.1),
    hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], num_attention_heads=[1, 1, 2, 2],
    decoder_hidden_size=8)
hf("DPTForDepthEstimation", pixels(32, label=False), **{**VIT, "image_size": 32,
    "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [4, 4, 8, 8],
    "fusion_hidden_size": 8, "is_hybrid": False, "initializer_range": 0.5})
hf("VideoMAEForVideoClassification", lambda: {"pixel_values": floats(1, 4, 3, 16, 16),
    "labels": torch.tensor([1])}, **{**VIT, "num_frames": 4})
hf("TimesformerForVideoClassification", lambda: {"pixel_values": floats(1, 2, 3, 16, 16),
    "labels": torch.tensor([1])}, **{**VIT, "num_frames": 2})
hf("VivitForVideoClassification", lambda: {"pixel_values": floats(1, 4, 3, 16, 16),
    "labels": torch.tensor([1])}, **{**VIT, "num_frames": 4, "tubelet_size": [2, 4, 4]})
hf("Swin2SRForImageSuperResolution", pixels(8, label=False, count=1), image_size=8, patch_size=1,
    embed_dim=8, depths=[2], num_heads=[2], window_size=4, upscale=2)
hf("PerceiverForImageClassificationLearned", lambda: {"inputs": floats(1, 3, 8, 8),
    "labels": torch.tensor([1])}, num_latents=4, d_latents=16, d_model=16, num_blocks=1,
    num_self_attends_per_block=1, num_self_attention_heads=2, num_cross_attention_heads=1,
    image_size=8)
hf("PerceiverForMaskedLM", lambda: {"inputs": ids(1, 8), "labels": ids(1, 8)}, num_latents=4,
    d_latents=16, d_model=16, num_blocks=1, num_self_attends_per_block=1,
    num_self_attention_heads=2, num_cross_attention_heads=1, vocab_size=99,
    max_position_embeddings=8)
hf("SamModel", pixels(32, label=False, count=1, input_points=lambda: torch.tensor([[[[4.0,
    5.0]]]])), vision_config={"hidden_size": 16, "output_channels": 8, "num_hidden_layers": 1,
    "num_attention_heads": 2, "image_size": 32, "patch_size": 8, "window_size": 2,
    "global_attn_indexes": [0], "mlp_dim": 32, "num_pos_feats": 4},
    prompt_encoder_config={"hidden_size": 8, "image_size": 32, "patch_size": 8,
    "mask_input_channels": 4, "image_embedding_size": 4}, mask_decoder_config={"hidden_size": 8,
    "mlp_dim": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "iou_head_hidden_dim": 8,
    "iou_head_depth": 2})
RESNET: dict[str, Any] = {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 8, 16,
    16], "depths": [1, 1, 1, 1], "out_features": ["stage2", "stage3", "stage4"]}
DETR: dict[str, Any] = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32, "num_queries": 4, "num_labels": 3, "use_timm_backbone": False,
    "use_pretrained_backbone": False, "backbone": None}
hf("DetrForObjectDetection", pixels(64, label=False, count=1, labels=boxes), **{**DETR,
    "backbone_config": {**RESNET, "out_features": ["stage4"]}, "encoder_layerdrop": 0.3,
    "decoder_layerdrop": 0.0, "auxiliary_loss": False})
hf("ConditionalDetrForObjectDetection", pixels(64, label=False, count=1, labels=boxes), **{**DETR,
    "backbone_config": {**RESNET, "out_features": ["stage4"]}})
hf("DeformableDetrForObjectDetection", pixels(64, label=False, count=1, labels=boxes),
    **{**DETR, "d_model": 32, "backbone_config": RESNET, "num_feature_levels": 3,
    "encoder_n_points": 2, "decoder_n_points": 2, "disable_custom_kernels": True})
hf("RTDetrForObjectDetection", pixels(64, label=False, count=1, labels=boxes),
    backbone_config=lambda: {"model_type": "rt_detr_resnet", "embedding_size": 8,
    "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "out_features": ["stage2", "stage3",
    "stage4"], "layer_type": "basic"}, encoder_hidden_dim=16, encoder_in_channels=[8, 16, 16],
    encoder_ffn_dim=32, encoder_attention_heads=2, d_model=16, decoder_in_channels=[16, 16, 16],
    decoder_ffn_dim=32, decoder_layers=1, decoder_attention_heads=2, num_queries=4, num_denoising=2,
    num_labels=3, decoder_n_points=2)
hf("MaskFormerForInstanceSegmentation", pixels(32, label=False, count=1,
    mask_labels=lambda: [torch.rand(2, 32, 32).round()], class_labels=lambda: [torch.tensor([0,
    1])]), backbone_config=lambda: {"model_type": "swin", **SWIN, "image_size": 32, "depths": [1, 1,
    1, 1], "num_heads": [1, 1, 1, 1], "out_features": ["stage1", "stage2", "stage3", "stage4"]},
    decoder_config=lambda: {"model_type": "detr", "d_model": 32, "decoder_layers": 1,
    "decoder_attention_heads": 2, "decoder_ffn_dim": 32, "num_queries": 4}, fpn_feature_size=32,
    mask_feature_size=32, num_labels=3)
hf("Mask2FormerForUniversalSegmentation", pixels(32, label=False, count=1,
    mask_labels=lambda: [torch.rand(2, 32, 32).round()], class_labels=lambda: [torch.tensor([0,
    1])]), backbone_config=lambda: {"model_type": "swin", **SWIN, "image_size": 32, "depths": [1, 1,
    1, 1], "num_heads": [1, 1, 1, 1], "out_features": ["stage1", "stage2", "stage3", "stage4"]},
    hidden_dim=32, mask_feature_size=32, feature_size=32, encoder_layers=1, decoder_layers=2,
    num_attention_heads=2, dim_feedforward=32, encoder_feedforward_dim=32, num_queries=4,
    train_num_points=8, num_labels=3)
hf("SuperPointForKeypointDetection", pixels(32, label=False, count=1), encoder_hidden_sizes=[4, 4,
    8, 8], decoder_hidden_size=8, keypoint_decoder_dim=65, descriptor_decoder_dim=8)

# -- with text -------------------------------------------------------------------------------------

SEE = {**VIT, "projection_dim": 8}
READ = {**TINY, "projection_dim": 8}


def both(size: int = 16, length: int = 6, **more: Any) -> Inputs:
    """Images and a text for each."""

    def inputs() -> dict[str, Any]:
        found = {"pixel_values": floats(2, 3, size, size), "input_ids": ids(2, length)}
        return {**found, **{key: value() for key, value in more.items()}}

    return inputs


hf("SiglipModel", both(), vision_config=VIT, text_config=TINY)
hf("AltCLIPModel", both(return_loss=lambda: True), vision_config=SEE, text_config={**READ,
    "project_dim": 8}, projection_dim=8)
hf("ChineseCLIPModel", both(return_loss=lambda: True), vision_config=SEE, text_config=READ,
    projection_dim=8)
hf("CLIPSegForImageSegmentation", both(labels=lambda: torch.rand(2, 16, 16).round()),
    vision_config={**SEE, "num_hidden_layers": 3}, text_config=READ, projection_dim=8,
    extract_layers=[0, 1], reduce_dim=8, decoder_num_attention_heads=2,
    decoder_intermediate_size=16)
hf("GroupViTModel", both(return_loss=lambda: True), vision_config={**VIT, "depths": [1, 1],
    "num_group_tokens": [4, 0], "num_output_groups": [4, 4], "hidden_size": 16}, text_config=TINY,
    projection_dim=8, projection_intermediate_dim=16)
hf("OwlViTModel", lambda: {"pixel_values": floats(1, 3, 16, 16), "input_ids": ids(2, 6),
    "return_loss": False}, vision_config=VIT, text_config=TINY, projection_dim=8)
hf("XCLIPModel", lambda: {"pixel_values": floats(1, 2, 3, 16, 16), "input_ids": ids(2, 6)},
    vision_config={**VIT, "num_frames": 2, "mit_hidden_size": 16, "mit_intermediate_size": 32,
    "mit_num_attention_heads": 2, "mit_num_hidden_layers": 1, "drop_path_rate": 0.3},
    text_config=TINY, projection_dim=16, prompt_layers=1, prompt_num_attention_heads=2)
hf("BlipForConditionalGeneration", lambda: {"pixel_values": floats(2, 3, 16, 16),
    "input_ids": (t := ids(2, 6)), "labels": t}, vision_config=VIT, text_config={**TINY,
    "encoder_hidden_size": 16}, projection_dim=8)
hf("ViltForQuestionAnswering", both(labels=lambda: torch.rand(2, 3)), **{**VIT, **TINY,
    "num_labels": 3, "max_image_length": 16})
hf("VisualBertForPreTraining", lambda: {"input_ids": ids(2, 6), "attention_mask": torch.ones(2, 6),
    "visual_attention_mask": torch.ones(2, 3), "visual_embeds": floats(2, 3, 8),
    "labels": ids(2, 9)}, **{**TINY, "visual_embedding_dim": 8})
hf("LxmertForPreTraining", lambda: {"input_ids": ids(2, 6), "visual_feats": floats(2, 3, 8),
    "visual_pos": torch.rand(2, 3, 4), "labels": ids(2, 6)}, **{**TINY, "l_layers": 1,
    "x_layers": 1, "r_layers": 1, "visual_feat_dim": 8, "task_obj_predict": False, "task_qa": False,
    "num_qa_labels": 3})
hf("FlavaModel", both(), image_config=VIT, text_config=TINY, multimodal_config={"hidden_size": 16,
    "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}, hidden_size=16,
    projection_dim=8)
hf("BridgeTowerForMaskedLM", lambda: {"pixel_values": floats(1, 3, 16, 16),
    "pixel_mask": torch.ones(1, 16, 16, dtype=torch.long), "input_ids": (t := ids(1, 6)),
    "labels": t}, vision_config={"hidden_size": 64, "num_hidden_layers": 2, "image_size": 16,
    "patch_size": 4}, text_config={**TINY, "hidden_size": 64}, hidden_size=64,
    num_hidden_layers=1, num_attention_heads=2, vocab_size=99)
hf("GitForCausalLM", lambda: {"pixel_values": floats(2, 3, 16, 16), "input_ids": (t := ids(2, 6)),
    "labels": t}, **{**TINY, "vision_config": VIT, "use_cache": False})
hf("LlavaForConditionalGeneration", lambda: {"pixel_values": floats(1, 3, 16, 16),
    "input_ids": (t := torch.tensor([[1] + [98] * 16 + [5, 6, 7]])), "labels": t},
    vision_config=lambda: {"model_type": "clip_vision_model", **VIT},
    text_config=lambda: {"model_type": "llama", **LLAMA}, image_token_id=98,
    vision_feature_select_strategy="default", vision_feature_layer=-1)
hf("PaliGemmaForConditionalGeneration", lambda: {"pixel_values": floats(1, 3, 16, 16),
    "input_ids": (t := torch.tensor([[98] * 16 + [5, 6, 7]])), "labels": t,
    "token_type_ids": torch.tensor([[0] * 17 + [1, 1]])},
    vision_config=lambda: {"model_type": "siglip_vision_model", **VIT, "projection_dim": 16},
    text_config=lambda: {"model_type": "gemma", **LLAMA}, image_token_id=98, projection_dim=16)
hf("Blip2Model", lambda: {"pixel_values": floats(1, 3, 16, 16),
    "input_ids": (t := torch.tensor([[98, 98, 98, 5, 6, 7]])), "labels": t}, vision_config=VIT,
    qformer_config={**TINY, "encoder_hidden_size": 16, "cross_attention_frequency": 2},
    text_config=lambda: {"model_type": "opt", "vocab_size": 99, "hidden_size": 16, "ffn_dim": 32,
    "num_hidden_layers": 1, "num_attention_heads": 2, "word_embed_proj_dim": 16,
    "max_position_embeddings": 32}, num_query_tokens=3, image_token_index=98)
hf("Pix2StructForConditionalGeneration", lambda: {"flattened_patches": torch.cat([torch.arange(1.0,
    5)[None, :, None], torch.ones(1, 4, 1), floats(1, 4, 12)], -1), "labels": ids(1, 5)},
    vision_config={"hidden_size": 16, "patch_embed_hidden_size": 12, "d_ff": 32, "d_kv": 8,
    "num_hidden_layers": 1, "num_attention_heads": 2, "seq_len": 8, "patch_size": 2},
    text_config={"vocab_size": 99, "hidden_size": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1,
    "num_heads": 2, "pad_token_id": 0, "decoder_start_token_id": 0})
hf("VisionEncoderDecoderModel", lambda: {"pixel_values": floats(1, 3, 16, 16), "labels": ids(1, 5)},
    encoder=lambda: {"model_type": "vit", **VIT}, decoder=lambda: {"model_type": "trocr",
    "vocab_size": 99, "d_model": 16, "decoder_layers": 2, "decoder_attention_heads": 2,
    "decoder_ffn_dim": 32, "decoder_layerdrop": 0.4, "max_position_embeddings": 32,
    "cross_attention_hidden_size": 16, "use_cache": False}, decoder_start_token_id=1,
    pad_token_id=0)
hf("Kosmos2ForConditionalGeneration", lambda: {"pixel_values": floats(1, 3, 16, 16),
    "input_ids": (t := ids(1, 8)), "image_embeds_position_mask": torch.tensor([[0, 1, 1, 0, 0, 0, 0,
    0]]), "labels": t}, vision_config=VIT, text_config={"vocab_size": 99, "embed_dim": 16,
    "layers": 2, "ffn_dim": 32, "attention_heads": 2, "layerdrop": 0.3,
    "max_position_embeddings": 32, "use_cache": False}, latent_query_num=2)
