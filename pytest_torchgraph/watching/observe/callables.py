"""What was given to `torch.compile`, and the calls of it that ran eagerly."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any, NamedTuple

from ... import torch_private
from ...convert.source_lines import is_user_file


class EagerCause(NamedTuple):
    """Why code ran eagerly.

    Attributes:
        reason: Dynamo's words, or ours for what switches compilation off; "" for `UNKNOWN_CAUSE`.
        function, file, line: the frame that Dynamo says it of; "" and 0 where it holds for all.
    """

    reason: str
    function: str = ""
    file: str = ""
    line: int = 0


UNKNOWN_CAUSE = EagerCause("")
"""The cause of an entry that ran eagerly though Dynamo gave no reason."""

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
        inlined: whether Dynamo sees the code inside a function of torch's, not by itself.
        backend: name of the backend that it was given to, "" where it cannot be read.
        seen_by_dynamo: whether Dynamo began to trace its code, or had compiled it before the first
            call.
    """

    name: str
    file: str = ""
    line: int = 0
    code: CodeType | None = None
    entries: int = 0
    uncompiled: Counter[EagerCause] = field(default_factory=Counter)
    inlined: bool = False
    backend: str = ""
    seen_by_dynamo: bool = False

    @classmethod
    def of(cls, call: Any) -> CompiledCallable:
        """Describe a callable that was not called yet."""
        code = getattr(call, "__code__", None)
        wrapped = torch_private.unwrap_inline(call)
        target = call if wrapped is None else wrapped
        owner = getattr(target, "__self__", wrapped)
        name = getattr(target, "__qualname__", type(call).__qualname__)
        if owner is not None and hasattr(owner, "named_modules"):
            name = type(owner).__qualname__.replace(_GENERATED, type(owner).__name__)
            code = getattr(getattr(type(owner), "forward", None), "__code__", code)
        elif wrapped is not None:
            code = getattr(wrapped, "__code__", None)
        if not isinstance(code, CodeType):
            return cls(name)
        return cls(
            name,
            code.co_filename,
            code.co_firstlineno,
            code,
            inlined=owner is not None or not is_user_file(code.co_filename),
            seen_by_dynamo=torch_private.is_compiled_code(code),
        )

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
            return replace(self, uncompiled=Counter(self.uncompiled))
        return replace(
            self,
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
