"""Forms of source code around `assert_graph_text`: each is updated correctly or left untouched.

All of them are files of one project, which is updated once.
"""

# ruff: noqa: E501  A source in one line is read more easily than one in two.

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from projects import GRAPHS

HEAD = "from graphs import graph\nfrom pytest_torchgraph import assert_graph_text\n\n\n"
MODULE_HEAD = "import pytest_torchgraph\nfrom graphs import graph\n\n\n"


def body(indent: str, op: str = "relu", newline: str = "\n") -> str:
    """Return the counts of a graph with one op, as in a literal."""
    lines = ["forward {", f"  1 aten.{op}.default", "}"]
    return newline.join(indent + line for line in lines)


def exploded(
    base: str, literal: str = '"""', graph: str = 'graph("relu")', op: str = "relu"
) -> str:
    inner = f"{base}    "
    return (
        f"assert_graph_text(\n{inner}{graph},\n{inner}{literal}\n{body(inner, op)}\n"
        f'{inner}{literal[-3:]},\n{inner}detail="ops",\n{base})'
    )


def inline(base: str, literal: str = '"""', graph: str = 'graph("relu")', op: str = "relu") -> str:
    """Return the call of `ONE_LINE` after its update."""
    return (
        f"assert_graph_text({graph}, {literal}\n{body(base, op)}\n"
        f'{base}{literal[-3:]}, detail="ops")'
    )


ONE_LINE = 'assert_graph_text(graph("relu"), "", detail="ops")'
FULL = """forward {
  %x = input : f32[2, 16]
  %layer.0/relu = aten.relu.default(%x) : f32[2, 16]
  return %layer.0/relu
}"""


def full(indent: str) -> str:
    return "\n".join(indent + line for line in FULL.splitlines())


def case(before: str, after: str) -> tuple[str, str]:
    return HEAD + before, HEAD + after


def a_test(inside: str) -> str:
    return f"def test_it():\n    {inside}\n"


