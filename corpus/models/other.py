"""Models of transformers for time series and other things."""

from __future__ import annotations

from typing import Any

import torch

from ..case import floats
from .text import hf

SERIES: dict[str, Any] = {
    "prediction_length": 3, "context_length": 6, "d_model": 16, "encoder_layers": 2,
        "decoder_layers": 2,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16, "lags_sequence": [1, 2], "num_time_features": 1,
        "encoder_layerdrop": 0.3,
    "decoder_layerdrop": 0.3, "use_cache": False,
}  # fmt: skip


def series() -> dict[str, Any]:
    """A past and a future of two series."""
    return {
        "past_values": floats(2, 8), "past_time_features": floats(2, 8, 1),
        "past_observed_mask": torch.ones(2, 8), "future_values": floats(2, 3),
        "future_time_features": floats(2, 3, 1),
    }  # fmt: skip


# fmt: off
hf("TimeSeriesTransformerForPrediction", series, **SERIES)
hf("InformerForPrediction", series, **SERIES)
hf("AutoformerForPrediction", series, **{**SERIES, "label_length": 2, "moving_average": 3})
hf("PatchTSTForPrediction", lambda: {"past_values": floats(2, 16, 3), "future_values": floats(2, 4,
    3)}, num_input_channels=3, context_length=16, patch_length=4, patch_stride=4, d_model=16,
    num_hidden_layers=1, num_attention_heads=2, ffn_dim=16, prediction_length=4)
hf("PatchTSMixerForPrediction", lambda: {"past_values": floats(2, 16, 3), "future_values": floats(2,
    4, 3)}, num_input_channels=3, context_length=16, patch_length=4, patch_stride=4, d_model=8,
    num_layers=1, prediction_length=4)
