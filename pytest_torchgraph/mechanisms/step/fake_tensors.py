"""Captures on fake tensors: shapes without memory, for models too large to run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.utils._pytree as pytree

from ... import torch_private
from ...errors import add_note
from ...words import listed
from .invocation import Invocation


def note_meta_device(error: Exception, invocation: Invocation) -> None:
    """Let an exception say what captures a target with tensors on the meta device, if it is one."""
    named = invocation.named
    on_meta = [
        named.tensors[id(tensor)]
        for tensor in named.all_tensors()
        if tensor.device.type == "meta" and id(tensor) in named.tensors
    ]
    if on_meta:
        first = listed((f"{role} {name!r}" for role, name in on_meta), 1)
        add_note(
            error,
            f"The target was given on the meta device ({first}), where tensors have "
            "a shape and no data. fake=True captures such a target, as if it were on the CPU, via "
            "'aot', 'dispatch', 'dynamo' or 'export'.",
        )


@contextlib.contextmanager
def with_fake_tensors(invocation: Invocation, device: torch.device | None) -> Iterator[Invocation]:
    """Let the target's parameters and buffers be fake inside; gives one with fake arguments.

    Nothing is copied: each module is given fake tensors in place of its own and has its own again
    afterwards. Tensors on the meta device count as ones on the CPU, which is how a model larger
    than the memory is made: `with torch.device("meta"): model = Model(config)`.

    Args:
        device: where the fake tensors are; None for where the real ones are.
    """
    mode = torch_private.get("fake_tensor_mode")(allow_non_fake_inputs=True)
    fake_tensor = torch_private.get("fake_tensor")
    made: dict[int, torch.Tensor] = {}

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in made:
            where = device or tensor.device
            if where.type == "meta":
                where = torch.device("cpu")
            with torch.no_grad():
                meta = tensor.detach().to("meta")
                value = fake_tensor(mode, meta, where)
            if isinstance(tensor, torch.nn.Parameter):
                value = torch.nn.Parameter(value, tensor.requires_grad)
            elif tensor.requires_grad:
                value.requires_grad_()
            made[id(tensor)] = value
        return made[id(tensor)]

    slots = [
        (table, name, tensor)
        for _, root in invocation.named.modules_by_prefix
        for module in root.modules()
        for table in (module._parameters, module._buffers)
        for name, tensor in table.items()
        if tensor is not None
    ]
    try:
        for table, name, tensor in slots:
            table[name] = fake(tensor)  # type: ignore[assignment]
        arguments = invocation.args, invocation.kwargs
        args, kwargs = pytree.tree_map_only(torch.Tensor, fake, arguments)
        with mode:
            yield replace(invocation, args=args, kwargs=kwargs)
    finally:
        for table, name, tensor in slots:
            table[name] = tensor  # type: ignore[assignment]
