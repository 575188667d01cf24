"""Update a small project on several releases of torch, in every order.

    release_orders.py DIRECTORY PYTHON...

Each `PYTHON` is the interpreter of an environment with a different release of torch, with pytest
and syrupy. `DIRECTORY` is a new directory for the projects. For each order of the releases, each
release updates a new project once, in this order, and then each compares it. The script checks:

- an update does not write or remove files of another release;
- in every order, each release passes and compares with the same graphs;
- a second round of updates in the same order changes nothing.

Two of the models differ between releases because of torch, and one because of its own code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import permutations
from pathlib import Path

ROOT = Path(__file__).parents[2]

TESTS = '''
import pytest
import torch
from torch import nn

RELEASE = tuple(map(int, torch.__version__.split(".")[:2]))


class Between(nn.Module):
    """A model with another graph on 2.13 than on the release before and after it."""

    def forward(self, x):
        return x.cos() if RELEASE == (2, 13) else x.sin()


class Filled(nn.Module):
    def forward(self, x):
        y = x.clone()
        y[...] = 0
        return y + x


@pytest.mark.parametrize(
    ("model", "shape", "via"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 2)), (2, 4), "dispatch"),
        (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), (2, 3, 8), "aot"),
        (nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).eval(), (2, 4), "aot"),
        (Between(), (2, 4), "dispatch"),
        (Filled(), (2, 4), "dispatch"),
    ],
    ids=["mlp", "encoder", "dropout", "between", "filled"],
)
def test_model(model, shape, via, graph_capture, graph_snapshot):
    assert graph_capture(model, torch.ones(shape), via=via) == graph_snapshot
'''

COMPARED = """
import json, os
import pytest

found = {}

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report):
    compared = getattr(report, "torchgraph_comparisons", {}).get("compared", ())
    for path in compared if "FOUND" in os.environ else ():
        with open(path) as file:
            found[report.nodeid] = file.read().partition("\\\\n\\\\n")[2]

def pytest_sessionfinish():
    if "FOUND" in os.environ:
        with open(os.environ["FOUND"], "w") as file:
            json.dump(found, file)
"""


def release(python: str) -> str:
    """Return the `major.minor` of an environment's torch."""
    program = "import torch; print('.'.join(torch.__version__.split('.')[:2]))"
    return subprocess.run(
        [python, "-c", program], check=True, capture_output=True, text=True
    ).stdout.strip()


def make(project: Path, releases: list[str]) -> None:
    """Write the project."""
    project.mkdir(parents=True)
    (project / "test_models.py").write_text(TESTS)
    (project / "conftest.py").write_text(COMPARED.replace("\\\\n", "\\n"))
    (project / "pytest.ini").write_text(f"[pytest]\ntorchgraph_releases = {' '.join(releases)}\n")


def run(python: str, project: Path, *args: str, found: Path | None = None) -> str:
    """Run the project's tests. Return the output if they fail."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    if found is not None:
        environment["FOUND"] = str(found)
    command = [python, "-m", "pytest", "-p", "pytest_torchgraph.plugin", "-q", *args]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def stored(project: Path) -> dict[str, bytes]:
    """Return the project's stored files."""
    return {path.name: path.read_bytes() for path in project.rglob("*.tgraph")}


def owner(name: str, releases: list[str]) -> str:
    """Return the release that a stored file belongs to."""
    tag = name.removesuffix(".tgraph").rpartition("@torch-")[2]
    return tag if tag in releases else releases[0]


def check(project: Path, pythons: dict[str, str], order: tuple[str, ...]) -> dict[str, str]:
    """Update once in this order. Return the graphs that each release compares with, as text."""
    releases = list(pythons)
    for each in order:
        before = stored(project)
        if problem := run(pythons[each], project, "--torchgraph-update"):
            sys.exit(f"update on {each} in {order}: {problem}")
        after = stored(project)
        for name in before.keys() | after.keys():
            if before.get(name) != after.get(name) and owner(name, releases) != each:
                sys.exit(f"update on {each} in {order} changed {name}")
    graphs = {}
    for each in releases:
        found = project / "found.json"
        if problem := run(pythons[each], project, found=found):
            sys.exit(f"{each} after {order}: {problem}")
        graphs[each] = json.dumps(json.loads(found.read_text()), sort_keys=True)
    return graphs


def main(directory: Path, interpreters: list[str]) -> None:
    """Check all orders, and print the files that exist after each."""
    pythons = dict(
        sorted(
            ((release(python), python) for python in interpreters),
            key=lambda pair: tuple(map(int, pair[0].split("."))),
        )
    )
    expected: dict[str, str] = {}
    for number, order in enumerate(permutations(pythons)):
        project = directory / str(number)
        make(project, list(pythons))
        for turn in ("first", "second"):
            graphs = check(project, pythons, order)
            expected = expected or graphs
            if graphs != expected:
                sys.exit(f"after the {turn} round in {order} a release compares with others")
            names = [owner(name, list(pythons)) for name in stored(project)]
            counts = ", ".join(f"{names.count(each)} of {each}" for each in pythons)
            print(f"{' '.join(order)}, {turn} round: {counts}", flush=True)
    different = set(expected.values())
    print(f"the same graphs in every order; {len(different)} of {len(pythons)} releases differ")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), sys.argv[2:])
