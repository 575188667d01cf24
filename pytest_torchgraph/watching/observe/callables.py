"""What was given to `torch.compile`, and the calls of it that ran eagerly."""

from __future__ import annotations

import weakref
from collections import Counter
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any, Literal, NamedTuple

from ... import torch_private

CallKind = Literal["stance", "limit", "disabled", "skipped", "backend"]
"""Why a call ran eagerly.

- `stance`: `torch.compiler.set_stance` asked for it.
- `limit`: Dynamo had compiled the code as often as its recompile limits allow.
- `disabled`: `torch.compiler.disable` or `torch._dynamo.config.disable`.
- `skipped`: Dynamo gave the frame up, or a mode, a transform or a trace is active, or
  `torch.compiler.precompile` made it, so that Dynamo is not asked.
- `backend`: the backend raised, and `torch._dynamo.config.suppress_errors` is set.
"""


class EagerCause(NamedTuple):
    """Why code ran eagerly.

    Attributes:
        kind: see `CallKind`.
        reason: Dynamo's words, or ours.
        function, file, line: the frame that the reason is about; "" and 0 if it is about all code.
        earlier: whether it happened before the observers were installed, or the reason is unknown:
            in another order of the tests the call may run compiled.
    """

    kind: CallKind
    reason: str
    function: str = ""
    file: str = ""
    line: int = 0
    earlier: bool = False


_GENERATED = "GraphModule.__new__.<locals>.GraphModuleImpl"
"""Qualified name of the class that torch.fx makes for each graph module."""

CodeKey = tuple[str, str, int]
"""Function, file and first line of a code object, as torch's trace names it."""


@dataclass(slots=True)
class CompiledCallable:
    """A function or module that was given to `torch.compile`, and was called.

    Attributes:
        name: its qualified name.
        file, line: where its code is; "" and 0 where it has none.
        code: its code object, None for a callable without one.
        entries: how often it was called.
        uncompiled: how many of the calls ran eagerly, by cause.
        backend: name of the backend that it was given to, "" where it cannot be read.
        disabled: Dynamo's words for the call of a function under `torch.compiler.disable` that it
            met while compiling this callable, "" if it met none.
        owner: a reference to the module whose call or method it is, `None` for a function.
        served_by: the compile ids of graphs that calls of it ran, in order. Looked at are calls in
            which Dynamo compiled, and the first one since the observers were installed or since
            code of the same file was compiled: others would cost more than their entry.
        without_ops: whether Dynamo found no tensor operation in the function of torch's that it is
            wrapped in. torch marks the code of that as skipped, and all modules of torch.nn share
            it: after an `nn.Identity` every other one runs eagerly.
        unproven: whether no call has run a compiled graph yet, or none since code of its file was
            compiled. Such calls are looked at more closely, at the cost of some Python frames.
    """

    name: str
    file: str = ""
    line: int = 0
    code: CodeType | None = None
    entries: int = 0
    uncompiled: Counter[EagerCause] = field(default_factory=Counter)
    backend: str = ""
    disabled: str = ""
    owner: weakref.ref[Any] | None = None
    served_by: dict[str, None] = field(default_factory=dict)
    without_ops: bool = False
    unproven: bool = True

    @classmethod
    def of(cls, call: Any) -> CompiledCallable:
        """Describe a callable that was not called yet."""
        code = getattr(call, "__code__", None)
        wrapped = torch_private.unwrap_inline(call)
        target = call if wrapped is None else wrapped
        owner = getattr(target, "__self__", wrapped)
        name = getattr(target, "__qualname__", type(call).__qualname__)
        is_module = owner is not None and hasattr(owner, "named_modules")
        if is_module:
            name = type(owner).__qualname__.replace(_GENERATED, type(owner).__name__)
            code = getattr(getattr(type(owner), "forward", None), "__code__", code)
        elif wrapped is not None:
            code = getattr(wrapped, "__code__", None)
        reference = weakref.ref(owner) if is_module else None
        if not isinstance(code, CodeType):
            return cls(name, owner=reference)
        return cls(name, code.co_filename, code.co_firstlineno, code, owner=reference)

    @property
    def names(self) -> list[str]:
        """The names by which it can be selected: of a module its class, its method, and both."""
        if self.code is None or self.name.endswith(self.code.co_name):
            return [self.name]
        return [self.name, self.code.co_name, f"{self.name}.{self.code.co_name}"]

    def names_of(self, other: Any) -> list[str]:
        """`names` where `other` is of this code or of code inside it, else none.

        Args:
            other: anything with `function`, `file` and `line`.
        """
        if self.code is None or (other.file, other.function) != (self.file, self.code.co_name):
            return []
        return self.names if self.line <= other.line <= _last_line(self.code) else []

    def since(self, before: CompiledCallable | None) -> CompiledCallable:
        """A copy that counts only what came after an earlier copy; all of it where that is None."""
        if before is None:
            return replace(
                self, uncompiled=Counter(self.uncompiled), served_by=dict(self.served_by)
            )
        return replace(
            self,
            served_by=dict(self.served_by),
            entries=self.entries - before.entries,
            uncompiled=self.uncompiled - before.uncompiled,
        )


CallableTable = dict[int, CompiledCallable]
"""Compiled callables, numbered in the order of their first calls: two may have one name."""


def code_key(code: CodeType) -> CodeKey:
    """The function, file and first line of a code object."""
    return code.co_name, code.co_filename, code.co_firstlineno


def _last_line(code: CodeType) -> int:
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    lines = [line for *_, line in code.co_lines() if line is not None]
    return max([code.co_firstlineno, *lines, *map(_last_line, inner)])
