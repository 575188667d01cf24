"""SqueezeNet 1.1: https://arxiv.org/abs/1602.07360."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Fire(nn.Module):
    """Squeezes the channels with a 1x1 convolution, and expands them with 1x1 and 3x3 ones."""

    def __init__(self, channels: int, squeezed: int, expanded: int):
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeezed, 1)
        self.expand1x1 = nn.Conv2d(squeezed, expanded, 1)
        self.expand3x3 = nn.Conv2d(squeezed, expanded, 3, padding=1)
        self.activation = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.activation(self.squeeze(x))
        expanded = [self.expand1x1(x), self.expand3x3(x)]
        return torch.cat([self.activation(each) for each in expanded], 1)


def _pool() -> nn.Module:
    return nn.MaxPool2d(3, 2, ceil_mode=True)


class SqueezeNet(nn.Module):
    """The classifier, with all channels divided by `narrow`."""

    def __init__(self, narrow: int = 1, classes: int = 1000):
        super().__init__()
        first, *widths = (width // narrow for width in (64, 16, 64, 32, 128, 48, 192, 64, 256))
        pairs = list(zip(widths[::2], widths[1::2], strict=True))
        layers: list[nn.Module] = [nn.Conv2d(3, first, 3, 2), nn.ReLU(), _pool()]
        channels = first
        for number, (squeezed, expanded) in enumerate(pairs):
            layers += [Fire(channels, squeezed, expanded)]
            layers += [Fire(2 * expanded, squeezed, expanded)]
            channels = 2 * expanded
            layers += [_pool()] if number < 2 else []
        self.features = nn.Sequential(*layers)
        self.dropout = nn.Dropout(0.5)
        self.classifier = nn.Conv2d(channels, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        x = self.classifier(self.dropout(x)).relu()
        return x.mean((2, 3))
