"""The subjects: small real models with random weights, each with its inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.utils._pytree import tree_map


@dataclass
class Subject:
    """A model, the arguments that it is called with, and the grad mode around the call."""

    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    grad: bool = True


SUBJECTS: dict[str, Callable[[], Subject]] = {}


def on(subject: Subject, device: torch.device | str) -> Subject:
    """Move a subject to a device."""

    def moved(value: Any) -> Any:
        return value.to(device) if isinstance(value, Tensor) else value

    subject.model.to(device)
    subject.args, subject.kwargs = tree_map(moved, (subject.args, subject.kwargs))
    return subject


def subject(make: Callable[[], Subject]) -> Callable[[], Subject]:
    def seeded() -> Subject:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return make()

    SUBJECTS[make.__name__] = seeded
    return seeded


def numbers(*shape: int) -> Tensor:
    return torch.linspace(-1, 1, int(torch.tensor(shape).prod())).reshape(shape)


def ids(*shape: int) -> Tensor:
    return (torch.arange(int(torch.tensor(shape).prod())) * 7 % 30 + 2).reshape(shape)


# -- torch.nn --------------------------------------------------------------------------------------


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return nn.TransformerEncoder(layer, 2)


@subject
def transformer_encoder_train() -> Subject:
    return Subject(_encoder().train(), (numbers(2, 5, 16),))


@subject
def transformer_encoder_eval() -> Subject:
    return Subject(_encoder().eval(), (numbers(2, 5, 16),))


@subject
def transformer_encoder_fast_path() -> Subject:
    """An eval-mode encoder without gradients takes a fast path that has no backward."""
    return Subject(_encoder().eval(), (numbers(2, 5, 16),), grad=False)


@subject
def transformer_with_masks() -> Subject:
    """With hints. Without them, forward reads the masks' data to see if they are causal."""
    model = nn.Transformer(16, 2, 2, 2, 32, batch_first=True)
    padded = torch.tensor([[False] * 5, [False] * 4 + [True]])
    masks = {
        "src_mask": torch.triu(torch.ones(5, 5, dtype=torch.bool), 3),
        "tgt_mask": torch.triu(torch.ones(4, 4, dtype=torch.bool), 1),
        "src_key_padding_mask": padded,
        "memory_key_padding_mask": padded,
    }
    hints = {"src_is_causal": False, "tgt_is_causal": True}
    return Subject(model, (numbers(2, 5, 16), numbers(2, 4, 16)), {**masks, **hints})


@subject
def transformer_with_masks_only() -> Subject:
    """torch's own code reads the data of the masks."""
    found = SUBJECTS["transformer_with_masks"]()
    found.kwargs = {key: value for key, value in found.kwargs.items() if "causal" not in key}
    return found


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(32, 16)
        self.lstm = nn.LSTM(16, 8, num_layers=2, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(16, 4)

    def forward(self, words: Tensor) -> Tensor:
        hidden, _ = self.lstm(self.words(words))
        return self.tags(hidden)  # type: ignore[no-any-return]


@subject
def lstm_tagger() -> Subject:
    return Subject(Tagger(), (ids(2, 5),))


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(32, 16)
        self.norm = nn.LayerNorm(16)

    def forward(self, words: Tensor) -> Tensor:
        return self.norm(self.words(words))  # type: ignore[no-any-return]


class Tags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.tags = nn.Linear(8, 4)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.tags(torch.relu(self.inner(hidden)))  # type: ignore[no-any-return]


class BlockTagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = Words()
        self.lstm = nn.LSTM(16, 8, batch_first=True)
        self.tags = Tags()

    def forward(self, words: Tensor) -> Tensor:
        hidden, _ = self.lstm(self.words(words))
        return self.tags(hidden)  # type: ignore[no-any-return]


@subject
def lstm_between_blocks() -> Subject:
    """Dynamo leaves forward to the interpreter, and compiles its submodules separately."""
    return Subject(BlockTagger(), (ids(2, 5),))


# -- written by hand -------------------------------------------------------------------------------


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(x + self.norm2(self.conv2(y)))


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.Sequential(Residual(8), Residual(8))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pool(self.blocks(self.stem(x))).flatten(1))  # type: ignore[no-any-return]


@subject
def residual_cnn() -> Subject:
    return Subject(Cnn().train(), (numbers(2, 3, 8, 8),))


class Mlp(nn.Module):
    def __init__(self, checkpointed: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(2)
        )
        self.norm = nn.LayerNorm(16)
        self.checkpointed = checkpointed

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            if self.checkpointed:
                x = x + torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)  # type: ignore[operator]
            else:
                x = x + block(x)
        return self.norm(x)  # type: ignore[no-any-return]


@subject
def mlp_checkpointed() -> Subject:
    return Subject(Mlp(checkpointed=True), (numbers(4, 16),))


@subject
def mlp() -> Subject:
    return Subject(Mlp(checkpointed=False), (numbers(4, 16),))


class EarlyExit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(16, 16), nn.GELU())
        self.second = nn.Sequential(nn.Linear(16, 16), nn.GELU())
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if x.norm() < 100:
            x = x + self.second(x)
        return self.head(x)  # type: ignore[no-any-return]


