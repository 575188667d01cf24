"""Text of a stranger is printed through `one_line`, and no module prints in another way."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pytest_torchgraph
from pytest_torchgraph.words import amount, markdown_text, one_line, printable

PACKAGE = Path(pytest_torchgraph.__file__).parent
PRINTING = frozenset({"line", "write_line", "section", "write_sep", "write", "ensure_newline"})
"""Methods of pytest's terminal reporter that print their argument."""
CALLED = PRINTING | {"print", "append", "add_global_property", "warn"}
"""Names of all functions that print, or add a text to what is printed."""
STREAMS = frozenset({"files.py", "cli/__init__.py", "__main__.py", "cli/review/__init__.py"})
"""Modules that may use stdout: for the safe stream, its encoding, `isatty`, and to flush it."""
SAFE = ("one_line", "printable", "annotation.command")
"""Functions whose result is safe to print. An annotation is a command, made of safe texts."""


def violations(file: str, source: str) -> list[str]:
    """List the places of a module at which a text is printed without `one_line`."""
    found = [node for node in ast.walk(ast.parse(source)) if is_unsafe(node, file)]
    return [f"{file}:{node.lineno}: {ast.unparse(node)}" for node in found]


def is_unsafe(node: ast.AST, file: str) -> bool:
    if isinstance(node, ast.Attribute) and node.attr in ("stdout", "stderr"):
        return file not in STREAMS and ast.unparse(node.value) == "sys"
    if isinstance(node, ast.Assign) and "longrepr" in ast.unparse(node.targets[0]):
        return not is_safe(node.value)
    if isinstance(node, ast.AugAssign) and "user_properties" in ast.unparse(node.target):
        return file != "report/surfaces/junit.py"
    if not isinstance(node, ast.Call) or name_of(node.func) not in CALLED:
        return False
    function = ast.unparse(node.func)
    if function == "print":
        return not file.startswith("cli/")
    owner, _, method = function.rpartition(".")
    printed = (owner.endswith("reporter") and method in PRINTING) or (
        function.endswith(
            ("report.sections.append", "user_properties.append", "add_global_property")
        )
    )
    outside = function in ("warnings.warn", "os.write")
    return outside or (printed and not is_safe(node.args[-1]))


def name_of(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def is_safe(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple):
        return all(map(is_safe, node.elts))
    text = ast.unparse(node)
    joined = text.startswith("'\\n'.join(map(one_line, ")
    counted = text.startswith("str(")
    return isinstance(node, ast.Constant | ast.List) or joined or counted or text.startswith(SAFE)


@pytest.mark.slow("parses the whole package")
def test_nothing_is_printed_around_one_line() -> None:
    modules = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py")}
    sources = {file: path.read_text(encoding="utf-8") for file, path in modules.items()}
    assert sum(source.count("one_line(") for source in sources.values()) > 30
    found = [place for file, source in sources.items() for place in violations(file, source)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        *('print("x")', "sys.stderr.write(x)", "reporter.line(x)", 'terminalreporter.line(f"{x}")'),
        *("self.reporter.section(x)", 'report.sections.append(("torchgraph", x))'),
        *('item.user_properties.append(("a", x))', "report.user_properties += x"),
        *("report.longrepr = x", "warnings.warn(x)"),
    ],
)
def test_printing_around_one_line_is_found(line: str) -> None:
    assert violations("report/causes.py", line)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("::error::x", "?:error::x"),
        ("  ::add-mask::x", "  ?:add-mask::x"),
        ("\t::error::", "    ?:error::"),
        ("test_a.py::test_b", "test_a.py::test_b"),
        ("a ##[add-mask]b", "a ?#[add-mask]b"),
        ("##vso[task.complete]", "?#vso[task.complete]"),
        (
            "a\x1b[31m\x9b\u202e\u2066\r\n\x85\u2028\ud800b",
            "a?[31m?????????b".replace("????", "???", 1),
        ),
        ("é图 ñ", "é图 ñ"),
        ("a\u200bb", r"a\u200bb"),
        ("a\u3164\u2800b\ufe0f", r"a\u3164\u2800b\ufe0f"),
        ("a\u00a0b\u200e", r"a\xa0b\u200e"),
    ],
)
def test_one_line_has_no_command(text: str, line: str) -> None:
    assert one_line(text) == line
    assert one_line(one_line(text)) == line


def test_printable_checks_each_line() -> None:
    assert printable("a\n::error::\x1b\n") == "a\n?:error::?\n"
    assert printable("a\nb\u3164\n") == "a\nb\\u3164\n"


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("- a", "&#45; a"),
        ("12. a", "&#49;2. a"),
        ("=", "&#61;"),
        ("a.py:100: x", "a.py&#58;100: x"),
        ("\x1b\u202e<b>", "??&#60;b>"),
    ],
)
def test_markdown_text_is_no_markup(text: str, markdown: str) -> None:
    assert markdown_text(text) == markdown


def test_amounts_beyond_floats_are_capped() -> None:
    assert amount(10**400, "B") == "> 1,000,000.0 EB"
    assert amount(-(10**400), "B") == "-> 1,000,000.0 EB"
    assert amount(999 * 10**18, "B") == "999.0 EB"
