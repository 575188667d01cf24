"""Regional compilation of diffusers' models, against a backend that counts each block's runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pytest_torchgraph as tg
from pytest_torchgraph.graph.blocks import match_modules

Model = tuple[nn.Module, dict[str, Tensor]]

pytestmark = [
    pytest.mark.slow("imports diffusers and compiles its models"),
    pytest.mark.filterwarnings("ignore"),  # from diffusers, and from torch at its inputs
]


def flux() -> Model:
    import diffusers

    model = diffusers.FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=3,
        num_single_layers=4,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
    )
    return model, {
        "hidden_states": torch.randn(1, 16, 4),
        "encoder_hidden_states": torch.randn(1, 5, 32),
        "pooled_projections": torch.randn(1, 32),
        "img_ids": torch.randn(16, 3),
        "txt_ids": torch.randn(5, 3),
        "timestep": torch.tensor([1.0]),
    }


def wan() -> Model:
    import diffusers

    model = diffusers.WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=4,
        out_channels=4,
        text_dim=16,
        freq_dim=256,
        ffn_dim=32,
        num_layers=4,
        rope_max_seq_len=32,
    )
    return model, {
        "hidden_states": torch.randn(1, 4, 2, 8, 8),
        "timestep": torch.tensor([3]),
        "encoder_hidden_states": torch.randn(1, 6, 16),
    }


class Counter:
    """A backend that records which block ran each of its graphs, without the package."""

    def __init__(self) -> None:
        self.running = ""
        self.blocks: list[set[str]] = []

    def __call__(self, graph: Callable[..., Any], inputs: Any) -> Callable[..., Any]:
        served: set[str] = set()
        self.blocks.append(served)

        def run(*args: Any) -> Any:
            served.add(self.running)
            return graph(*args)

        return run

    def watch(self, path: str, block: nn.Module) -> None:
        """Record the calls of a compiled block."""
        compiled = block._compiled_call_impl

        def call(*args: Any, **kwargs: Any) -> Any:
            self.running = path
            return compiled(*args, **kwargs)

        block._compiled_call_impl = call  # type: ignore[assignment]


# The number of compilations: a single block first gets the concatenation of text and image,
# then a part of the previous block's result, which has other strides.
KINDS = {
    flux: {"transformer_blocks.*": 1, "single_transformer_blocks.*": 2},
    wan: {"blocks.*": 1},
}


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_diffusers_compilations_by_block_equal_the_backends_count(make):
    pytest.importorskip("diffusers")
    torch._dynamo.reset()
    model, inputs = make()
    counter = Counter()
    model.eval().compile_repeated_blocks(backend=counter)
    modules = dict(model.named_modules())
    for path, module in modules.items():
        if type(module).__name__ in model._repeated_blocks:
            counter.watch(path, module)
    with tg.watch() as seen, torch.no_grad():
        model(**inputs)
        model(**inputs)
    torch._dynamo.reset()

    served: defaultdict[str, set[str]] = defaultdict(set)
    for callee in seen.watched.callables:
        path = next(path for path, module in modules.items() if module is callee.owner())
        for compile_id in callee.served_by:
            served[compile_id].add(path)
    assert sorted(map(sorted, served.values())) == sorted(map(sorted, counter.blocks))
    for glob, kinds in KINDS[make].items():
        blocks = {*match_modules(modules, glob)}
        assert sum(bool(own & blocks) for own in counter.blocks) == kinds
        seen.assert_compiled_once(glob, model=model, kinds=kinds)
        if kinds > 1:
            with pytest.raises(AssertionError, match=r"stride of dim 0 was \d+, is \d+"):
                seen.assert_compiled_once(glob, model=model)
