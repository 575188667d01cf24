"""The blocks of a model are alike, and torch.compile serves all of them with one compilation.

Regional compilation compiles one block and uses it for all. It pays only while the blocks are
alike. diffusers allows 1, 2 or 3 compilations per model, with a paragraph on the reason in each
place; in vllm-omni #4485 a class was renamed, and regional compilation was skipped in silence.
"""

import pytest
import torch
from torch import nn

# torch's own: Dynamo asks the input of the second block for its .grad.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.linear = nn.Linear(16, 16)

    def forward(self, x):
        return x + torch.relu(self.linear(self.norm(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        for block in self.layers:
            x = block(x)
        return x


class Region(Block):
    @torch.compiler.nested_compile_region
    def forward(self, x):
        return super().forward(x)


@pytest.fixture
def x():
    return torch.ones(2, 16, requires_grad=True)


def test_blocks_are_alike(graph_capture, x):
    graph_capture(Model(), x).assert_repeated("layers.*", backward=True)


def test_an_odd_block_is_explained(graph_capture, x):
    model = Model()
    model.layers[2].norm.eps = 1e-3
    step = graph_capture(model, x)
    common, odd = step.repeated("layers.*")
    assert common.members == ("layers.0", "layers.1", "layers.3")
    assert odd.members == ("layers.2",)
    assert len(odd.diff.findings) == 1
    with pytest.raises(
        AssertionError,
        match=r"layers\.2 differs .*argument eps: 1e-05 -> 0\.001 of aten\.native_layer_norm",
    ):
        step.assert_repeated("layers.*")


def test_one_compilation_serves_all_blocks(graph_capture, x):
    model = Model()
    for block in model.layers:
        block.compile(backend="aot_eager")
    with graph_capture.watch() as seen:
        model(x).sum().backward()
    seen.assert_compiled_once("layers.*", model=model)


def test_regions_share_one_body(graph_capture, x):
    model = Model()
    model.layers = nn.ModuleList(Region() for _ in range(4))
    graph_capture(model, x).assert_shared("layers.*")
