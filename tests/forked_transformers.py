"""What a fork for a project with models of transformers finds imported too."""

from __future__ import annotations

from transformers import BertConfig, BertModel

__all__ = ["BertConfig", "BertModel"]
