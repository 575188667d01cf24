"""A package whose name begins with `torch`, as those of torchvision and torch_geometric do."""

from .broken import Broken
from .squeezenet import Fire, SqueezeNet

__all__ = ["Broken", "Fire", "SqueezeNet"]