SHAPES: dict[str, tuple[str, str]] = {
    "empty": case(a_test(ONE_LINE), a_test(inline("    "))),
    "dataflow": case(
        a_test('assert_graph_text(graph("relu"), "")'),
        a_test(f'assert_graph_text(graph("relu"), """\n{full("    ")}\n    """)'),
    ),
    "single_quotes": case(
        a_test("assert_graph_text(graph('relu'), '', detail='ops')"),
        a_test(inline("    ", "'''", "graph('relu')").replace('"ops"', "'ops'")),
    ),
    "raw": case(a_test(ONE_LINE.replace('""', 'r""', 1)), a_test(inline("    ", 'r"""'))),
    "malformed": case(a_test(ONE_LINE.replace('""', '"nonsense"', 1)), a_test(inline("    "))),
    "old_triple": case(a_test(exploded("    ", op="sin")), a_test(exploded("    "))),
    "equal": case(a_test(exploded("    ")), a_test(exploded("    "))),
    "equal_with_header": case(
        a_test(
            'assert_graph_text(graph("relu"), """\n    torchgraph 1\n    via aot, detail ops\n\n'
            f'{body("    ")}\n    """, "ops")'
        ),
        a_test(
            'assert_graph_text(graph("relu"), """\n    torchgraph 1\n    via aot, detail ops\n\n'
            f'{body("    ")}\n    """, "ops")'
        ),
    ),
    "flush_left": case(
        a_test(f'assert_graph_text(graph("relu"), """\n{body("", "sin")}\n""", "ops")'),
        a_test(f'assert_graph_text(graph("relu"), """\n{body("")}\n""", "ops")'),
    ),
    "first_line_after_quotes": case(
        a_test(
            f'assert_graph_text(graph("relu"), """{body("        ", "sin").lstrip()}""", "ops")'
        ),
        a_test(f'assert_graph_text(graph("relu"), """\n{body("        ")}\n        """, "ops")'),
    ),
    "closing_elsewhere": case(
        a_test(
            f'assert_graph_text(graph("relu"), """\n{body("            ", "sin")}\n    """, "ops")'
        ),
        a_test(f'assert_graph_text(graph("relu"), """\n{body("            ")}\n    """, "ops")'),
    ),
    "backslash_after_quotes": case(
        a_test(
            f'assert_graph_text(graph("relu"), """\\\n{body("        ", "sin")}\n    """, "ops")'
        ),
        a_test(f'assert_graph_text(graph("relu"), """\n{body("        ")}\n    """, "ops")'),
    ),
    "own_lines": case(
        a_test(
            'assert_graph_text(\n        graph("relu"),\n        "",\n        detail="ops",\n    )'
        ),
        a_test(exploded("    ")),
    ),
    "comment_in_call": case(
        a_test(
            'assert_graph_text(\n        graph("relu"),  # a chain\n        "",\n        "ops",\n    )'
        ),
        a_test(
            'assert_graph_text(\n        graph("relu"),  # a chain\n        """\n'
            f'{body("        ")}\n        """,\n        "ops",\n    )'
        ),
    ),
    "comment_behind": case(a_test(f"{ONE_LINE}  # here"), a_test(f"{inline('    ')}  # here")),
    "keywords": case(
        a_test('assert_graph_text(capture_or_graph=graph("relu"), detail="ops", text="")'),
        a_test(
            'assert_graph_text(capture_or_graph=graph("relu"), detail="ops", text="""\n'
            f'{body("    ")}\n    """)'
        ),
    ),
    "module_attribute": (
        MODULE_HEAD + a_test(f"pytest_torchgraph.{ONE_LINE}"),
        MODULE_HEAD + a_test(f"pytest_torchgraph.{inline('    ')}"),
    ),
    "two_in_a_line": case(
        a_test(f"{ONE_LINE}; {ONE_LINE.replace('relu', 'sin')}"),
        a_test(f"{inline('    ')}; " + inline("    ", graph='graph("sin")', op="sin")),
    ),
    "inside_expression": case(
        a_test('assert assert_graph_text(graph("relu"), "", "ops") is None'),
        a_test(
            f'assert assert_graph_text(graph("relu"), """\n{body("    ")}\n    """, "ops") is None'
        ),
    ),
    "tabs": case(
        f"def test_it():\n\t{ONE_LINE}\n",
        f'def test_it():\n\tassert_graph_text(graph("relu"), """\n{body(chr(9))}\n\t""", detail="ops")\n',
    ),
    "crlf": tuple(
        text.replace("\n", "\r\n") for text in case(a_test(ONE_LINE), a_test(inline("    ")))
    ),
    "non_ascii": case(
        a_test(f'name = "Größe 図"; {ONE_LINE}'),
        a_test(f'name = "Größe 図"; {inline("    ")}'),
    ),
    "bom": tuple("\ufeff" + text for text in case(a_test(ONE_LINE), a_test(inline("    ")))),
    "decorators": case(
        "import functools\n\n\ndef twice(test):\n    @functools.wraps(test)\n"
        "    def both():\n        test()\n        test()\n\n    return both\n\n\n@twice\n"
        + a_test(ONE_LINE),
        "import functools\n\n\ndef twice(test):\n    @functools.wraps(test)\n"
        "    def both():\n        test()\n        test()\n\n    return both\n\n\n@twice\n"
        + a_test(inline("    ")),
    ),
    "parametrized_alike": case(
        "import pytest\n\n\n@pytest.mark.parametrize('n', [1, 2])\n"
        f"def test_it(n):\n    {ONE_LINE}\n",
        "import pytest\n\n\n@pytest.mark.parametrize('n', [1, 2])\n"
        f"def test_it(n):\n    {inline('    ')}\n",
    ),
    "loop": case(
        a_test(f"for _ in range(3):\n        {ONE_LINE}"),
        a_test(f"for _ in range(3):\n        {inline('        ')}"),
    ),
}
SHAPES["escaped_old_text"] = case(
    a_test(ONE_LINE.replace('""', r'"\x41\"\\"', 1)), a_test(inline("    "))
)

