"""Parse a printed graph as a Python syntax tree with comments.

The text is almost Python. Class names like `<lambda>` and reprs like `<class 'torch.Tensor'>` are
replaced with identifiers and calls, then `ast` parses the text. Nothing is ever evaluated.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass, field

from ...errors import CaptureError


class PrintedGraphError(CaptureError):
    """A printed graph cannot be read, and no part of it is used.

    Attributes:
        problem: the reason.
        line: 1-based line of the printed text.
        text: that line.
    """

    def __init__(self, problem: str, line: int, text: str = ""):
        self.problem = problem
        self.line = line
        self.text = text.strip()
        super().__init__(problem, line, text)

    def __str__(self) -> str:
        shown = f"\n    {self.text[:200]}" if self.text else ""
        return (
            f"cannot read the graph that torch printed, line {self.line}: {self.problem}{shown}\n"
            "Use graph_capture(target, ...) instead of watch(), and please report this line"
        )


REPR = "__torchgraph_repr__"
"""Name of a pseudo-function. Its argument is a repr that is not valid Python."""

_CLASS = re.compile(r"(\s*)class (.+?)\((?:torch\.)?nn\.Module\):\s*$")
_REPR = re.compile(
    r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(<[A-Za-z](?:[^<>]|<[^<>]*>)*>)|(\#.*)"""
)
"""A string, a repr, or a comment. Strings and comments match so that no repr begins in them."""
_SOURCE = re.compile(r"File: (.*?):(\d+) in (.*?), code: (.*)$")
_TRAILING = re.compile(r"[\s,]*#\s?(.*)$")


@dataclass
class PrintedClass:
    """Syntax tree of one printed module.

    Attributes:
        name: class name.
        forward: the `forward` method.
        inner: nested modules.
    """

    name: str
    forward: ast.FunctionDef
    inner: list[PrintedClass] = field(default_factory=list)


class PrintedText:
    """A printed text.

    Attributes:
        lines: lines to parse, with class names and reprs replaced.
    """

    def __init__(self, text: str):
        self.lines = text.replace("\r\n", "\n").split("\n")
        self._names: list[str] = []
        for number, line in enumerate(self.lines):
            class_line = _CLASS.match(line)
            if class_line:
                self.lines[number] = f"{class_line[1]}class _{len(self._names)}:"
                self._names.append(class_line[2])
            elif "<" in line and not line.lstrip().startswith("#"):
                self.lines[number] = _REPR.sub(
                    lambda match: f"{REPR}({match[2]!r})" if match[2] else match[0], line
                )
        self._sources = self._sticky_sources()

    def tree(self) -> PrintedClass:
        """Parse the text and return the outermost module.

        Raises:
            PrintedGraphError: if the text is not one printed module.
        """
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                module = ast.parse("\n".join(self.lines))
        except SyntaxError as error:
            raise self.error(f"not Python: {error.msg}", error.lineno or 1) from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise self.error(f"not Python: {error}", 1) from None
        classes = [statement for statement in module.body if isinstance(statement, ast.ClassDef)]
        if len(classes) != 1 or len(module.body) != 1:
            raise self.error("expected one printed module ('class ...(torch.nn.Module):')", 1)
        return self._class(classes[0])

    def _class(self, definition: ast.ClassDef) -> PrintedClass:
        """Return a class and its inner classes. `__init__` made its name `_` and a number."""
        number = definition.name[1:]
        if not number.isdecimal() or int(number) >= len(self._names):
            raise self.error("expected 'class ...(torch.nn.Module):'", definition.lineno)
        body = definition.body
        functions = [statement for statement in body if isinstance(statement, ast.FunctionDef)]
        inner = [statement for statement in body if isinstance(statement, ast.ClassDef)]
        if len(functions) != 1 or len(functions) + len(inner) != len(body):
            raise self.error(
                "expected one 'def forward', and otherwise only submodules, in a printed module",
                definition.lineno,
            )
        name = self._names[int(number)]
        return PrintedClass(
            name, functions[0], [self._class(nested_class) for nested_class in inner]
        )

    # -- comments --------------------------------------------------------------------------------

    def _sticky_sources(self) -> list[tuple[str, int, str, str] | None]:
        """Return the source of each line: a `# File: ...` comment applies until the next one."""
        sources: list[tuple[str, int, str, str] | None] = []
        current: tuple[str, int, str, str] | None = None
        for line in self.lines:
            bare = line.lstrip()
            if bare.startswith("#"):
                match = _SOURCE.search(bare)
                current = (match[1], int(match[2]), match[3], match[4]) if match else None
            elif bare.startswith(("class ", "def ")):
                current = None
            sources.append(current)
        return sources

    def source(self, node: ast.stmt) -> tuple[str, int, str, str] | None:
        """Return file, line, function and code of a statement's source; `None` if not printed."""
        return self._sources[node.lineno - 1]

    def comment(self, node: ast.AST) -> str:
        """Return the comment after a node, on the line where the node ends; "" if there is none."""
        # Columns of `ast` count bytes.
        line = self.lines[node.end_lineno - 1].encode()  # type: ignore[attr-defined]
        match = _TRAILING.match(line[node.end_col_offset :].decode())  # type: ignore[attr-defined]
        return match[1].strip() if match else ""

    def segment(self, node: ast.expr) -> str:
        """Return the text of a single-line expression."""
        line = self.lines[node.lineno - 1].encode()
        return line[node.col_offset : node.end_col_offset].decode()

    def error(self, problem: str, line: int) -> PrintedGraphError:
        """Return the error for a line, given its 1-based number."""
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        return PrintedGraphError(problem, line, text)
