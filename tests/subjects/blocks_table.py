"""The number of kinds of blocks in each subject, written by hand before the first run.

Most blocks of a list are equal. The exceptions:

- T5: the first block of a stack computes the relative bias and passes it to the others.
- wav2vec2: the first convolution has a group norm, and takes one channel.
"""

from __future__ import annotations

KINDS: dict[str, dict[str, list[int]]] = {
    "transformer_encoder_train": {"layers.*": [2]},
    "transformer_encoder_eval": {"layers.*": [2]},
    "transformer_encoder_fast_path": {"layers.*": [2]},
    "transformer_with_masks": {"encoder.layers.*": [2], "decoder.layers.*": [2]},
    "residual_cnn": {"blocks.*": [2]},
    "mlp": {"blocks.*": [2]},
    "mlp_checkpointed": {"blocks.*": [2]},
    "transformer_block": {"?": [2]},
    "gpt2": {"transformer.h.*": [2]},
    "llama": {"model.layers.*": [2]},
    "bert": {"encoder.layer.*": [2]},
    "mixtral": {"model.layers.*": [2]},
    "t5": {"encoder.block.*": [1, 1], "decoder.block.*": [1, 1]},
    "mamba": {"backbone.layers.*": [2]},
    "vit": {"vit.layers.*": [2]},
    "clip": {"text_model.encoder.layers.*": [2], "vision_model.encoder.layers.*": [2]},
    "whisper": {"model.encoder.layers.*": [2], "model.decoder.layers.*": [2]},
    "wav2vec2": {"encoder.layers.*": [2], "feature_extractor.conv_layers.*": [1, 1]},
}
