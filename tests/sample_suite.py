"""A library and a suite that do not use the plugin, with edits for the worse and the better.

Much compiled code is shared: functions compiled at import, a helper that they all call, and a
model compiled by a session fixture. The compilations of a test there depend on the tests before
it.
"""

from __future__ import annotations

from dataclasses import dataclass

LIBRARY = """
import time

import torch
from torch import nn


def scale(x, factor):
    return x * factor


def normalize(x):
    return (x - x.mean()) / (x.std() + 1e-6)


@torch.compile(backend="aot_eager")
def activation(x):
    return scale(normalize(x), 2.0).relu()


@torch.compile(backend="eager", dynamic=True)
def pool(x, most):
    return normalize(x).clamp(max=most)


@torch.compile(backend="eager")
def traced(x):
    y = scale(x, 3.0)
    print("traced")
    return y + 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 4)

    def forward(self, x):
        hidden = scale(self.first(x), 0.5).relu()
        return self.second(hidden)


def chain(x):
    y = x.sin() * 2
    y = y.cos() + 1
    return y.exp()


def loop(x, steps):
    for step in range(steps):
        x = x.sin() + step
    return x.cos()


def reports(x):
    x = reported(x)
    x = reported(x)
    return x.sin()


def reported(x):
    print("reported")
    return x + 1


def sized(x):
    return x.flatten().softmax(0)


def choose(x, how):
    return x.sin() if how else x.cos()


def guarded(x, times=1):
    y = x.sin()
    return y.cos()


def trained(weight, x):
    hidden = (weight * x).tanh()
    return hidden.pow(2).mean()


def describe(x):
    return tuple(x.shape)


def pipeline(x):
    x = prepare(x)
    return finish(x)


def prepare(x):
    return (x - 1) * x.abs()


def finish(x):
    return (x + 1).sqrt().sum()


class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        self.decoder = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x):
        return self.decode(self.encoder(x))

    def decode(self, x):
        return self.decoder(x) * 2
"""

CONFTEST = """
import pytest
import torch

import net


@pytest.fixture(scope="session")
def compiled_net():
    compiled = torch.compile(net.Net(), backend="eager")
    compiled(torch.ones(2, 4))
    return compiled
"""

SHARED = """
import pytest
import torch

import net


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_activation(size):
    net.activation(torch.linspace(-1, 1, size))


def test_activation_backward():
    net.activation(torch.linspace(-1, 1, 3, requires_grad=True)).sum().backward()


@pytest.mark.parametrize("size", [3, 6])
def test_pool(size):
    net.pool(torch.linspace(-1, 1, size), 0.5)


def test_pool_and_activation():
    net.activation(net.pool(torch.linspace(-1, 1, 7), 0.5))


@pytest.mark.parametrize("size", [3, 4])
def test_traced(size):
    net.traced(torch.ones(size))


@pytest.mark.parametrize("size", [2, 3])
def test_compiled_net(compiled_net, size):
    compiled_net(torch.ones(size, 4))


def test_compiled_net_backward(compiled_net):
    compiled_net(torch.ones(2, 4)).sum().backward()


@pytest.mark.parametrize("size", [2, 3])
def test_net(size):
    torch.compile(net.Net(), backend="eager")(torch.ones(size, 4))
"""

OWN = """
import pytest
import torch

import net


def test_chain():
    torch.compile(net.chain, backend="eager")(torch.ones(3))


def test_fullgraph():
    torch.compile(lambda x: x.sin() + 1, backend="eager", fullgraph=True)(torch.ones(3))


def test_loop():
    torch.compile(net.loop, backend="eager")(torch.ones(3), 4)


def test_reports():
    torch.compile(net.reports, backend="eager")(torch.ones(3))


def test_sized():
    compiled = torch.compile(net.sized, backend="eager", dynamic=True)
    for size in (3, 4, 5):
        compiled(torch.ones(size))


def test_choose():
    compiled = torch.compile(net.choose, backend="eager")
    for how in (True, False):
        compiled(torch.ones(3), how)


def test_guarded():
    compiled = torch.compile(net.guarded, backend="eager")
    for times in (1.5, 2.5, 3.5):
        compiled(torch.ones(3), times)


def test_trained():
    weight = torch.ones(3, requires_grad=True)
    torch.compile(net.trained, backend="aot_eager")(weight, torch.ones(3)).backward()


def test_describe():
    assert torch.compile(net.describe, backend="eager")(torch.ones(3)) == (3,)


def test_pipeline():
    torch.compile(net.pipeline, backend="eager")(torch.ones(3))


def test_half():
    torch.compile(net.Half(), backend="eager")(torch.ones(2, 4))


def test_eager():
    net.chain(torch.ones(3))


@pytest.mark.xfail(strict=True)
def test_expected():
    assert torch.compile(lambda x: x.sin(), backend="eager")(torch.ones(3)).sum() == 7


@pytest.mark.skip(reason="not today")
def test_skipped():
    torch.compile(net.chain, backend="eager")(torch.ones(3))
"""

