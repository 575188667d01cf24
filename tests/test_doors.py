"""Front doors of the package's rooms: `__init__` modules that import their names on first use."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import pytest_torchgraph

PACKAGE = Path(pytest_torchgraph.__file__).parent
TESTS = Path(__file__).parent

MOST_DEEP_IMPORTS = 150
"""Allowed imports of modules below a room's `__init__` in all tests.

A test that needs another one imports it through the front door, or uses the public API.
"""

DOORS = sorted(
    path.parent.relative_to(PACKAGE.parent).as_posix().replace("/", ".")
    for path in PACKAGE.rglob("__init__.py")
    if "front_door(" in path.read_text(encoding="utf-8")
)


@pytest.mark.slow("parses all tests")
def test_tests_import_at_the_front_doors() -> None:
    deep = [
        f"{path.relative_to(TESTS).as_posix()}:{node.lineno}"
        for path in sorted(TESTS.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for module in imported(node)
        if module.startswith("pytest_torchgraph.") and module.count(".") > 1
    ]
    assert 0 < len(deep) <= MOST_DEEP_IMPORTS, f"{len(deep)} deep imports:\n" + "\n".join(deep)


def imported(node: ast.AST) -> list[str]:
    """List the modules that an import statement names."""
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


@pytest.mark.parametrize("package", DOORS)
def test_front_door_names_what_type_checkers_see(package: str) -> None:
    door = importlib.import_module(package)
    init = Path(door.__file__ or "")
    tree = ast.parse(init.read_text(encoding="utf-8"))
    seen = {
        (alias.asname or alias.name): node.module
        for branch in tree.body
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
        for node in branch.body
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for alias in node.names
    }
    [table] = [
        ast.literal_eval(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict) and node.keys
    ]
    assert {name: module for module, names in table.items() for name in names.split()} == seen
    for name, module in seen.items():
        defined = importlib.import_module(f"{package}.{module}")
        assert getattr(door, name) is getattr(defined, name)
    # Importing a module of the package would replace a name of the door.
    modules = {path.stem for path in init.parent.iterdir() if path.suffix in ("", ".py")}
    assert seen.keys() & modules == set()


def test_each_subfolder_of_a_room_has_a_contract() -> None:
    pyproject = TESTS.parent / "pyproject.toml"
    protected = re.findall(
        r'^protected_modules = \["(.+)\.\*"\]$', pyproject.read_text("utf-8"), re.M
    )
    subfolders = [
        path.parent.relative_to(PACKAGE.parent).as_posix().replace("/", ".")
        for path in PACKAGE.glob("*/*/__init__.py")
    ]
    assert sorted(protected) == sorted(subfolders)


def test_front_door_refuses_an_unknown_name() -> None:
    graph = importlib.import_module("pytest_torchgraph.graph")
    with pytest.raises(AttributeError, match=r"graph' has no attribute 'Grpah'"):
        _ = graph.Grpah
