"""Language models of transformers: decoders, encoders and both, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..case import Case, add, floats, ids, library

GROUP = "transformers"
Inputs = Callable[[], dict[str, Any]]


def hf(model: str, inputs: Inputs, label: str = "", config: str = "", **options: Any) -> None:
    """A model of transformers by the name of its class, in train mode.

    Args:
        label: what the case is called if not like the class.
        config: the name of the configuration's class, where the model's class does not say it.
        options: the configuration.
    """

    def make() -> Case:
        transformers = library("transformers")
        kind = getattr(transformers, model)
        configuration = getattr(transformers, config) if config else kind.config_class
        given = {key: value() if callable(value) else value for key, value in options.items()}
        return Case(kind(configuration(**given)).train(), (), inputs())

    add(GROUP, f"hf_{label or model}", make, lambda: getattr(library("transformers"), model))


def labelled(*, length: int = 8, labels: bool = True, **more: Any) -> Inputs:
    """Two rows of tokens, and the same as labels."""

    def inputs() -> dict[str, Any]:
        tokens = ids(2, length)
        found = {"input_ids": tokens, "labels": tokens} if labels else {"input_ids": tokens}
        return {**found, **{key: value() for key, value in more.items()}}

    return inputs


def padded(length: int = 8) -> torch.Tensor:
    mask = torch.ones(2, length, dtype=torch.long)
    mask[1, -3:] = 0
    return mask


TINY: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA: dict[str, Any] = {**TINY, "num_key_value_heads": 1, "head_dim": 8, "use_cache": False}

# fmt: off
# -- decoders --------------------------------------------------------------------------------------

for _name in (
    "GemmaForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM", "Qwen2ForCausalLM",
    "Qwen3ForCausalLM", "Phi3ForCausalLM", "MistralForCausalLM", "Olmo2ForCausalLM",
    "Starcoder2ForCausalLM", "CohereForCausalLM", "GraniteForCausalLM", "SmolLM3ForCausalLM",
    "StableLmForCausalLM", "GlmForCausalLM", "PhiForCausalLM", "NemotronForCausalLM",
    "HeliumForCausalLM", "ArceeForCausalLM", "BitNetForCausalLM",
):
    hf(_name, labelled(), **LLAMA)
hf("DiffLlamaForCausalLM", labelled(), **{**LLAMA, "num_key_value_heads": 2})
hf("GPTNeoForCausalLM", labelled(), vocab_size=99, hidden_size=16, num_layers=2, num_heads=2,
    attention_types=[[["global", "local"], 1]], intermediate_size=32, max_position_embeddings=32,
    window_size=4, use_cache=False)
hf("GPTNeoXForCausalLM", labelled(), **{**TINY, "use_cache": False})
hf("GPTJForCausalLM", labelled(), vocab_size=99, n_embd=16, n_layer=2, n_head=2, rotary_dim=4,
    n_positions=32, use_cache=False)
hf("CodeGenForCausalLM", labelled(), vocab_size=99, n_embd=16, n_layer=1, n_head=4, rotary_dim=4,
    n_positions=32, n_ctx=32, use_cache=False)
hf("OPTForCausalLM", labelled(attention_mask=padded), label="OPTForCausalLM_layerdrop",
    vocab_size=99, hidden_size=16, ffn_dim=32, num_hidden_layers=3, num_attention_heads=2,
    word_embed_proj_dim=16, max_position_embeddings=32, layerdrop=0.5, use_cache=False)
hf("BloomForCausalLM", labelled(attention_mask=padded), vocab_size=99, hidden_size=16, n_layer=2,
    n_head=2, use_cache=False)
hf("FalconForCausalLM", labelled(), vocab_size=99, hidden_size=16, num_hidden_layers=2,
    num_attention_heads=2, alibi=True, use_cache=False)
hf("MptForCausalLM", labelled(), vocab_size=99, d_model=16, n_layers=2, n_heads=2, max_seq_len=32,
    use_cache=False)
hf("CTRLLMHeadModel", labelled(), vocab_size=99, n_embd=16, n_layer=2, n_head=2, dff=32,
    n_positions=32, use_cache=False)
hf("OpenAIGPTLMHeadModel", labelled(), vocab_size=99, n_embd=16, n_layer=2, n_head=2,
    n_positions=32)
hf("XGLMForCausalLM", labelled(), vocab_size=99, d_model=16, ffn_dim=32, num_layers=3,
    attention_heads=2, layerdrop=0.4, max_position_embeddings=32, use_cache=False)
hf("BioGptForCausalLM", labelled(), **{**TINY, "layerdrop": 0.3, "use_cache": False})
hf("ImageGPTForCausalImageModeling", labelled(), vocab_size=99, n_embd=16, n_layer=1, n_head=2,
    n_positions=32, use_cache=False)
hf("GPTBigCodeForCausalLM", labelled(), vocab_size=99, n_embd=16, n_layer=2, n_head=2,
    n_positions=32, use_cache=True)
hf("MptForSequenceClassification", lambda: {"input_ids": ids(2, 6), "labels": torch.tensor([0, 1])},
    vocab_size=99, d_model=16, n_layers=1, n_heads=2, max_seq_len=32, pad_token_id=0,
    use_cache=False)
# Mixtures of experts
MOE: dict[str, Any] = {**LLAMA, "moe_intermediate_size": 16}
hf("Qwen2MoeForCausalLM", labelled(), **{**MOE, "num_experts": 4, "num_experts_per_tok": 2,
    "shared_expert_intermediate_size": 16, "output_router_logits": True})
hf("Qwen3MoeForCausalLM", labelled(), **{**MOE, "num_experts": 4, "num_experts_per_tok": 2})
hf("OlmoeForCausalLM", labelled(), **{**LLAMA, "num_experts": 4, "num_experts_per_tok": 2})
hf("PhimoeForCausalLM", labelled(), **{**LLAMA, "num_local_experts": 4})
hf("GraniteMoeForCausalLM", labelled(), **{**LLAMA, "num_local_experts": 4,
    "num_experts_per_tok": 2})
hf("GptOssForCausalLM", labelled(), **{**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2})
hf("DeepseekV3ForCausalLM", labelled(), **{**MOE, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "n_group": 2, "topk_group": 1, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4, "v_head_dim": 8, "first_k_dense_replace": 1, "head_dim": 4,
    "num_key_value_heads": 2})
hf("JambaForCausalLM", labelled(), **{**LLAMA, "num_experts": 2, "num_experts_per_tok": 1,
    "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2,
    "expert_layer_offset": 1, "mamba_d_state": 4, "mamba_dt_rank": 4, "use_mamba_kernels": False})
# State space, recurrent and linear attention
hf("Mamba2ForCausalLM", labelled(), vocab_size=99, hidden_size=16, num_hidden_layers=1, num_heads=4,
    head_dim=8, state_size=8, n_groups=1, chunk_size=4, use_cache=False)
hf("FalconMambaForCausalLM", labelled(), vocab_size=99, hidden_size=16, num_hidden_layers=1,
    state_size=4, use_cache=False)
hf("RwkvForCausalLM", labelled(), vocab_size=99, hidden_size=16, attention_hidden_size=16,
    num_hidden_layers=2, intermediate_size=32, context_length=16, use_cache=False)
hf("RecurrentGemmaForCausalLM", labelled(), vocab_size=99, hidden_size=16, intermediate_size=32,
    num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, lru_width=16,
    attention_window_size=4, use_cache=False)
hf("Lfm2ForCausalLM", labelled(), **{**LLAMA, "layer_types": ["conv", "full_attention"]})
hf("BambaForCausalLM", labelled(), **{**LLAMA, "num_hidden_layers": 2, "attn_layer_indices": [1],
    "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 4})
hf("Qwen3NextForCausalLM", labelled(), **{**MOE, "num_experts": 2, "num_experts_per_tok": 1,
    "shared_expert_intermediate_size": 16, "layer_types": ["linear_attention", "full_attention"],
    "linear_num_value_heads": 2, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8})
hf("xLSTMForCausalLM", labelled(), vocab_size=99, hidden_size=16, num_heads=2, num_blocks=1,
    chunkwise_kernel="chunkwise--native_autograd", sequence_kernel="native_sequence__native",
    step_kernel="native", use_cache=False, chunk_size=4)

# -- encoders --------------------------------------------------------------------------------------

for _name in (
    "RobertaForMaskedLM", "ElectraForMaskedLM", "ConvBertForMaskedLM", "MPNetForMaskedLM",
    "RoFormerForMaskedLM", "MegatronBertForMaskedLM", "ErnieForMaskedLM", "CamembertForMaskedLM",
    "Data2VecTextForMaskedLM", "RobertaPreLayerNormForMaskedLM", "SqueezeBertForMaskedLM",
):
    hf(_name, labelled(attention_mask=padded), **{**TINY, "embedding_size": 16})
hf("AlbertForMaskedLM", labelled(), **{**TINY, "embedding_size": 8})
hf("DistilBertForSequenceClassification", lambda: {"input_ids": ids(2, 6),
    "labels": torch.tensor([0, 1])}, vocab_size=99, dim=16, hidden_dim=32, n_layers=2, n_heads=2,
    max_position_embeddings=32)
hf("DebertaForMaskedLM", labelled(), **{**TINY, "relative_attention": True, "pos_att_type": ["c2p",
    "p2c"]})
hf("DebertaV2ForTokenClassification", lambda: {"input_ids": ids(2, 8), "labels": torch.randint(0, 2,
    (2, 8))}, **{**TINY, "relative_attention": True, "pos_att_type": ["c2p", "p2c"],
    "conv_kernel_size": 3})
hf("MobileBertForMaskedLM", labelled(), **{**TINY, "embedding_size": 8, "intra_bottleneck_size": 8,
    "true_hidden_size": 8})
hf("FunnelForMaskedLM", labelled(), vocab_size=99, block_sizes=[1, 1], d_model=16, n_head=2,
    d_head=8, d_inner=32, num_decoder_layers=1)
hf("LongformerForMaskedLM", labelled(global_attention_mask=lambda: torch.eye(2, 8,
    dtype=torch.long)), **{**TINY, "attention_window": 4})
hf("BigBirdForMaskedLM", labelled(length=48), label="BigBird_sparse", **{**TINY,
    "max_position_embeddings": 64, "attention_type": "block_sparse", "block_size": 4,
    "num_random_blocks": 1})
hf("ReformerModelWithLMHead", labelled(length=16), vocab_size=99, hidden_size=16,
    attention_head_size=8, num_attention_heads=2, feed_forward_size=32, attn_layers=["local",
    "lsh"], axial_pos_shape=[4, 4], axial_pos_embds_dim=[8, 8], local_attn_chunk_length=4,
    lsh_attn_chunk_length=4, num_buckets=2, num_hashes=1, hash_seed=1, hidden_dropout_prob=0.0,
    local_attention_probs_dropout_prob=0.0, is_decoder=True, use_cache=False,
    max_position_embeddings=16)
hf("XLNetLMHeadModel", labelled(), vocab_size=99, d_model=16, n_layer=1, n_head=2, d_inner=32,
    use_mems_train=False)
hf("XLMWithLMHeadModel", labelled(), vocab_size=99, emb_dim=16, n_layers=1, n_heads=2,
    max_position_embeddings=32, n_langs=2)
hf("FlaubertWithLMHeadModel", labelled(), vocab_size=99, emb_dim=16, n_layers=3, n_heads=2,
    layerdrop=0.4, max_position_embeddings=32)
hf("FNetForMaskedLM", labelled(), **TINY)
hf("NystromformerForMaskedLM", labelled(), **{**TINY, "num_landmarks": 4,
    "segment_means_seq_len": 8})
hf("YosoForMaskedLM", labelled(), **{**TINY, "use_expectation": True, "num_hash": 2})
hf("MraForMaskedLM", labelled(), **TINY)
hf("CanineForTokenClassification", lambda: {"input_ids": ids(2, 16), "labels": torch.randint(0, 2,
    (2, 16))}, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=64, local_transformer_stride=8, downsampling_rate=4,
    num_hash_buckets=64)
hf("RemBertForMaskedLM", labelled(), **{**TINY, "input_embedding_size": 8,
    "output_embedding_size": 16})
hf("IBertForMaskedLM", labelled(), **{**TINY, "quant_mode": False})
hf("IBertForMaskedLM", labelled(), label="IBert_quantised", **{**TINY, "quant_mode": True})
hf("ModernBertForMaskedLM", labelled(attention_mask=padded), **{**TINY, "num_hidden_layers": 3,
    "local_attention": 4, "cls_token_id": 3, "sep_token_id": 4})
hf("EsmForMaskedLM", labelled(attention_mask=padded), **{**TINY, "mask_token_id": 5,
    "position_embedding_type": "rotary", "token_dropout": True})
hf("LukeForMaskedLM", labelled(entity_ids=lambda: ids(2, 2, high=9),
    entity_position_ids=lambda: torch.tensor([[[1, 2], [3, -1]]] * 2)), **{**TINY,
    "entity_vocab_size": 10, "entity_emb_size": 8})
hf("TapasForQuestionAnswering", lambda: {"input_ids": ids(1, 8), "token_type_ids": torch.zeros(1, 8,
    7, dtype=torch.long), "labels": torch.tensor([[0, 0, 1, 0, 0, 1, 0, 0]])}, **{**TINY,
    "type_vocab_sizes": [3, 8, 8, 2, 8, 8, 4]})
hf("SplinterForQuestionAnswering", lambda: {"input_ids": ids(2, 8),
    "start_positions": torch.tensor([1, 2]), "end_positions": torch.tensor([3, 4])}, **{**TINY,
    "question_token_id": 5})
hf("XmodForMaskedLM", labelled(), **{**TINY, "languages": ["en", "de"], "default_language": "en"})
hf("LayoutLMForTokenClassification", lambda: {"input_ids": ids(2, 6), "bbox": torch.randint(0, 9,
    (2, 6, 2)).repeat(1, 1, 2), "labels": torch.randint(0, 2, (2, 6))}, **{**TINY,
    "max_2d_position_embeddings": 16})
hf("MarkupLMForQuestionAnswering", lambda: {"input_ids": ids(1, 6),
    "start_positions": torch.tensor([1]), "end_positions": torch.tensor([3])}, **{**TINY,
    "max_depth": 4, "xpath_unit_hidden_size": 4, "max_xpath_tag_unit_embeddings": 9,
    "max_xpath_subs_unit_embeddings": 9, "tag_pad_id": 8, "subs_pad_id": 8})
hf("BertForMultipleChoice", lambda: {"input_ids": ids(2, 3, 6), "labels": torch.tensor([0, 2])},
    **TINY)
hf("BertGenerationDecoder", labelled(), **{**TINY, "is_decoder": True, "use_cache": False})

# -- encoders with decoders ------------------------------------------------------------------------

BART: dict[str, Any] = {
    "vocab_size": 99, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "use_cache": False,
}
DROP = {"encoder_layerdrop": 0.5, "decoder_layerdrop": 0.5}
hf("BartForConditionalGeneration", labelled(), **{**BART, "forced_eos_token_id": 2})
hf("BartForConditionalGeneration", labelled(attention_mask=padded), label="Bart_layerdrop",
    **{**BART, **DROP, "encoder_layers": 3})
hf("MBartForConditionalGeneration", labelled(), label="MBart_layerdrop", **{**BART, **DROP})
hf("PegasusForConditionalGeneration", labelled(), **BART)
hf("PegasusXForConditionalGeneration", labelled(length=16), **{**BART, "block_size": 4,
    "num_global_tokens": 2, "stagger_local_blocks": True})
hf("MarianMTModel", labelled(), **{**BART, "decoder_vocab_size": 99})
hf("BlenderbotForConditionalGeneration", labelled(), label="Blenderbot_layerdrop", **{**BART,
    **DROP})
hf("BlenderbotSmallForConditionalGeneration", labelled(), **BART)
hf("PLBartForConditionalGeneration", labelled(), **BART)
hf("BigBirdPegasusForConditionalGeneration", labelled(length=48), **{**BART,
    "attention_type": "block_sparse", "block_size": 4, "num_random_blocks": 1})
hf("LEDForConditionalGeneration", labelled(), **{**BART, "attention_window": 4,
    "max_encoder_position_embeddings": 32, "max_decoder_position_embeddings": 32})
hf("M2M100ForConditionalGeneration", labelled(attention_mask=padded), label="M2M100_layerdrop",
    **{**BART, **DROP, "encoder_layers": 3, "decoder_layers": 3})
hf("NllbMoeForConditionalGeneration", labelled(), **{**BART, "num_experts": 4,
    "encoder_sparse_step": 2, "decoder_sparse_step": 2, "expert_capacity": 8,
    "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0})
hf("ProphetNetForConditionalGeneration", labelled(), vocab_size=99, hidden_size=16,
    encoder_ffn_dim=32, decoder_ffn_dim=32, num_encoder_layers=1, num_decoder_layers=1,
    num_encoder_attention_heads=2, num_decoder_attention_heads=2, max_position_embeddings=32,
    pad_token_id=0, decoder_start_token_id=2, use_cache=False)
hf("FSMTForConditionalGeneration", labelled(), src_vocab_size=99, tgt_vocab_size=99, langs=["en",
    "de"], d_model=16, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=32, decoder_ffn_dim=32,
    encoder_attention_heads=2, decoder_attention_heads=2, max_position_embeddings=32,
    encoder_layerdrop=0.3, decoder_layerdrop=0.3, use_cache=False)
T5: dict[str, Any] = {
    "vocab_size": 99, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2,
        "num_decoder_layers": 1,
    "num_heads": 2, "decoder_start_token_id": 0, "pad_token_id": 0, "use_cache": False,
}
hf("MT5ForConditionalGeneration", labelled(), **T5)
hf("UMT5ForConditionalGeneration", labelled(), **T5)
hf("LongT5ForConditionalGeneration", labelled(length=12), label="LongT5_local", **{**T5,
    "encoder_attention_type": "local", "local_radius": 3})
hf("LongT5ForConditionalGeneration", labelled(length=12), label="LongT5_global", **{**T5,
    "encoder_attention_type": "transient-global", "local_radius": 3, "global_block_size": 4})
hf("SwitchTransformersForConditionalGeneration", labelled(), **{**T5, "num_experts": 4,
    "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1, "expert_capacity": 8,
    "router_jitter_noise": 0.01})
hf("DecisionTransformerModel", lambda: {"states": floats(1, 4, 5), "actions": floats(1, 4, 3),
    "rewards": floats(1, 4, 1), "returns_to_go": floats(1, 4, 1),
    "timesteps": torch.arange(4)[None], "attention_mask": torch.ones(1, 4)}, state_dim=5, act_dim=3,
    hidden_size=16, n_layer=1, n_head=2, max_ep_len=16)
