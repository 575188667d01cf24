"""Storages keep their numbers while they are alive, and the pins of those that are gone go."""

import torch

from pytest_torchgraph.torch_private import StoragePins


def test_pins_of_storages_that_are_gone_are_dropped() -> None:
    pins = StoragePins()
    kept = torch.zeros(3).untyped_storage()
    number = pins.add(kept)
    for _ in range(500):
        pins.add(torch.zeros(3).untyped_storage())
    assert pins.numbers[kept._cdata] == number
    assert len(pins.numbers) < 100


def test_numbers_are_not_used_twice() -> None:
    pins = StoragePins()
    numbers = [pins.add(torch.zeros(3).untyped_storage()) for _ in range(500)]
    assert len(set(numbers)) == 500