FILES = {
    "net.py": LIBRARY,
    "conftest.py": CONFTEST,
    "test_shared.py": SHARED,
    "test_own.py": OWN,
}


@dataclass(frozen=True)
class Edit:
    """A change of the suite.

    Attributes:
        name: a description.
        file: the file that is edited.
        old, new: the text, and its replacement.
        at: part of the line that must be named, in `net.py` unless `where` is given; "" if no
            line is named.
        says: another expected part of the message.
        where: the file of that line.
    """

    name: str
    file: str
    old: str
    new: str
    at: str = ""
    says: str = ""
    where: str = "net.py"

    def applied(self, files: dict[str, str]) -> dict[str, str]:
        """Return the files with this change."""
        assert files[self.file].count(self.old) == 1, (self.name, files[self.file].count(self.old))
        return {**files, self.file: files[self.file].replace(self.old, self.new)}

    def place(self, files: dict[str, str]) -> str:
        """Return the place that must be named, in the changed files."""
        if not self.at:
            return ""
        lines = files[self.where].splitlines()
        (number,) = (n for n, line in enumerate(lines, 1) if self.at in line)
        return f"{self.where}:{number} "


PART_DETACHED = "part of a graph is detached"
"""It has no visible effect: there are more ops, not fewer, and the backward graph still runs."""

COS = "    y = y.cos() + 1\n"
CALL = '    torch.compile(net.chain, backend="eager")(torch.ones(3))\n\n\ndef test_full'

