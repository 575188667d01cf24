"""Writes into known tensors that no recorded op made, found by autograd's count of writes."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch

from ...convert.effects import schema
from ...convert.source_lines import Line
from .mode import RecordingMode, line_of_target

_R = TypeVar("_R")


class Write(NamedTuple):
    """A write that was not recorded.

    Attributes:
        role, name: of the tensor, as of a graph's input; both "" for one that the target computed.
        line: the target's line where it showed; None where that was behind the step.
    """

    role: str
    name: str
    line: Line | None


class _Known(NamedTuple):
    """What was known of a tensor when it was first looked at.

    Attributes:
        tensor: a weak reference.
        counted: autograd's count of its writes.
        own: how many writes to its storage had been recorded.
    """

    tensor: Callable[[], torch.Tensor | None]
    counted: int
    own: int


class UnseenWrites:
    """What is known of the writes to the tensors of a step, from the start of a thread on.

    It is made in that thread, before it runs anything. autograd counts a write behind the op, which
    is therefore followed by one more than was counted, or by none in inference mode.

    Attributes:
        found: what somebody else wrote to.
    """

    def __init__(self, recorder: RecordingMode):
        self.found: list[Write] = []
        self.is_following = False
        self._recorder = recorder
        self._known: dict[int, _Known] = {}
        self._own: Counter[int] = Counter()
        for tensor in [*recorder.named.all_tensors(), *recorder.alive()]:
            self._known.setdefault(id(tensor), _Known(weakref.ref(tensor), _count(tensor), 0))

    def follow(
        self, op: Any, run: Callable[..., _R], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _R:
        """Run an op that is recorded: its writes are the recorded thread's own."""
        self.look_at(args, kwargs)
        self.is_following = True
        try:
            output = run(op, (), args, kwargs)
        finally:
            self.is_following = False
        self.wrote(*schema.written(op, args, kwargs))
        self._gave(output, args, kwargs)
        return output

    def wrote(self, *values: Any) -> None:
        """The recorded thread has written to each of these tensors once."""
        for tensor in tensors_in(values):
            self._own[self._storage(tensor)] += 1

    @contextmanager
    def own(self, *values: Any) -> Iterator[None]:
        """Count every write to these tensors inside as one of the recorded thread."""
        before = [(tensor, _count(tensor)) for tensor in tensors_in(values)]
        yield
        for storage, count in {
            self._storage(tensor): _count(tensor) - count for tensor, count in before
        }.items():
            self._own[storage] += count

    def _gave(self, output: Any, *arguments: Any) -> None:
        """What an op gave; autograd lets a view share the count of its base behind the op only."""
        bases = {self._storage(each): self._known.get(id(each)) for each in tensors_in(arguments)}
        for tensor in tensors_in(output):
            known = self._known.get(id(tensor))
            if known is None or known.tensor() is not tensor:
                storage = self._storage(tensor)
                base = bases.get(storage) or _Known(_gone, 0, self._own[storage])
                self._known[id(tensor)] = base._replace(tensor=weakref.ref(tensor))

    def look_at(self, *values: Any) -> None:
        """Find what was written to since it was last looked at."""
        for tensor in tensors_in(values):
            count, own = _count(tensor), self._own[self._storage(tensor)]
            known = self._known.get(id(tensor))
            if known is not None and known.tensor() is tensor:
                if count <= known.counted + own - known.own:
                    continue
                role, name = self._recorder.named.tensors.get(id(tensor), ("", ""))
                self.found.append(Write(role, name, line_of_target()))
            self._known[id(tensor)] = _Known(weakref.ref(tensor), count, own)

    def look_at_all(self) -> None:
        """Find what was written to, among all tensors that are alive."""
        alive = [tensor for known in self._known.values() if (tensor := known.tensor()) is not None]
        self.look_at(alive)

    def _storage(self, tensor: torch.Tensor) -> int:
        """The number of a tensor's storage, -1 for a tensor that the recorder has not met."""
        value = self._recorder.known(tensor)
        return -1 if value is None else self._recorder.storage_of[value]


def _gone() -> None:
    """In place of a reference to a tensor."""


def _count(tensor: torch.Tensor) -> int:
    """autograd's count of the writes to a tensor, which its views share."""
    return 0 if tensor.is_inference() else tensor._version


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors among arguments or results, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))
