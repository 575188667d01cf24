"""A package installed beside torch, with a name that starts like torch's, is user code."""

from __future__ import annotations

import os
import re
import shutil
import sysconfig
from pathlib import Path

import pytest
import torch
from subjects.counting import COUNTED
from subjects.models import Subject
from subjects.subject_results import miscounted

import pytest_torchgraph
from pytest_torchgraph import capture
from pytest_torchgraph.convert import is_torch_file, is_user_file

TORCH = Path(torch.__file__).parent
OURS = Path(pytest_torchgraph.__file__).parent
STDLIB = sysconfig.get_path("stdlib")
TESTS = Path(__file__).parents[1]

# -- a package of our own --------------------------------------------------------------------------

BESIDE_TORCH = """
import pytest
import torch
import torchnets
from subjects.counting import COUNTED
from subjects.subject_results import miscounted
from subjects.models import Subject

from pytest_torchgraph import capture


def test_its_path_begins_with_that_of_torch():
    assert torchnets.__file__.startswith(torch.__file__.removesuffix("/__init__.py"))


@pytest.mark.parametrize("via", ["aot", "dispatch"])
def test_squeezenet(via):
    torch.manual_seed(0)
    model = torchnets.SqueezeNet(narrow=8, classes=4).eval()
    subject = Subject(model, (torch.rand(1, 3, 32, 32),))
    captured = capture(model, *subject.args, via=via)
    assert miscounted(captured, COUNTED[via](subject)) == []
    captured.assert_matches_eager()
    calls = [node for node in captured.forward.nodes if node.is_call]
    assert {node.source.file for node in calls} == {"torchnets/squeezenet.py"}
    convolutions = captured.forward.find("aten.convolution")
    squeezing = [node for node in convolutions if "self.squeeze" in node.source.code]
    assert len(squeezing) == 8


class Calls(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fire = torchnets.Broken(4, 2, 2)

    def forward(self, x):
        return self.fire(x).sigmoid()


def test_a_graph_break():
    captured = capture(Calls(), torch.rand(1, 4, 8, 8))
    (found,) = captured.breaks
    assert (found.file, found.code) == ("torchnets/broken.py", "torch._dynamo.graph_break()")
    captured.assert_matches_eager()
"""


@pytest.mark.slow("runs pytest in a new process")
def test_package_with_a_torch_like_name_is_user_code(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "torch").symlink_to(TORCH, target_is_directory=True)  # its path is that of the link
    shutil.copytree(TESTS / "torchnets", tmp_path / "torchnets")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (tmp_path, TESTS, TESTS.parent))))
    pytester.makepyfile(BESIDE_TORCH)
    pytester.runpytest_subprocess().assert_outcomes(passed=4)


# -- torch_geometric -------------------------------------------------------------------------------

GENERATED = r"(?<=^torch_geometric)\.[\w.]+\.py$"
"""Files that it writes into the temporary directory and imports from there."""


@pytest.mark.slow("long models; short ones are in every run")
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_a_convolution_of_torch_geometric() -> None:
    import torch_geometric.nn

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = torch_geometric.nn.GCNConv(4, 3)
    edges = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2], [1, 2, 3, 4, 5, 0, 3, 5]])
    subject = Subject(model, (torch.linspace(-1, 1, 24).reshape(6, 4), edges))
    captured = capture(model, *subject.args, via="aot")
    assert miscounted(captured, COUNTED["aot"](subject)) == []
    captured.assert_matches_eager()
    calls = [node for graph in captured.graphs for node in graph.nodes if node.is_call]
    files = {re.sub(GENERATED, "", str(node.source and node.source.file)) for node in calls}
    assert {file.partition("/")[0] for file in files} == {"torch_geometric"}
    assert "torch_geometric/nn/conv/gcn_conv.py" in files


# -- user code or library code ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "file",
    [
        f"{TORCH}_geometric/nn/conv/gcn_conv.py",
        f"{TORCH}vision/models/squeezenet.py",
        f"{OURS}_extra/plugin.py",
        f"{STDLIB}1/thing.py",
        f"{STDLIB}/site-packages/transformers/modeling_utils.py",  # of the Python below a venv
        f"{STDLIB}/dist-packages/numpy/core.py",
    ],
    ids=["geometric", "vision", "extra", "digit", "site", "dist"],
)
def test_files_of_packages_beside_torch_are_user_files(file: str) -> None:
    assert is_user_file(file)
    assert not is_torch_file(file)


@pytest.mark.parametrize(
    "file",
    [f"{TORCH}/nn/modules/linear.py", f"{OURS}/plugin.py", f"{STDLIB}/json/decoder.py", "<string>"],
    ids=["torch", "ours", "standard", "generated"],
)
def test_files_of_torch_and_the_standard_library_are_not_user_files(file: str) -> None:
    assert not is_user_file(file)
    assert is_torch_file(file) == file.startswith(f"{TORCH}/")
