"""Finds the module, the user's line and the owner of an eager op in the running frames."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType

import torch

from ... import torch_private
from ...convert.source_lines import (
    Line,
    callers,
    is_torch_file,
    is_user_file,
    line_of,
    position,
    user_frames,
)
from ..step import STEP

_UNKNOWN, _USER, _AOT, _GENERATED, _OTHER = range(5)
"""The owner of a file's code. `_UNKNOWN` must be 0: it means that `_kind` has not seen the file.

`_GENERATED` is a torch.fx graph or a saved-tensor hook. AOTAutograd calls both, but their ops are
not AOTAutograd's own. `_OTHER` is any other code of torch or of another library.
"""


class Frames:
    """Inspects the frames above the caller of its methods.

    Attributes:
        lacks_line: True if the user's line that `locate` found is only the first line of its
            function, because Dynamo gives no other line to the instructions that it makes.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, int] = {}
        # Code is compared by identity: Dynamo's code objects can have slices among their constants,
        # and are then unhashable.
        self._call = torch_private.get("module_call").__code__
        self._wrapped_call = torch_private.get("wrapped_module_call").__code__
        self._engine = torch_private.get("engine_run_backward").__code__
        self._function: CodeType = torch.autograd.function.BackwardCFunction.apply.__code__

    def locate(
        self, number_of_module: Callable[[torch.nn.Module], int], *, aot: bool = False
    ) -> tuple[int | None, Line | None, bool]:
        """Return the running module's path, the user's line, and True if the op is AOTAutograd's.

        The path is a number, `None` outside of all modules. The line is `None` if no code of the
        user is running, as in a backward. An op of AOTAutograd has neither.

        Args:
            number_of_module: returns the number of a module's path.
            aot: True if the caller runs inside AOTAutograd's code. Its frames then do not end the
                search.
        """
        frame: FrameType | None = sys._getframe(2)
        line: Line | None = None
        path: int | None = None
        in_graph = aot
        self.lacks_line = False
        kinds, call, wrapped = self._kinds, self._call, self._wrapped_call
        while frame is not None:
            code = frame.f_code
            # The line that called the autograd engine is not the line of the engine's ops.
            if code is STEP or code is self._engine:
                break
            if path is None and (code is call or code is wrapped):
                # `f_locals` copies the locals into a dict, and the wrapper's frame has fewer.
                outer = frame.f_back
                inside = frame if outer is None or outer.f_code is not wrapped else outer
                path = number_of_module(_module_of(inside))
            elif line is None:
                file = code.co_filename
                kind = kinds.get(file, _UNKNOWN) or self._kind(file)
                if kind == _USER:
                    line = file, frame.f_lineno, code.co_name
                    # An instruction that Dynamo made has no columns.
                    self.lacks_line = line[1] == code.co_firstlineno and position(
                        code, frame.f_lasti
                    )[2:] == (None, None)
                elif kind == _GENERATED:
                    in_graph = True
                # On the first run of a graph AOTAutograd's own dispatch mode is on top.
                elif (
                    kind == _AOT
                    and path is None
                    and not in_graph
                    and code.co_name != "__torch_dispatch__"
                ):
                    return None, None, True
            if path is not None and line is not None:
                break
            frame = frame.f_back
        return path, line, False

    def is_formula(self) -> bool:
        """Return True if the engine runs the backward formula of a node, not a user's hook.

        The formula of an autograd.Function may be user code.
        """
        ran_user_code = False
        for frame in callers(sys._getframe(2), self._engine):
            if frame.f_code is self._function:
                return True
            if frame.f_code is STEP:
                break
            ran_user_code = ran_user_code or is_user_file(frame.f_code.co_filename)
        return not ran_user_code

    def _kind(self, file: str) -> int:
        """Return the owner of a file's code, and cache it."""
        kind = _USER if is_user_file(file) else _OTHER
        if is_torch_file(file, "_functorch", "_aot_autograd"):
            kind = _AOT
        elif file.startswith("<eval_with_key>") or is_torch_file(file, "autograd", "graph.py"):
            kind = _GENERATED
        self._kinds[file] = kind
        return kind

    def outer_line(self) -> Line | None:
        """Return the user's line that called the whole step."""
        step = next((f for f in callers(sys._getframe(1)) if f.f_code is STEP), None)
        return next(map(line_of, user_frames(step)), None)

    def stack(self) -> tuple[Line, ...]:
        """Return the running lines of the user's code, innermost first."""
        return tuple(map(line_of, user_frames(sys._getframe(1), STEP)))


def _module_of(frame: FrameType) -> torch.nn.Module:
    """Return the module that a frame calls; for a compiled module, the original module."""
    module: torch.nn.Module = torch_private.local_of(frame, "self")
    inner = vars(module)["_modules"].get("_orig_mod")  # getattr is slow where there is none
    return module if inner is None else inner
