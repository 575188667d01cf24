"""Suites for trying `--torchgraph-audit`: `python benchmarks/audit_suites.py KIND FOLDER`.

trivial   500 tests that do nothing
eager     300 tests of about 20 small ops of torch, none compiled
causes    500 tests, most of which compile, with 20 causes in models/ and in the tests
"""

from __future__ import annotations

import sys
from pathlib import Path

TRIVIAL = "\n\n".join(f"def test_{n}():\n    assert {n} + 1" for n in range(100))

EAGER = '''"""Eager tests."""

import pytest
import torch


@pytest.mark.parametrize("size", range(100))
def test_ops(size):
    x = torch.ones(size % 7 + 3)
    for _ in range(5):
        x = (x.sin() + 1).cos() * 0.5
    assert x.sum() < 100
'''

MODELS = '''"""Functions that Dynamo breaks in, each in a way of its own."""

import torch


def helper(x):
    return x * 2


def clean(x):
    return (x.sin() + 1).cos()


'''

BREAKS = {
    "prints": 'print("shape", x.shape)',
    "item": "scale = x.sum().item()",
    "branches": "x = x * 2 if x.sum() > 0 else x - 1",
    "breaks": "torch._dynamo.graph_break()",
    "opens": 'open("/dev/null").close()',
    "numbers": "x = x + float(x.max())",
    "lists": "values = x.tolist()",
    "ids": "key = hash(open)",
    "repr_of": "text = repr(x)",
    "nonzero": "rows = x.nonzero()",
    "unique": "x = x + torch.unique(x).sum()",
    "data_ptr": "address = x.data_ptr()",
    "warns": "torch._dynamo.disable(helper)(x)",
    "with_a_name_so_long_that_it_does_not_fit_into_the_columns_of_a_terminal": "int(x.sum())",
}

CONFTEST = '''"""Most tests begin with a fresh compiler, as in suites that know it."""

import pytest
import torch
import torch._dynamo


@pytest.fixture(autouse=True)
def fresh(request):
    if "items" not in request.node.name:
        torch._dynamo.reset()
'''

TESTS = '''"""Tests of compiled functions."""

import pytest
import torch
from models import functions


def compiled(function, **how):
    return torch.compile(function, backend="eager", **how)


class TestCompiled:
    @pytest.mark.parametrize("size", range(2, 8))
    @pytest.mark.parametrize("name", NAMES)
    def test_runs(self, name, size):
        compiled(getattr(functions, name), dynamic=False)(torch.ones(size))

    @pytest.mark.parametrize("size", range(2, 7))
    def test_clean_code_has_no_break(self, size):
        compiled(functions.clean)(torch.ones(size))


@pytest.mark.parametrize("value", range(12))
def test_items_of_a_dictionary_are_read_without_any_op(value):
    compiled(lambda x: {"value": value})(torch.ones(2))


@pytest.mark.parametrize("value", range(4))
def test_is_only_compiled(value):
    compiled(functions.clean)


def test_sizes():
    call = compiled(functions.clean, dynamic=False)
    for size in range(2, 13):
        call(torch.ones(size))


@pytest.mark.parametrize("value", range(30))
def test_eager(value):
    assert functions.clean(torch.ones(2)).sum() < 0


def test_leaves_a_setting():
    torch._dynamo.config.verbose = True
'''


def write(kind: str, folder: Path) -> None:
    """Write a suite into a folder."""
    if kind == "trivial":
        files = {f"test_trivial_{n}.py": TRIVIAL for n in range(5)}
    elif kind == "eager":
        files = {f"test_eager_{n}.py": EAGER for n in range(3)}
    else:
        models = "\n\n".join(
            f"def {name}(x):\n    x = x.sin()\n    {line}\n    return x.cos()\n"
            for name, line in BREAKS.items()
        )
        names = list(BREAKS)
        files = {
            "conftest.py": CONFTEST,
            "models/__init__.py": "",
            "models/functions.py": MODELS + models,
        }
        for number in range(5):
            own = names[number * 3 :][:3] + names[:4]
            files[f"test_compiled_{number}.py"] = TESTS.replace("NAMES", repr(own))
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]))