REGRESSIONS = (
    Edit("print", "net.py", COS, COS + "    print('chain')\n", "print('chain')"),
    Edit("item", "net.py", COS, COS + "    y = y * y.sum().item()\n", ".item()"),
    Edit(
        "if on data",
        "net.py",
        COS,
        COS + "    if y.sum() > 0:\n        y = -y\n",
        "if y.sum() > 0:",
    ),
    Edit("graph_break()", "net.py", COS, COS + "    torch._dynamo.graph_break()\n", "graph_break"),
    Edit(
        "break in a loop",
        "net.py",
        "        x = x.sin() + step\n",
        "        x = x.sin() + step\n        print('step')\n",
        "print('step')",
    ),
    Edit(
        "compiler.disable",
        "net.py",
        "def finish(x):",
        "@torch.compiler.disable\ndef finish(x):",
        "return finish(x)",
    ),
    Edit(
        "suppressed errors",
        "test_own.py",
        '    torch.compile(net.pipeline, backend="eager")(torch.ones(3))\n',
        "    def fails(graph, inputs):\n        raise RuntimeError('no kernel')\n\n"
        "    with torch._dynamo.config.patch(suppress_errors=True):\n"
        "        torch.compile(net.pipeline, backend=fails)(torch.ones(3))\n",
        "def pipeline(x):",
    ),
    Edit(
        "nothing compiled",
        "net.py",
        "    y = x.sin() * 2\n" + COS + "    return y.exp()\n",
        "    return tuple(x.shape)\n",
        "def chain(x):",
        "nothing compiled",
    ),
    Edit(
        "ops moved out",
        "test_own.py",
        '    torch.compile(net.pipeline, backend="eager")(torch.ones(3))\n',
        '    net.finish(torch.compile(net.prepare, backend="eager")(torch.ones(3)))\n',
        "def prepare(x):",
        "fewer ops",
    ),
    Edit(
        "compiled and never called",
        "test_own.py",
        CALL,
        CALL.replace("\n\n\n", "\n", 1).replace(
            '    torch.compile(net.chain, backend="eager")(torch.ones(3))\n',
            '    compiled = torch.compile(net.chain, backend="eager")\n'
            "    net.chain(torch.ones(3))\n\n\n",
        ),
        "compiled = torch.compile(net.chain",
        where="test_own.py",
    ),
    Edit(
        "dynamic=False",
        "test_own.py",
        'net.sized, backend="eager", dynamic=True',
        'net.sized, backend="eager", dynamic=False',
        "def sized(x):",
        "recompiled",
    ),
    Edit(
        "a guard",
        "net.py",
        "    y = x.sin()\n    return y.cos()\n",
        "    y = x.sin()\n    return y.cos() * int(times)\n",
        "def guarded(x",
        "recompiled",
    ),
    Edit(
        "fullgraph dropped, and a break",
        "test_own.py",
        'lambda x: x.sin() + 1, backend="eager", fullgraph=True',
        'lambda x: x.sin() + 1 * x.sum().item(), backend="eager"',
        "x.sum().item()",
        where="test_own.py",
    ),
    Edit(
        "another backend",
        "test_own.py",
        'torch.compile(net.pipeline, backend="eager")',
        'torch.compile(net.pipeline, backend="aot_eager")',
        "def pipeline(x):",
        "backend changed: eager -> aot_eager",
    ),
    Edit(
        "no_grad",
        "test_own.py",
        '    torch.compile(net.trained, backend="aot_eager")(weight, torch.ones(3)).backward()\n',
        "    with torch.no_grad():\n"
        '        torch.compile(net.trained, backend="aot_eager")(weight, torch.ones(3))\n',
        "def trained(weight",
        "fewer backward graphs ran: 1 -> 0",
    ),
    Edit(
        PART_DETACHED,
        "net.py",
        "    return hidden.pow(2).mean()\n",
        "    return hidden.detach().pow(2).mean() + 0 * weight.sum()\n",
        "def trained(weight",
    ),
    Edit(
        "a test that returns early",
        "test_own.py",
        "def test_pipeline():\n",
        "def test_pipeline():\n    return\n",
        "def test_pipeline():",
        "no longer uses torch.compile",
        where="test_own.py",
    ),
    Edit(
        "torch.compile removed",
        "test_own.py",
        'torch.compile(net.pipeline, backend="eager")(torch.ones(3))',
        "net.pipeline(torch.ones(3))",
        "def test_pipeline():",
        "no longer uses torch.compile",
        where="test_own.py",
    ),
    Edit(
        "a known break more often",
        "net.py",
        "    x = reported(x)\n    return x.sin()\n",
        "    x = reported(x)\n    x = reported(x.cos())\n    return x.sin()\n",
        'print("reported")',
        "times",
    ),
    Edit(
        "a limit lowered",
        "test_own.py",
        '    compiled = torch.compile(net.choose, backend="eager")\n',
        "    torch._dynamo.config.recompile_limit = 1\n"
        '    compiled = torch.compile(net.choose, backend="eager")\n',
        "def choose(x",
        "limit",
    ),
    Edit(
        "stance force_eager",
        "test_own.py",
        '    torch.compile(net.loop, backend="eager")(torch.ones(3), 4)\n',
        '    with torch.compiler.set_stance("force_eager"):\n'
        '        torch.compile(net.loop, backend="eager")(torch.ones(3), 4)\n',
        "def loop(x",
        "nothing compiled: torch.compiler.set_stance",
    ),
    Edit(
        "stance eager_on_recompile",
        "test_own.py",
        '    compiled = torch.compile(net.choose, backend="eager")\n',
        '    torch.compiler.set_stance("eager_on_recompile")\n'
        '    compiled = torch.compile(net.choose, backend="eager")\n',
        "def choose(x",
    ),
    Edit(
        "half of the model",
        "test_own.py",
        '    torch.compile(net.Half(), backend="eager")(torch.ones(2, 4))\n',
        "    half = net.Half()\n"
        '    half.decode(torch.compile(half.encoder, backend="eager")(torch.ones(2, 4)))\n',
        "",
        "fewer ops",
    ),
    Edit(
        "a break in shared code",
        "net.py",
        "    return scale(normalize(x), 2.0).relu()\n",
        "    x = normalize(x)\n    print('activated')\n    return scale(x, 2.0).relu()\n",
        "print('activated')",
    ),
    Edit(
        "a break in a shared helper",
        "net.py",
        "def scale(x, factor):\n    return x * factor\n",
        "def scale(x, factor):\n    time.sleep(0)\n    print('scaled')\n    return x * factor\n",
        "print('scaled')",
    ),
    Edit(
        "shared code that is not compiled any more",
        "net.py",
        '@torch.compile(backend="eager", dynamic=True)\ndef pool',
        "def pool",
        '"size", [3, 6]',
        "no longer uses torch.compile",
        where="test_shared.py",
    ),
    Edit(
        "shared code of another backend",
        "net.py",
        '@torch.compile(backend="eager", dynamic=True)\ndef pool',
        '@torch.compile(backend="aot_eager", dynamic=True)\ndef pool',
        'backend="aot_eager", dynamic=True',
        "backend changed: eager -> aot_eager",
    ),
    Edit(
        "shared code that compiles nothing",
        "net.py",
        "    return normalize(x).clamp(max=most)\n",
        "    return torch.compiler.disable(lambda: normalize(x).clamp(max=most))()\n",
        "torch.compiler.disable(",
    ),
)

IMPROVEMENTS = (
    Edit(
        "a known break is gone",
        "net.py",
        '    print("reported")\n',
        "    x = x * 2\n",
        says="no longer occurs: break | net.py",
    ),
    Edit(
        "a recompile is gone",
        "test_own.py",
        "    for how in (True, False):\n",
        "    for how in (True, True):\n",
        says="no longer occurs: recompile | ",
    ),
    Edit(
        "a test that compiled nothing",
        "net.py",
        "    return tuple(x.shape)\n",
        "    x = x + 1\n    return tuple(x.shape)\n",
        says="compiles graphs now",
    ),
    Edit("more ops", "net.py", COS, COS + "    y = y.tan()\n", says="more ops compiled: "),
)