@subject
def early_exit() -> Subject:
    """The rest of forward depends on the data."""
    return Subject(EarlyExit(), (numbers(4, 16),))


class GraphConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.message = nn.Linear(16, 16)
        self.update = nn.Linear(32, 16)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        received = torch.zeros_like(x).index_add(0, edges[1], self.message(x[edges[0]]))
        return torch.relu(self.update(torch.cat([x, received], dim=1)))


class GraphNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = GraphConvolution()
        self.second = GraphConvolution()
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.head(self.second(self.first(x, edges), edges))  # type: ignore[no-any-return]


@subject
def graph_convolution() -> Subject:
    edges = torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]])
    return Subject(GraphNet(), (numbers(5, 16), edges))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(16, 16)
        self.key = nn.Linear(16, 16)
        self.value = nn.Linear(16, 16)
        self.out = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        def heads(each: Tensor) -> Tensor:
            return each.unflatten(-1, (2, 8)).transpose(1, 2)

        query, key, value = heads(self.query(x)), heads(self.key(x)), heads(self.value(x))
        scores = torch.softmax(query @ key.transpose(-2, -1) / 8**0.5, dim=-1)
        return self.out((scores @ value).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(16)
        self.attention = Attention()
        self.norm2 = nn.LayerNorm(16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


@subject
def transformer_block() -> Subject:
    return Subject(nn.Sequential(Block(), Block()), (numbers(2, 5, 16),))


# -- transformers ----------------------------------------------------------------------------------

TEXT = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 32,
    "pad_token_id": 0,
}


def _language_model(config: Any, auto: Any) -> Subject:
    """Disable the model's cache, which is an object and not a tensor."""
    return Subject(auto.from_config(config).train(), (), {"input_ids": ids(2, 6)})


@subject
def gpt2() -> Subject:
    from transformers import AutoModelForCausalLM, GPT2Config

    config = GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=32, n_positions=16)
    config.use_cache = False
    found = _language_model(config, AutoModelForCausalLM)
    found.kwargs["labels"] = ids(2, 6)  # the graph breaks at the loss
    return found


@subject
def llama() -> Subject:
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(**TEXT, num_key_value_heads=1, use_cache=False)
    return _language_model(config, AutoModelForCausalLM)


@subject
def bert() -> Subject:
    from transformers import AutoModel, BertConfig

    return _language_model(BertConfig(**TEXT, max_position_embeddings=16), AutoModel)


@subject
def mixtral() -> Subject:
    from transformers import AutoModelForCausalLM, MixtralConfig

    config = MixtralConfig(**TEXT, num_key_value_heads=1, num_local_experts=4, use_cache=False)
    return _language_model(config, AutoModelForCausalLM)


@subject
def t5() -> Subject:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=32,
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=2,
        num_heads=2,
        use_cache=False,
        decoder_start_token_id=0,
    )
    inputs = {"input_ids": ids(2, 6), "labels": ids(2, 4)}
    return Subject(T5ForConditionalGeneration(config).train(), (), inputs)


@subject
def mamba() -> Subject:
    from transformers import AutoModelForCausalLM, MambaConfig

    config = MambaConfig(
        vocab_size=32, hidden_size=16, state_size=4, num_hidden_layers=2, use_cache=False
    )
    return _language_model(config, AutoModelForCausalLM)


@subject
def vit() -> Subject:
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {key: TEXT[key] for key in TEXT if key not in ("vocab_size", "pad_token_id")}
    config = ViTConfig(**sizes, image_size=8, patch_size=4)
    images = {"pixel_values": numbers(2, 3, 8, 8), "labels": torch.tensor([0, 1])}
    return Subject(ViTForImageClassification(config).train(), (), images)


@subject
def clip() -> Subject:
    from transformers import CLIPConfig, CLIPModel

    sizes = {key: TEXT[key] for key in TEXT if key not in ("vocab_size", "pad_token_id")}
    config = CLIPConfig(
        text_config={**TEXT, "max_position_embeddings": 16, "eos_token_id": 31},
        vision_config={**sizes, "image_size": 8, "patch_size": 4},
        projection_dim=8,
    )
    inputs = {
        "input_ids": ids(2, 6),
        "pixel_values": numbers(2, 3, 8, 8),
        "return_loss": True,
    }
    return Subject(CLIPModel(config).train(), (), inputs)


@subject
def whisper() -> Subject:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=32,
        d_model=16,
        num_mel_bins=4,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_source_positions=8,
        max_target_positions=8,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
        decoder_start_token_id=1,
        use_cache=False,
    )
    inputs = {"input_features": numbers(2, 4, 16), "labels": ids(2, 4)}
    return Subject(WhisperForConditionalGeneration(config).train(), (), inputs)


@subject
def wav2vec2() -> Subject:
    """Breaks in its feature extractor, which sets `requires_grad`."""
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    sizes = {key: TEXT[key] for key in TEXT if key not in ("vocab_size", "pad_token_id")}
    config = Wav2Vec2Config(
        **sizes,
        conv_dim=(8, 8),
        conv_kernel=(4, 3),
        conv_stride=(2, 2),
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        mask_time_prob=0.0,
        layerdrop=0.0,
    )
    return Subject(Wav2Vec2Model(config).train(), (), {"input_values": (numbers(2, 64) * 20).sin()})
