"""Models of transformers for speech, sound and music."""

from __future__ import annotations

from typing import Any

import torch

from ..case import floats, ids
from .text import BART, hf

CONVOLVE: dict[str, Any] = {
    "conv_dim": (8, 8),
    "conv_stride": (4, 4),
    "conv_kernel": (8, 4),
    "num_feat_extract_layers": 2,
}
SPEECH: dict[str, Any] = {
    "vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 32, "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2,
    "mask_time_length": 2, "mask_time_prob": 0.3, "pad_token_id": 0, "ctc_zero_infinity": True,
    **CONVOLVE,
}  # fmt: skip


def spoken() -> dict[str, Any]:
    """Two waves, and the characters said in each."""
    return {"input_values": floats(2, 640), "labels": ids(2, 4, high=20)}


# fmt: off
for _name in ("HubertForCTC", "WavLMForCTC", "UniSpeechSatForCTC"):
    hf(_name, spoken, **{**SPEECH, "layerdrop": 0.0})
    hf(_name, spoken, label=f"{_name}_layerdrop", **{**SPEECH, "layerdrop": 0.5})
hf("UniSpeechForSequenceClassification", lambda: {"input_values": floats(2, 640),
    "labels": torch.tensor([0, 1])}, **{**SPEECH, "layerdrop": 0.3, "classifier_proj_size": 8})
hf("Data2VecAudioForCTC", spoken, **{**SPEECH, "conv_pos_kernel_size": 3,
    "num_conv_pos_embeddings": 2, "layerdrop": 0.3})
hf("SEWForCTC", spoken, **{**SPEECH, "squeeze_factor": 2, "layerdrop": 0.3})
hf("SEWDForCTC", spoken, **{**SPEECH, "squeeze_factor": 2, "layerdrop": 0.0,
    "max_position_embeddings": 64, "position_buckets": 8})
hf("Wav2Vec2ForCTC", spoken, label="Wav2Vec2ForCTC_stable", **{**SPEECH,
    "do_stable_layer_norm": True, "feat_extract_norm": "layer", "layerdrop": 0.3})
hf("Wav2Vec2ForXVector", lambda: {"input_values": floats(2, 640), "labels": torch.tensor([0, 1])},
    **{**SPEECH, "tdnn_dim": (8, 8), "tdnn_kernel": (3, 1), "tdnn_dilation": (1, 1),
    "xvector_output_dim": 8})
hf("Wav2Vec2ForPreTraining", lambda: {"input_values": floats(1, 640),
    "mask_time_indices": torch.arange(39)[None] % 3 == 0,
    "sampled_negative_indices": torch.randint(0, 39, (1, 39, 2))}, **{**SPEECH, "codevector_dim": 8,
    "num_codevectors_per_group": 4, "proj_codevector_dim": 8, "num_negatives": 2})
hf("Wav2Vec2ConformerForCTC", spoken, **{**SPEECH, "position_embeddings_type": "relative",
    "layerdrop": 0.0})
hf("Wav2Vec2ConformerForCTC", spoken, label="Wav2Vec2Conformer_rotary", **{**SPEECH,
    "position_embeddings_type": "rotary", "layerdrop": 0.5})
hf("Wav2Vec2BertForCTC", lambda: {"input_features": floats(2, 16, 8), "labels": ids(2, 4, high=20)},
    vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
    feature_projection_input_dim=8, layerdrop=0.3, mask_time_length=2, pad_token_id=0)
hf("Speech2TextForConditionalGeneration", lambda: {"input_features": floats(2, 16, 8),
    "labels": ids(2, 5)}, **{**BART, "input_feat_per_channel": 8, "conv_channels": 16,
    "encoder_layerdrop": 0.3, "decoder_layerdrop": 0.3, "max_source_positions": 32,
    "max_target_positions": 32})
hf("MoonshineForConditionalGeneration", lambda: {"input_values": floats(1, 2000), "labels": ids(1,
    4)}, vocab_size=99, hidden_size=16, intermediate_size=32, encoder_num_hidden_layers=1,
    decoder_num_hidden_layers=1, encoder_num_attention_heads=2, decoder_num_attention_heads=2,
    decoder_start_token_id=1, pad_token_id=0, bos_token_id=1, eos_token_id=2)
hf("SpeechT5ForSpeechToText", lambda: {"input_values": floats(1, 640), "labels": ids(1, 4)},
    **{**SPEECH, "vocab_size": 99, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32, "encoder_max_relative_position": 4, "decoder_start_token_id": 2})
hf("ASTForAudioClassification", lambda: {"input_values": floats(2, 16, 8),
    "labels": torch.tensor([0, 1])}, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=32, patch_size=4, frequency_stride=2, time_stride=4, max_length=16,
    num_mel_bins=8)
hf("EncodecModel", lambda: {"input_values": floats(1, 1, 320)}, hidden_size=8, num_filters=4,
    num_residual_layers=1, upsampling_ratios=[4, 2], codebook_size=8, codebook_dim=8,
    num_lstm_layers=1, target_bandwidths=[24.0], sampling_rate=24000)
hf("DacModel", lambda: {"input_values": floats(1, 1, 256)}, encoder_hidden_size=4,
    decoder_hidden_size=16, downsampling_ratios=[2, 4], upsampling_ratios=[4, 2], n_codebooks=2,
    codebook_size=8, codebook_dim=4)
hf("UnivNetModel", lambda: {"input_features": floats(1, 6, 8), "noise_sequence": floats(1, 6, 4)},
    model_in_channels=4, model_hidden_channels=4, num_mel_bins=8, resblock_kernel_sizes=[3],
    resblock_stride_sizes=[2], resblock_dilation_sizes=[[1, 3]], kernel_predictor_num_blocks=1,
    kernel_predictor_hidden_channels=4)
hf("SpeechT5HifiGan", lambda: {"spectrogram": floats(1, 6, 8)}, model_in_dim=8,
    upsample_initial_channel=8, upsample_rates=[2, 2], upsample_kernel_sizes=[4, 4],
    resblock_kernel_sizes=[3], resblock_dilation_sizes=[[1, 3]], initializer_range=0.5)
hf("ParakeetForCTC", lambda: {"input_features": floats(1, 32, 8),
    "attention_mask": torch.ones(1, 32, dtype=torch.bool), "labels": ids(1, 3, high=20)},
    vocab_size=20, encoder_config={"hidden_size": 16, "num_hidden_layers": 2,
    "num_attention_heads": 2, "intermediate_size": 32, "subsampling_conv_channels": 4,
    "subsampling_factor": 4, "num_mel_bins": 8, "layerdrop": 0.3}, pad_token_id=0,
    ctc_zero_infinity=True)
hf("MusicgenForCausalLM", lambda: {"input_ids": ids(2, 6, high=20), "labels": ids(1, 6, 2,
    high=20)}, config="MusicgenDecoderConfig", vocab_size=20, num_hidden_layers=2,
    num_attention_heads=2, ffn_dim=32, hidden_size=16, num_codebooks=2, layerdrop=0.3,
    max_position_embeddings=32, pad_token_id=0, use_cache=False)
hf("SeamlessM4Tv2ForTextToText", lambda: {"input_ids": ids(1, 6), "labels": ids(1, 5)},
    vocab_size=99, hidden_size=16, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=32,
    decoder_ffn_dim=32, encoder_attention_heads=2, decoder_attention_heads=2, encoder_layerdrop=0.4,
    decoder_layerdrop=0.4, speech_encoder_layers=1, speech_encoder_attention_heads=2,
    t2u_encoder_layers=1, t2u_decoder_layers=1, max_position_embeddings=32, use_cache=False)
