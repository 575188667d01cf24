"""`assert_compiled_once`, against a backend that counts compilations and their callers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from subjects.models import numbers
from torch import Tensor, nn

import pytest_torchgraph as tg
from pytest_torchgraph import CaptureError

# Dynamo reads .grad of non-leaf inputs, such as the input of the second block.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")


class Block(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.number = number

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.linear(x))


class Indexed(Block):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.linear(x)) / (self.number + 1)


class Broken(Block):
    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        torch._dynamo.graph_break()
        return torch.relu(x)


class Narrow(Block):
    """The last block has half the width, as in Wan and UNets."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        width = 8 if number == 3 else 16
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x[:, : self.linear.in_features]))


class Net(nn.Module):
    running = ""

    def __init__(self, make: Callable[[int], nn.Module] = Block, count: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(make(number) for number in range(count))

    def forward(self, x: Tensor) -> Tensor:
        for number, block in enumerate(self.layers):
            Net.running = f"layers.{number}"
            x = block(x)
        return x


class Counter:
    """A backend that records which block ran each of its graphs, without this package."""

    def __init__(self) -> None:
        self.blocks: list[set[str]] = []

    def __call__(self, graph, inputs):
        served: set[str] = set()
        self.blocks.append(served)

        def run(*args):
            served.add(Net.running)
            return graph(*args)

        return run

    def compile(self, net: nn.Module) -> nn.Module:
        for block in net.layers:
            block.compile(backend=self)
        return net


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def data() -> Tensor:
    return numbers(4, 16)


def wants_gradient() -> Tensor:
    return numbers(4, 16).requires_grad_()


def one_disabled() -> Net:
    net = Net()
    net.layers[2].forward = torch.compiler.disable(net.layers[2].forward)
    return net


CASES = {
    "alike": (Net, data, r"argument x: requires_grad was False, is True"),
    "alike with gradient": (Net, wants_gradient, ""),
    "int attribute": (lambda: Net(Indexed), wants_gradient, r"self\.number: was 0, is 1"),
    "two widths": (lambda: Net(Narrow), wants_gradient, r"0/1 .*: layers\.3"),
    "graph break": (lambda: Net(Broken), wants_gradient, ""),
}


@pytest.mark.parametrize("name", CASES)
def test_compilations_by_block_equal_the_backends_count(name):
    make, inputs, guard = CASES[name]
    counter = Counter()
    net = counter.compile(make())
    with tg.watch() as seen:
        net(inputs())
        net(inputs())
    served: dict[str, set[str]] = {}
    blocks = dict(net.named_modules())
    for callee in seen.watched.callables:
        path = next(path for path, module in blocks.items() if module is callee.owner())
        for compile_id in callee.served_by:
            served.setdefault(compile_id, set()).add(path)
    assert sorted(map(sorted, served.values())) == sorted(map(sorted, counter.blocks))
    frames = [compile_id for compile_id in served if compile_id.startswith("0/")]
    seen.assert_compiled_once("layers.*", model=net, kinds=len(frames))
    if guard:
        with pytest.raises(AssertionError, match=guard) as failure:
            seen.assert_compiled_once("layers.*", model=net, kinds=len(frames) - 1)
        assert f"for all 4 blocks, found {len(frames)}" in str(failure.value)


def test_first_block_without_an_input_gradient_is_explained():
    net = Counter().compile(Net())
    with tg.watch() as seen:
        net(data()).sum().backward()
    with pytest.raises(AssertionError) as failure:
        seen.assert_compiled_once("layers.*", model=net)
    message = str(failure.value)
    assert "expected at most 1 compilation for all 4 blocks, found 2" in message
    assert "0/0 (forward, tests/checks/test_regional.py" in message
    assert (
        "input of layers.0 does not require grad, and the input of layers.{1 … 3} does" in message
    )
    assert "pass kinds=2" in message
    assert "requires_grad_()" in message


def test_warm_blocks_are_attributed_too():
    net = Counter().compile(Net())
    net(data())
    with tg.watch() as seen:
        net(data())
    seen.assert_compiled_once("layers.*", model=net, kinds=2)
    warm = (
        r"0/1 \(compiled before the watch\): layers\.\{1 … 3\}\n    to see the failed guards, open"
    )
    with pytest.raises(AssertionError, match=warm):
        seen.assert_compiled_once("layers.*", model=net)


@pytest.mark.parametrize("how", ["module", "forward"])
def test_other_ways_to_compile_a_block_are_recognized(how):
    net = Net()
    for number, block in enumerate(net.layers):
        if how == "module":
            net.layers[number] = torch.compile(block, backend="eager")
        else:
            block.forward = torch.compile(block.forward, backend="eager")
    with tg.watch() as seen:
        net(wants_gradient())
    seen.assert_compiled_once("layers.*", model=net)


# -- never compiled, or not always -----------------------------------------------------------------


def test_a_disabled_block_fails():
    net = Counter().compile(one_disabled())
    with tg.watch() as seen:
        net(wants_gradient())
    with pytest.raises(AssertionError, match=r"layers\.2: Block.*: its call ran eagerly"):
        seen.assert_compiled_once("layers.*", model=net, kinds=4)


@pytest.mark.slow("compiles for a second")
def test_layers_with_an_index_reach_the_recompile_limit():
    """vLLM #12410: a layer index is an int attribute, so each layer recompiles."""
    net = Counter().compile(Net(Indexed, count=10))
    with tg.watch() as seen:
        net(wants_gradient())
    with pytest.raises(AssertionError) as failure:
        seen.assert_compiled_once("layers.*", model=net)
    message = str(failure.value)
    assert "blocks layers.*: some blocks did not run compiled code" in message
    assert "layers.{8, 9}: Indexed" in message
    assert "recompile limit reached" in message
    assert "self.number: was 7, is 8" in message


class Renamed(Net):
    """A model in diffusers' style, with a renamed block class."""

    _repeated_blocks = ("TransformerBlock",)

    def compile_repeated_blocks(self) -> None:
        for module in self.modules():
            if type(module).__name__ in self._repeated_blocks:
                module.compile(backend="eager")


def test_renamed_blocks_that_are_not_compiled_fail():
    """vllm-omni #4485."""
    net = Renamed()
    net.compile_repeated_blocks()
    with tg.watch() as seen:
        net(data())
    with pytest.raises(AssertionError) as failure:
        seen.assert_compiled_once("layers.*", model=net)
    message = str(failure.value)
    assert "layers.{0 … 3}: not called through torch.compile" in message
    assert "Renamed._repeated_blocks names only TransformerBlock: add Block to it" in message
    assert "skips blocks of class Block, because" in message
    assert "no graph was compiled" in message


def test_uncompiled_or_uncalled_block_fails():
    net = Net()
    net.layers[1].compile(backend="eager")
    with tg.watch() as seen:
        net(data())
    with pytest.raises(AssertionError) as failure:
        seen.assert_compiled_once("layers.*", model=net)
    assert "layers.{0, 2, 3}: not called through torch.compile" in str(failure.value)
    assert "block.compile()" in str(failure.value)


def test_blocks_inside_a_compiled_model_fail():
    net = Net()
    net.compile(backend="eager")
    with tg.watch() as seen:
        net(data())
    with pytest.raises(AssertionError, match="these blocks are part of the compiled Net"):
        seen.assert_compiled_once("layers.*", model=net)


def test_wrong_arguments_are_refused():
    net = Counter().compile(Net())
    with tg.watch() as seen:
        net(data())
    with pytest.raises(ValueError, match=r"no module matches 'blocks\.\*'"):
        seen.assert_compiled_once("blocks.*", model=net)
    with pytest.raises(ValueError, match="only one module"):
        seen.assert_compiled_once("layers.1", model=net)
    with pytest.raises(TypeError, match=r"not a torch\.nn\.Module"):
        seen.assert_compiled_once("layers.*", model="net")
    capture = tg.capture(Net(), data(), via="dispatch")
    with pytest.raises(
        CaptureError, match=r"not available via 'dispatch': use it on `with graph_capture\.watch"
    ):
        capture.assert_compiled_once("layers.*", model=net)


def double(module: nn.Module, *values: object) -> object:
    return values[-1][0] * 2 if isinstance(values[-1], tuple) else values[-1] * 2


@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook"])
def test_hook_that_only_some_blocks_have_is_a_compilation(register: str) -> None:
    """Dynamo compiles the hook of a compiled block as a frame of its own."""
    counter, net = Counter(), Net()
    for number in (1, 3):
        getattr(net.layers[number], register)(double)
    with tg.watch() as seen:
        counter.compile(net)(wants_gradient()).sum().backward()
    assert counter.blocks == [{f"layers.{number}" for number in range(4)}, {"layers.1", "layers.3"}]
    with pytest.raises(AssertionError, match="found 2") as caught:
        seen.assert_compiled_once("layers.*", model=net)
    assert str(caught.value).splitlines()[-1].endswith(": layers.{1, 3}")
    seen.assert_compiled_once("layers.*", model=net, kinds=2)


def test_hook_that_all_blocks_have_is_no_further_compilation() -> None:
    counter, net = Counter(), Net()
    for block in net.layers:
        block.register_forward_hook(double)
    with tg.watch() as seen:
        counter.compile(net)(wants_gradient())
    assert len(counter.blocks) == 2
    seen.assert_compiled_once("layers.*", model=net)
