"""Two different edits are two findings, even if both are on one line."""

from __future__ import annotations

import importlib.util
import itertools
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import pytest_torchgraph
from pytest_torchgraph import Capture, Export
from pytest_torchgraph.graph import merge_edits

CODE = """
import torch
from torch import nn
from torch.nn import functional as F

def helper(x, dim=-1, way=F.relu):
    {helper}

class Part(nn.Module):
    def __init__(self, dim=-1, way=F.relu):
        super().__init__()
        self.dim, self.way, self.fc = dim, way, nn.Linear(4, 4)
    def forward(self, x):
        {part}

class First(nn.Module):
    def forward(self, x):
        {first}

class Second(nn.Module):
    def forward(self, x):
        {second}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, x, y):
        {line}
"""
"""A module's file. In the pieces, `«old|new»` is an edit; a file has two edits."""

PIECES = {
    "helper": "return x.exp()",
    "part": "return self.fc(x)",
    "first": "return x.sin()",
    "second": "return x.cos()",
    "init": "pass",
    "line": "return self.first(x)",
}

SAME_LINE = {
    "two ops exchanged": "return «F.relu|F.gelu»(x) + «torch.sin|torch.tanh»(y)",
    "one op exchanged for two ops": "return «F.relu|F.gelu»(x.sin()) + «F.relu|F.silu»(y.cos())",
    "two changed, in a chain": "return «F.relu|F.gelu»(«F.relu|F.gelu»(x).sin())",
    "a clone before and after": "return F.relu(x.sin()«|.clone()») @ y.exp()«|.clone()»",
    "a clone on each operand": "return torch.mm(x«|.clone()», y«|.clone()»)",
    "a negation and a clone": "return torch.mm(x«|.neg()», y«|.clone()»)",
    "an added and a removed op": "return x«|.neg()».sin() * y«.abs()|».cos()",
    "two methods of one name in a chain": "return x.sin()«|.neg()».exp()«|.neg()».cos() * y",
    "two dimensions": "return F.softmax(x, «0|1») + F.softmax(y.sin(), «1|0»)",
    "one dimension in two calls": "return x.exp().mean(«0|1») + y.sin().mean(«0|1»)",
    "two constants": "return (x * «2.0|3.0») + (y * «4.0|5.0»)",
    "an op with other arguments": "return x.«sum(0)|mean(0)» + y.«sum(1)|mean(1)»",
    "the operand of one op and another op": "return torch.mm(«x|y», y.sin()) + «F.relu|F.gelu»(x)",
    "a cast and an op": "return (x«|.double().float()» @ y).sin() + «F.relu|F.gelu»(y)",
}
"""Lines of `forward` with two edits."""

OTHERS = {
    "two lines, the same op": {
        "line": "x = «F.relu|F.gelu»(x)\n        return «F.relu|F.gelu»(x @ y)"
    },
    "two modules at a line, one class": {
        "init": "self.a, self.b = Part(way=«F.relu|F.gelu»), Part(way=«F.relu|F.gelu»)",
        "part": "return self.way(self.fc(x))",
        "line": "return self.b(self.a(x).sin()) * y",
        "expected": "1",  # one line of the class, one change of its ops
    },
    "two modules at a line, other ops": {
        "init": "self.a, self.b = Part(way=«F.relu|F.gelu»), Part(way=«F.relu|F.silu»)",
        "part": "return self.way(self.fc(x))",
        "line": "return self.b(self.a(x).sin()) * y",
    },
    "two modules of torch at a line": {
        "init": "self.a, self.b = nn.«ReLU|GELU»(), nn.«ReLU|GELU»()",
        "line": "return self.b(self.a(x).sin()) * y",
    },
    "two modules with other dimensions": {
        "init": "self.a, self.b = Part(dim=«0|1»), Part(dim=«1|0»)",
        "part": "return F.softmax(self.fc(x), self.dim)",
        "line": "return self.b(self.a(x).sin()) * y",
    },
    "the lines of two classes": {
        "init": "self.a, self.b = First(), Second()",
        "first": "return x.sin()«|.clone()»",
        "second": "return x.cos()«|.clone()»",
        "line": "return self.b(self.a(x)) * y",
    },
    "a class and its caller": {
        "init": "self.a, self.b = First(), Second()",
        "first": "return x.sin()«|.clone()»",
        "line": "return (self.b(self.a(x)) * y)«|.clone()»",
    },
    "a helper, and the caller of it": {
        "helper": "return x.exp()«|.clone()»",
        "line": "return helper(x).sin()«|.clone()» * y",
    },
    "a helper with two changes at a line": {
        "helper": "return x.exp()«|.neg()».cos()«|.neg()».sin()",
        "line": "return helper(helper(x) * y)",
    },
    "a helper of two modules, one caller changed, and the other": {
        "helper": "return way(x.exp())",
        "first": "return helper(x.sin(), way=«F.relu|F.gelu»)",
        "second": "return helper(x.cos(), way=«F.relu|F.silu»)",
        "init": "self.a, self.b = First(), Second()",
        "line": "return self.b(self.a(x)) * y",
    },
    "a helper of two modules, one caller gives it another op, and the helper has one": {
        "helper": "return way(x.exp())«|.neg()»",
        "first": "return helper(x.sin(), way=«F.relu|F.gelu»)",
        "second": "return helper(x.cos())",
        "init": "self.a, self.b = First(), Second()",
        "line": "return self.b(self.a(x)) * y",
    },
    "a helper of two modules with other dimensions": {
        "helper": "return F.softmax(x, dim)",
        "first": "return helper(x.sin(), «0|1»)",
        "second": "return helper(x.cos(), «1|0»)",
        "init": "self.a, self.b = First(), Second()",
        "line": "return self.b(self.a(x)) * y",
    },
    "a helper and one of its two calls at a line": {
        "helper": "return x.exp()«|.neg()»",
        "line": "return helper(x).sin() + helper(y«|.neg()».cos())",
    },
    "a shared module, and an op after one call of it": {
        "part": "return self.fc(x)«|.clone()»",
        "init": "self.a = Part()",
        "line": "return self.a(self.a(x).sin()«|.clone()») * y",
    },
    "a layer's line, in one layer another": {
        "part": "return self.way(self.fc(x)«|.clone()»)",
        "init": "self.layers = nn.Sequential(Part(), Part(way=«F.relu|F.gelu»), Part())",
        "line": "return self.layers(x) * y",
    },
    "two lines of a layer": {
        "part": "x = self.fc(x)«|.clone()»\n        return x.sin()«|.clone()»",
        "init": "self.layers = nn.Sequential(Part(), Part(), Part())",
        "line": "return self.layers(x) * y",
    },
}
"""Pieces with two edits in two lines, classes, modules or callers."""

