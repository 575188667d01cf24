"""`GraphBreak`: a place at which a graph ended early, as a value.

How one is read from what Dynamo reports is in `watching.breaks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class StackFrame(NamedTuple):
    """One frame of the stack at a break, outermost first.

    Attributes:
        file: relative to pytest's rootdir, or to the directory on the import path that has it.
        line: its number.
        function: name of the function.
        code: the line itself.
    """

    file: str
    line: int
    function: str
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}: {self.code}"


@dataclass(frozen=True)
class GraphBreak:
    """A place at which a graph ended early, or a frame that Dynamo left to the interpreter.

    Attributes:
        kind: Dynamo's class of breaks, as in its registry; `frame skipped: ...` where the rest of
            the function was not compiled, or nothing of it, because Dynamo cannot resume there.
        reason: Dynamo's explanation.
        hint: what Dynamo advises, "" where it has no advice.
        file, line: the innermost frame outside torch and the standard library; the file is relative
            to pytest's rootdir, or to the directory on the import path that has it.
        code: the line itself.
        function: name of the function that the line is in.
        stack: the frames outside torch, the standard library and pytest, outermost first.
        module: path of the module whose code it is, as it is called from the function that Dynamo
            compiled: `layers.0` in the `forward` of a model, `model.layers.0` in a function that
            calls `model`. "" for the module that was compiled itself, for code of no module, and
            for a module called behind another break, of which Dynamo knows no name.
        compile_id: of the compilation that met it first.
        occurrences: how often it was met: again inside a caller, and at each recompilation.
        path: the file as Dynamo names it.
    """

    kind: str
    reason: str
    hint: str
    file: str
    line: int
    code: str
    function: str
    stack: tuple[StackFrame, ...]
    module: str
    compile_id: str
    occurrences: int = 1
    path: str = ""

    def __str__(self) -> str:
        return (
            f"{self.file}:{self.line} in {self.function}: {self.code}\n{self.kind}: {self.reason}"
        )
