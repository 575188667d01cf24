"""A package whose name begins with `torch`, like torchvision and torch_geometric."""

from .broken import Broken
from .squeezenet import Fire, SqueezeNet

__all__ = ["Broken", "Fire", "SqueezeNet"]
