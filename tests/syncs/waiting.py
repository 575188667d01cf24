"""Functions that wait for the device, one for each cause, and functions that do not wait.

The comment `# waits: NAME` marks the line of the function NAME that waits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WAITING: dict[str, tuple[Callable[[Tensor], Tensor], str, str]] = {}
"""Maps names to the function, the op that dispatch records, and the op in the graphs of aot."""

CLEAN: list[Callable[[Tensor], Tensor]] = []


def line_of(name: str) -> int:
    """Return the number of the line that waits."""
    (line,) = [
        number
        for number, text in enumerate(Path(__file__).read_text().splitlines(), 1)
        if re.search(rf"# waits: {name}$", text)
    ]
    return line


def waits(op: str, compiled: str = "") -> Callable[[Callable[[Tensor], Tensor]], None]:
    def add(function: Callable[[Tensor], Tensor]) -> None:
        WAITING[function.__name__] = function, op, compiled or op

    return add


def clean(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    CLEAN.append(function)
    return function


READ = "aten._local_scalar_dense.default"


@waits(READ)
def item(x: Tensor) -> Tensor:
    scale = x.sum().item()  # waits: item
    return x * scale


@waits("Tensor.tolist")
def tolist(x: Tensor) -> Tensor:
    rows = (x * 2).tolist()  # waits: tolist
    return x * len(rows)


@waits("Tensor.tolist", READ)
def tolist_of_integers(x: Tensor) -> Tensor:
    rows = x.long().tolist()  # waits: tolist_of_integers
    return x * len(rows)


@waits("aten.index.Tensor")
def boolean_mask(x: Tensor) -> Tensor:
    return x[x > 0] * 2  # waits: boolean_mask


@waits("aten.nonzero.default")
def nonzero(x: Tensor) -> Tensor:
    found = x.nonzero()  # waits: nonzero
    return found * 2


@waits(READ)
def branch(x: Tensor) -> Tensor:
    if x.sum() > 0:  # waits: branch
        return x * 2
    return x * 3


@waits("aten._unique2.default")
def unique(x: Tensor) -> Tensor:
    return torch.unique(x) * 2  # waits: unique


@waits("aten.masked_select.default")
def masked_select(x: Tensor) -> Tensor:
    return torch.masked_select(x, x > 0) * 2  # waits: masked_select


@waits("aten.repeat_interleave.Tensor")
def repeated(x: Tensor) -> Tensor:
    return torch.repeat_interleave(x, torch.ones(3, dtype=torch.long)) * 2  # waits: repeated


@waits("aten.equal.default")
def compared(x: Tensor) -> Tensor:
    same = torch.equal(x, x)  # waits: compared
    return x * same


@waits("aten.index_put_.default", "aten.index_put.default")
def written_by_mask(x: Tensor) -> Tensor:
    y = x.clone()
    y[x > 0] = torch.ones(3)  # waits: written_by_mask
    return y


@waits("aten._linalg_check_errors.default")
def inverted(x: Tensor) -> Tensor:
    return torch.linalg.inv(torch.diag(x)) * 2  # waits: inverted


@waits("Tensor.cpu")
def to_the_host(x: Tensor) -> Tensor:
    return x.cpu() * 2  # waits: to_the_host


@clean
def filled_by_mask(x: Tensor) -> Tensor:
    y = x.clone()
    y[x > 0] = 0.0
    return y.masked_fill(x < 0, 1.0)


@clean
def chosen(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, -x)


@clean
def indexed(x: Tensor) -> Tensor:
    return x[torch.tensor([2, 0])] + x[1:]


@clean
def repeated_to_a_size(x: Tensor) -> Tensor:
    times = torch.ones(3, dtype=torch.long)
    return torch.repeat_interleave(x, times, output_size=3) * 2


@clean
def one_layer(x: Tensor) -> Tensor:
    return F.layer_norm(x, (3,)).to(torch.float64).to(x.device)


class Generator(nn.Module):
    """A generation loop that reads each token."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(4):
            x = self.head(x)
            if x.argmax().item() == 7:  # waits: Generator
                break
        return x
