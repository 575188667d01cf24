"""All messages of the package, grouped by module: `python tests/messages.py [--lines] [PATH ...]`.

Read the output from top to bottom to check the wording. A message is a string literal that a user
can be shown. The syntax trees decide, without running anything:

- A literal with a space between words is a message, or a part of one: arguments of errors and
  warnings, option helps, and fragments that functions return, join or keep in tables. A single word
  is a key, a name or a value.
- Adjacent literals and `+` make one message. An f-string keeps its placeholders: short ones as
  they are, longer ones as `{…}`. Messages inside placeholders follow it.
- Left out: docstrings of modules, classes, functions and attributes; annotations and type aliases;
  subscripts and comparisons (`text == "a b"`); arguments of functions that match, split or search
  text, such as `re.compile`; and names of loggers.
- Left out too, because nobody reads them as text: lists of names (`"a b".split()`, and those of a
  `front_door` or a table `_NAMES`), regular expressions, and the CSS of pictures.

`--lines` adds the line number to each message. A PATH is a file or directory of the package.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "pytest_torchgraph"
WORDS = re.compile(r"[A-Za-z}'\"`)\],:;.] +\S|\S +[A-Za-z{'\"`(]")
MATCHING = frozenset(
    "compile search match fullmatch finditer findall sub split rsplit partition rpartition "
    "startswith endswith removeprefix removesuffix strip lstrip rstrip replace count find index "
    "getLogger literal_eval cast".split()
)
"""Functions and methods whose string arguments are not shown."""
REGEX = re.compile(r"\\[wdsbZ().\[]|\(\.[*+]|\(\?[:!]")
"""A part of a regular expression, which no message has."""
LONGEST_PLACEHOLDER = 28
"""Maximum length of an expression that is printed in a placeholder."""


def placeholder(node: ast.FormattedValue) -> str:
    code = ast.unparse(node.value)
    return f"{{{code}}}" if len(code) <= LONGEST_PLACEHOLDER and " " not in code else "{…}"


def literal(node: ast.AST) -> str | None:
    """Return the text of a string expression; `None` for any other expression."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.FormattedValue):
        return placeholder(node)
    if isinstance(node, ast.JoinedStr):
        return "".join(literal(part) or "" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = literal(node.left), literal(node.right)
        return None if left is None or right is None else left + right
    return None


def inner(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the expressions in the placeholders of a string expression."""
    if isinstance(node, ast.FormattedValue):
        yield node.value
    elif isinstance(node, (ast.JoinedStr, ast.BinOp)):
        for child in ast.iter_child_nodes(node):
            yield from inner(child)


def shown(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the children of a node that may hold messages."""
    if isinstance(node, ast.Expr) and literal(node.value) is not None:
        return  # a docstring
    if isinstance(node, (ast.Subscript, ast.Compare)):
        parts = [node.value] if isinstance(node, ast.Subscript) else [node.left, *node.comparators]
        yield from (part for part in parts if literal(part) is None)
    elif isinstance(node, ast.Call) and called(node.func) == "front_door":
        return
    elif isinstance(node, ast.Call) and called(node.func) in MATCHING:
        if not is_list_of_names(node):
            yield node.func
        yield from (part for part in node.args if literal(part) is None)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield from [*node.decorator_list, *node.args.defaults, *node.body]
        yield from (default for default in node.args.kw_defaults if default)
    elif isinstance(node, (ast.Assign, ast.AnnAssign)) and is_of_names(node):
        return
    elif isinstance(node, ast.AnnAssign):
        yield from [node.value] if node.value else []
    else:
        yield from ast.iter_child_nodes(node)


def called(function: ast.expr) -> str:
    """Return the name of a called function or method."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def is_of_names(node: ast.Assign | ast.AnnAssign) -> bool:
    """Return True for a type alias and for a table `_NAMES`."""
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    annotation = node.annotation if isinstance(node, ast.AnnAssign) else None
    return getattr(target, "id", "") == "_NAMES" or getattr(annotation, "id", "") == "TypeAlias"


def is_list_of_names(call: ast.Call) -> bool:
    """Return True for `"a b".split()`."""
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and function.attr == "split"
        and not call.args
        and literal(function.value) is not None
    )


def messages(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line number and text of each message, in order."""
    text = literal(node) if isinstance(node, ast.expr) else None
    if text is not None and WORDS.search(text.strip()) and not REGEX.search(text):
        yield getattr(node, "lineno", 0), text
    for child in shown(node) if text is None else inner(node):
        yield from messages(child)


def main(arguments: list[str]) -> None:
    roots = [Path(name) for name in arguments if name != "--lines"] or [PACKAGE]
    files = [file for root in roots for file in ([root] if root.is_file() else root.rglob("*.py"))]
    for file in sorted(files):
        name = file.resolve().relative_to(PACKAGE).as_posix()
        collected = [*messages(ast.parse(file.read_text(encoding="utf-8")))]
        if collected:
            print(f"\n## {name}\n")
        for line, text in collected:
            print((f"{line}: " if "--lines" in arguments else "") + text.strip("\n"))


if __name__ == "__main__":
    main(sys.argv[1:])