PAIRS = {name: {"line": line} for name, line in SAME_LINE.items()} | OTHERS
EDIT = re.compile(r"«([^|«»]*)\|([^|«»]*)»")


def module(path: Path, pieces: dict[str, str], *made: int) -> ModuleType:
    """Import the module of these pieces with the given edits (0, 1) applied."""
    text = CODE.format(**{**PIECES, **pieces})
    edits = iter(range(2))
    text = EDIT.sub(lambda match: match[2] if next(edits) in made else match[1], text)
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def captured(path: Path, pieces: dict[str, str], via: str | Export, *made: int) -> Capture:
    code = module(path, pieces, *made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, code.__name__, code)  # a strict export imports it
        inputs = torch.ones(4, 4), torch.ones(4, 4)
        return pytest_torchgraph.capture(code.Model(), *inputs, via=via, backward=False)


IN_ONE_LINE = {
    "two changed, in a chain",
    "a clone before and after",
    "a clone on each operand",
    "two methods of one name in a chain",
    "one dimension in two calls",
    "a helper with two changes at a line",
}

WAYS = {"aot": "aot", "export": "export", "strict": Export(strict=True), "dispatch": "dispatch"}


@pytest.mark.slow("further backends", unless=["dispatch-*"])
@pytest.mark.parametrize(
    ("via", "name"),
    [
        *(("dispatch", name) for name in PAIRS),
        *zip(itertools.cycle(["aot", "export", "strict"]), [*PAIRS][::3], strict=False),
    ],
)
def test_two_different_edits_are_two_findings(via: str, name: str, tmp_path: Path) -> None:
    if name in IN_ONE_LINE and sys.version_info < (3, 11):
        pytest.skip("only later Pythons know the columns of an op")
    pieces = dict(PAIRS[name])
    assert sum(len(EDIT.findall(piece)) for piece in pieces.values()) == 2
    expected = int(pieces.pop("expected", "2"))
    path = tmp_path / "edited.py"
    before = captured(path, pieces, WAYS[via])
    # A new path, because Python's cache of source lines holds the old file.
    path = tmp_path / "new" / path.name
    path.parent.mkdir()
    diff = pytest_torchgraph.diff(before, captured(path, pieces, WAYS[via], 0, 1))
    assert len(diff.findings) == expected, str(diff)
    causes = merge_edits([(test, finding) for test in "ab" for finding in diff.findings])
    assert [cause.files for cause in causes] == [("a", "b")] * expected


SAME = {
    "a helper called at two lines": {
        "helper": "return x.exp()«|.clone()»",
        "line": "x = helper(x) @ y\n        return helper(x).cos()",
    },
    "a helper called twice at a line, once in a call of itself": {
        "helper": "return x.exp()«|.clone()»",
        "line": "return helper(helper(x).cos() @ y)",
    },
    "a helper of two modules": {
        "helper": "return x.exp()«|.clone()»",
        "first": "return helper(x.sin())",
        "second": "return helper(x).cos()",
        "init": "self.a, self.b = First(), Second()",
        "line": "return self.b(self.a(x)) @ y",
    },
}
"""Pieces with one edit of a helper that is called twice."""


@pytest.mark.slow("further backends", unless=["dispatch-*"])
@pytest.mark.parametrize(
    ("via", "name"), [*(("dispatch", n) for n in SAME), *zip(WAYS, SAME, strict=False)]
)
def test_edit_of_a_helper_is_one_finding(via: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "edited.py"
    before = captured(path, SAME[name], WAYS[via])
    path = tmp_path / "new" / path.name
    path.parent.mkdir()
    (finding,) = pytest_torchgraph.diff(before, captured(path, SAME[name], WAYS[via], 0)).findings
    assert len(finding.places) == 2
    assert finding.source is not None
    assert finding.source.code == "return x.exp().clone()"