REFUSED: dict[str, tuple[str, str]] = {
    "f_string": (a_test(ONE_LINE.replace('""', 'f"{1}"', 1)), "the text is an f-string"),
    "variable": (a_test("text = ''\n    " + ONE_LINE.replace('""', "text", 1)), "not a literal"),
    "constant_joined": (
        a_test(ONE_LINE.replace('""', '"a" "b"', 1)),
        "the text consists of several literals: write a single one",
    ),
    "starred": (
        a_test('assert_graph_text(*(graph("relu"), ""), "ops")'),
        "multiple values|not a literal",
    ),
    "parametrized_apart": (
        "import pytest\n\n\n@pytest.mark.parametrize('op', ['relu', 'sin'])\n"
        "def test_it(op):\n    assert_graph_text(graph(op), '', 'ops')\n",
        "got two different graphs in test_parametrized_apart.py::test_it[relu] and "
        "test_parametrized_apart.py::test_it[sin]: ",
    ),
    "changed_meanwhile": (
        "import pathlib\n\n\n" + a_test(ONE_LINE) + "    path = pathlib.Path(__file__)\n"
        "    path.write_text(path.read_text() + '# more\\n')\n",
        "the file changed while the tests ran",
    ),
    "changed_before": (
        "import pathlib\n\npath = pathlib.Path(__file__)\n"
        "path.write_text(path.read_text().replace('\\n\\ndef', '\\n\\n\\n\\ndef'))\n\n\n"
        + a_test(ONE_LINE),
        "call not found in the file",
    ),
    "executed": (
        "SOURCE = '''assert_graph_text(graph(\"relu\"), \"\", \"ops\")'''\n\n\n"
        + a_test("exec(SOURCE)"),
        "cannot read the source",
    ),
    "latin_1": (
        "# -*- coding: latin-1 -*-\nname = 'ä'\n\n\n" + a_test(ONE_LINE),
        "cannot read the source as UTF-8",
    ),
}


def pytest_in(project: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "300"}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, "-m", "pytest", "-p", "pytest_torchgraph.plugin", "-q", *options]
    return subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, encoding="utf-8"
    )


def file_of(project: Path, name: str) -> Path:
    return project / f"test_{name}.py"


@pytest.fixture(scope="module")
def updated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the updated project and the output of the update."""
    project = tmp_path_factory.mktemp("shapes")
    (project / "pytest.ini").write_text("[pytest]\n")
    (project / "graphs.py").write_text(GRAPHS)
    for name, (before, _) in SHAPES.items():
        file_of(project, name).write_bytes(before.encode())
    for name, (source, _) in REFUSED.items():
        encoding = "latin-1" if name == "latin_1" else "utf-8"
        head = source.split("\n", 1)[0] + "\n" if name == "latin_1" else ""
        text = head + HEAD + source.removeprefix(head)
        file_of(project, name).write_bytes(text.encode(encoding))
    done = pytest_in(project, "--torchgraph-update", "--tb=short")
    assert done.returncode in (1, 2), done.stdout
    return project, done.stdout


if pytest.version_tuple < (9,):
    # pytest 8.0 rewrites an assertion without the position of a call in it, so the update is refused.
    del SHAPES["inside_expression"]


@pytest.mark.parametrize("name", SHAPES)
def test_update_writes_the_literal_and_nothing_else(name: str, updated: tuple[Path, str]) -> None:
    if name == "two_in_a_line" and sys.version_info < (3, 11):
        pytest.skip("only later Pythons know the column of a call, so neither is updated")
    assert file_of(updated[0], name).read_bytes().decode() == SHAPES[name][1]


@pytest.mark.parametrize("name", REFUSED)
def test_update_refuses_with_the_file_untouched(name: str, updated: tuple[Path, str]) -> None:
    project, output = updated
    encoding = "latin-1" if name == "latin_1" else "utf-8"
    now = file_of(project, name).read_bytes().decode(encoding)
    left = now.replace("\n\n\n\ndef", "\n\ndef") if name == "changed_before" else now
    assert left.removesuffix("# more\n").endswith(REFUSED[name][0].partition("\n")[2])
    refusals = [line for line in output.splitlines() if f"test_{name}.py" in line]
    if name == "executed":
        refusals = [line for line in output.splitlines() if "<string>:1" in line]
    assert any(reason in line for line in refusals for reason in REFUSED[name][1].split("|")), (
        "\n".join(refusals)
    )


@pytest.mark.slow("a run of pytest of its own")
def test_updated_files_pass_without_an_update(updated: tuple[Path, str]) -> None:
    done = pytest_in(updated[0], *(f"test_{name}.py" for name in SHAPES))
    assert done.returncode == 0, done.stdout


FORMATTED = ["own_lines", "comment_in_call", "old_triple"]


def test_formatted_files_stay_formatted(updated: tuple[Path, str], tmp_path: Path) -> None:
    pytest.importorskip("ruff")
    for name in FORMATTED:
        (tmp_path / f"{name}_before.py").write_text(SHAPES[name][0])
        (tmp_path / f"{name}_after.py").write_text(file_of(updated[0], name).read_text())
    command = [sys.executable, "-m", "ruff", "format", "--check", "--isolated", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
