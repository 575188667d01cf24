"""Additional modules that a fork for a project with models of transformers has imported."""

from __future__ import annotations

from transformers import BertConfig, BertModel

__all__ = ["BertConfig", "BertModel"]
