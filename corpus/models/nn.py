"""Modules of torch.nn, as they are and in small networks."""

# mypy: disable-error-code="no-any-return, untyped-decorator, no-untyped-call"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..case import Case, add, case, floats, ids

GROUP = "torch.nn"


def module(name: str, make: Callable[[], nn.Module], *shape: int) -> None:
    """A module in train mode, on random numbers that require grad."""
    add(GROUP, name, lambda: Case(make().train(), (floats(*shape).requires_grad_(),)))


module("lstm", lambda: nn.LSTM(6, 8, 2, batch_first=True, dropout=0.2, bidirectional=True), 2, 5, 6)
module("lstm_projection", lambda: nn.LSTM(6, 8, proj_size=4), 5, 2, 6)
module("gru", lambda: nn.GRU(6, 8, 2, batch_first=True), 2, 5, 6)
module("rnn", lambda: nn.RNN(6, 8, nonlinearity="relu"), 5, 2, 6)
module("gru_behind_linear", lambda: nn.Sequential(nn.Linear(6, 6), nn.GRU(6, 8)), 5, 2, 6)
module("conv1d", lambda: nn.Sequential(nn.Conv1d(4, 8, 3, dilation=2), nn.ReLU()), 2, 4, 12)
module("conv2d_grouped", lambda: nn.Conv2d(4, 8, 3, groups=4, padding_mode="reflect"), 2, 4, 8, 8)
module("conv3d", lambda: nn.Sequential(nn.Conv3d(2, 4, 3), nn.BatchNorm3d(4)), 2, 2, 5, 5, 5)
module("conv_transpose2d", lambda: nn.ConvTranspose2d(4, 2, 3, stride=2), 2, 4, 5, 5)
module("lazy_linear", lambda: _materialised(nn.Sequential(nn.LazyLinear(4), nn.ReLU())), 3, 6)
module("group_norm", lambda: nn.GroupNorm(2, 4), 2, 4, 6)
module(
    "instance_norm", lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True), 2, 3, 4, 4
)
module("rms_norm", lambda: nn.Sequential(nn.RMSNorm(8), nn.Linear(8, 3)), 2, 8)
module("local_response_norm", lambda: nn.LocalResponseNorm(3), 2, 6, 4, 4)
module("spectral_norm", lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(5, 4)), 3, 5)
module("weight_norm", lambda: nn.utils.parametrizations.weight_norm(nn.Linear(5, 4)), 3, 5)
module("orthogonal", lambda: nn.utils.parametrizations.orthogonal(nn.Linear(4, 4)), 3, 4)
module("old_weight_norm", lambda: nn.utils.weight_norm(nn.Conv1d(3, 4, 2)), 2, 3, 6)
module("fractional_max_pool", lambda: nn.FractionalMaxPool2d(2, output_ratio=0.5), 1, 2, 8, 8)
module(
    "adaptive_pools",
    lambda: nn.Sequential(nn.AdaptiveMaxPool2d(4), nn.AdaptiveAvgPool2d(2)),
    1,
    2,
    9,
    9,
)
module("lp_pool", lambda: nn.LPPool2d(2, 2), 1, 2, 8, 8)
module(
    "pixel_shuffle", lambda: nn.Sequential(nn.PixelShuffle(2), nn.ReplicationPad2d(1)), 1, 8, 3, 3
)
module("dropouts", lambda: nn.Sequential(nn.Dropout1d(0.3), nn.AlphaDropout(0.2)), 3, 4, 5)
module("upsample", lambda: nn.Upsample(scale_factor=2, mode="bicubic"), 1, 2, 4, 4)
module("fold", lambda: nn.Sequential(nn.Unfold(2), nn.Fold((4, 4), 2)), 1, 2, 4, 4)
module("rrelu", lambda: nn.Sequential(nn.RReLU(), nn.PReLU(), nn.Hardswish(), nn.GLU()), 3, 8)


def _materialised(model: nn.Module) -> nn.Module:
    model(torch.zeros(1, 6))
    return model


class Called(nn.Module):
    """A network of some modules and a function that says how it runs."""

    def __init__(self, forward: Callable[..., Any], **modules: nn.Module) -> None:
        super().__init__()
        self.body = forward
        for name, each in modules.items():
            self.add_module(name, each)

    def forward(self, *args: Any) -> Any:
        return self.body(self, *args)


@case(GROUP)
def lstm_cells() -> Case:
    def forward(self: Any, x: Tensor) -> Tensor:
        h = c = torch.zeros(x.shape[1], 8)
        found = []
        for step in x:
            h, c = self.cell(step, (h, c))
            found.append(self.head(h))
        return torch.stack(found)

    return Case(Called(forward, cell=nn.LSTMCell(6, 8), head=nn.Linear(8, 3)), (floats(4, 2, 6),))


@case(GROUP)
def gru_cells() -> Case:
    def forward(self: Any, x: Tensor) -> Tensor:
        h = torch.zeros(x.shape[1], 8)
        for step in x:
            h = self.cell(step, h)
        return h

    return Case(Called(forward, cell=nn.GRUCell(6, 8)), (floats(4, 2, 6),))


@case(GROUP)
def packed_lstm() -> Case:
    def forward(self: Any, x: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(
            self.words(x), lengths, batch_first=True, enforce_sorted=False
        )
        hidden, _ = self.lstm(packed)
        found, _ = nn.utils.rnn.pad_packed_sequence(hidden, batch_first=True)
        return self.head(found)

    parts = {"words": nn.Embedding(20, 6), "lstm": nn.LSTM(6, 8, batch_first=True)}
    model = Called(forward, **parts, head=nn.Linear(8, 3))
    return Case(model, (ids(3, 5, high=20), torch.tensor([3, 5, 2])))


@case(GROUP)
def speech_gru_ctc() -> Case:
    def forward(self: Any, x: Tensor, target: Tensor, lengths: Tensor, ends: Tensor) -> Tensor:
        x = F.relu(self.conv(x)).permute(2, 0, 1)
        x, _ = self.gru(x)
        scores = self.head(x).log_softmax(-1)
        return F.ctc_loss(scores, target, lengths, ends, zero_infinity=True)

    parts = {"conv": nn.Conv1d(4, 8, 3, padding=1), "gru": nn.GRU(8, 8, bidirectional=True)}
    model = Called(forward, **parts, head=nn.Linear(16, 10))
    args = floats(2, 4, 12), ids(2, 4, high=10), torch.tensor([12, 11]), torch.tensor([4, 3])
    return Case(model, args)


@case(GROUP)
def adaptive_log_softmax() -> Case:
    def forward(self: Any, x: Tensor, target: Tensor) -> Any:
        return self.head(torch.tanh(self.body_layer(x)), target).loss

    head = nn.AdaptiveLogSoftmaxWithLoss(8, 30, [5, 15], div_value=2.0)
    model = Called(forward, body_layer=nn.Linear(6, 8), head=head)
    return Case(model, (floats(6, 6), torch.tensor([0, 3, 6, 14, 20, 29])))


@case(GROUP)
def embedding_bag() -> Case:
    def forward(self: Any, words: Tensor, offsets: Tensor) -> Tensor:
        return self.head(self.mean(words, offsets) + self.most(words, offsets))

    parts = {"mean": nn.EmbeddingBag(20, 6), "most": nn.EmbeddingBag(20, 6, mode="max")}
    model = Called(forward, **parts, head=nn.Linear(6, 3))
    return Case(model, (ids(9, high=20), torch.tensor([0, 4, 6])))


@case(GROUP)
def sparse_embedding() -> Case:
    return Case(nn.Embedding(12, 4, sparse=True, max_norm=None), (ids(3, 4, high=12),))


@case(GROUP)
def embedding_max_norm() -> Case:
    def forward(self: Any, words: Tensor) -> Tensor:
        return self.head(F.embedding(words, self.words.weight * 2, padding_idx=3))

    model = Called(forward, words=nn.Embedding(12, 4, padding_idx=3), head=nn.Linear(4, 2))
    return Case(model, (ids(3, 4, high=12),))


@case(GROUP)
def multihead_attention() -> Case:
    model = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True, add_bias_kv=True)
    x = floats(2, 5, 8).requires_grad_()
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    return Case(model, (x, x, x), {"key_padding_mask": padding})


@case(GROUP)
def multihead_attention_kv() -> Case:
    model = nn.MultiheadAttention(8, 2, kdim=4, vdim=6, batch_first=True)
    return Case(model, (floats(2, 5, 8), floats(2, 3, 4), floats(2, 3, 6)), {"need_weights": False})


@case(GROUP)
def transformer_decoder_layer() -> Case:
    layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, norm_first=True)
    memory = floats(2, 3, 8)
    return Case(
        nn.TransformerDecoder(layer, 2), (floats(2, 4, 8), memory), {"tgt_is_causal": False}
    )


@case(GROUP)
def transformer_causal_mask() -> Case:
    model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    mask = model.generate_square_subsequent_mask(4)
    return Case(model, (floats(2, 3, 8), floats(2, 4, 8)), {"tgt_mask": mask})


@case(GROUP)
def transformer_layer_in_sequential() -> Case:
    layers = [nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(2)]
    return Case(nn.Sequential(nn.Linear(4, 8), *layers, nn.Linear(8, 2)), (floats(2, 3, 4),))


@case(GROUP)
def bilinear_and_cosine() -> Case:
    def forward(self: Any, a: Tensor, b: Tensor) -> Tensor:
        return self.pair(a, b).sum(-1) + F.cosine_similarity(a, b) + F.pairwise_distance(a, b)

    return Case(Called(forward, pair=nn.Bilinear(5, 5, 3)), (floats(4, 5), floats(4, 5)))


@case(GROUP)
def losses() -> Case:
    def forward(self: Any, x: Tensor, y: Tensor) -> Tensor:
        z = self.layer(x)
        total = F.cross_entropy(z, y, label_smoothing=0.1) + F.multi_margin_loss(z, y)
        total = (
            total + F.huber_loss(z, torch.zeros_like(z)) + F.poisson_nll_loss(z, z.detach().abs())
        )
        total = total + F.kl_div(z.log_softmax(-1), z.detach().softmax(-1), reduction="batchmean")
        return total + F.binary_cross_entropy_with_logits(z, torch.ones_like(z))

    return Case(Called(forward, layer=nn.Linear(6, 5)), (floats(4, 6), torch.tensor([0, 1, 4, 2])))


@case(GROUP)
def triplet_loss() -> Case:
    def forward(self: Any, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return F.triplet_margin_loss(self.net(a), self.net(b), self.net(c), swap=True)

    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.SELU(), nn.Linear(8, 4))
    return Case(Called(forward, net=net), (floats(4, 6), floats(4, 6), floats(4, 6)))


@case(GROUP)
def max_unpool() -> Case:
    def forward(self: Any, x: Tensor) -> Tensor:
        y, where = self.pool(self.conv(x))
        return self.unpool(y, where)

    parts = {"pool": nn.MaxPool2d(2, return_indices=True), "unpool": nn.MaxUnpool2d(2)}
    return Case(Called(forward, conv=nn.Conv2d(1, 2, 3, padding=1), **parts), (floats(1, 1, 6, 6),))


@case(GROUP)
def spatial_transformer() -> Case:
    def forward(self: Any, x: Tensor) -> Tensor:
        theta = self.where(x.flatten(1)).view(-1, 2, 3)
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        return self.conv(F.grid_sample(x, grid, align_corners=False))

    model = Called(forward, where=nn.Linear(36, 6), conv=nn.Conv2d(1, 2, 3))
    return Case(model, (floats(2, 1, 6, 6),))


@case(GROUP)
def batch_norm_eval() -> Case:
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ELU(inplace=True))
    return Case(model.eval(), (floats(2, 2, 5, 5),))


@case(GROUP)
def batch_norm_no_grad() -> Case:
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
    return Case(model.train(), (floats(2, 2, 5, 5),), context=torch.no_grad)


@case(GROUP)
def mlp_inference_mode() -> Case:
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Softplus(), nn.Linear(8, 2))
    return Case(model.eval(), (floats(3, 4),), context=torch.inference_mode)


@case(GROUP)
def autocast_convnet() -> Case:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
    )
    return Case(model, (floats(2, 1, 6, 6),), context=lambda: torch.autocast("cpu", torch.bfloat16))


@case(GROUP)
def bfloat16_mlp() -> Case:
    model = nn.Sequential(nn.Linear(4, 8), nn.Mish(), nn.Linear(8, 2)).to(torch.bfloat16)
    return Case(model, (floats(3, 4).to(torch.bfloat16),))


@case(GROUP)
def double_mlp() -> Case:
    model = nn.Sequential(nn.Linear(4, 8), nn.Softmin(-1), nn.Linear(8, 2)).double()
    return Case(model, (floats(3, 4).double(),))


@case(GROUP)
def complex_layer() -> Case:
    def forward(self: Any, x: Tensor) -> Tensor:
        z = torch.fft.rfft(self.layer(x))
        return torch.fft.irfft(z * torch.view_as_complex(self.filter.weight)).abs()

    class Filter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(floats(5, 2))

    return Case(Called(forward, layer=nn.Linear(6, 8), filter=Filter()), (floats(3, 6),))


@case(GROUP)
def dynamic_quantised() -> Case:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
    made = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, torch.qint8)
    return Case(made, (floats(2, 8),), context=torch.no_grad)


@case(GROUP)
def fake_quantised() -> Case:
    def forward(self: Any, x: Tensor) -> Tensor:
        return self.layer(self.fake(x))

    fake = torch.ao.quantization.FakeQuantize.with_args(
        observer=torch.ao.quantization.MovingAverageMinMaxObserver, quant_min=0, quant_max=255
    )()
    return Case(Called(forward, fake=fake, layer=nn.Linear(4, 3)), (floats(3, 4).requires_grad_(),))


@case(GROUP)
def nested_jagged() -> Case:
    def forward(self: Any, x: Tensor) -> Tensor:
        return torch.nested.to_padded_tensor(F.relu(self.layer(x)), 0.0)

    x = torch.nested.nested_tensor([floats(3, 4), floats(5, 4)], layout=torch.jagged)
    return Case(Called(forward, layer=nn.Linear(4, 3)), (x,))


@case(GROUP)
def sparse_matmul() -> Case:
    def forward(self: Any, adjacency: Tensor, x: Tensor) -> Tensor:
        return torch.sparse.mm(adjacency, self.layer(x)).relu()

    where = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 1]])
    adjacency = torch.sparse_coo_tensor(where, torch.ones(4), (3, 3)).coalesce()
    return Case(Called(forward, layer=nn.Linear(4, 3)), (adjacency, floats(3, 4)))


@case(GROUP)
def scaled_dot_product() -> Case:
    def forward(self: Any, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))

    model = Called(forward, qkv=nn.Linear(8, 24), out=nn.Linear(8, 8))
    return Case(model, (floats(2, 5, 8),))


@case(GROUP)
def module_containers() -> Case:
    def forward(self: Any, x: Tensor, which: str) -> Tensor:
        for layer in self.layers:
            x = self.acts[which](layer(x))
        return x

    layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
    acts = nn.ModuleDict({"relu": nn.ReLU(), "tanh": nn.Tanh()})
    return Case(Called(forward, layers=layers, acts=acts), (floats(2, 4), "tanh"))


class Recurrent(nn.Module):
    """A recurrent layer in a module of its own, its states dropped."""

    def __init__(self, kind: Callable[..., nn.RNNBase], width: int, **options: Any) -> None:
        super().__init__()
        self.rnn = kind(width, width, batch_first=True, **options)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0]


@case(GROUP)
def lstm_in_blocks() -> Case:
    def forward(self: Any, x: Tensor) -> Tensor:
        for norm, rnn, out in zip(self.norms, self.rnns, self.outs, strict=True):
            x = x + torch.tanh(rnn(norm(x)))
            x = x + out(x)
        return x

    parts = {
        "norms": nn.ModuleList([nn.LayerNorm(4) for _ in range(2)]),
        "rnns": nn.ModuleList([Recurrent(nn.LSTM, 4) for _ in range(2)]),
        "outs": nn.ModuleList([nn.Linear(4, 4) for _ in range(2)]),
    }
    return Case(Called(forward, **parts), (floats(2, 3, 4),))


class RecurrentBlock(nn.Module):
    """A norm, a recurrent layer and a linear one."""

    def __init__(self, kind: Callable[..., nn.RNNBase], width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.rnn = Recurrent(kind, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.rnn(self.norm(x))
        return x + self.out(x)


@case(GROUP)
def lstm_block() -> Case:
    return Case(RecurrentBlock(nn.LSTM, 4), (floats(2, 3, 4),))


@case(GROUP)
def gru_blocks_in_sequential() -> Case:
    blocks = [RecurrentBlock(nn.GRU, 4) for _ in range(2)]
    return Case(nn.Sequential(nn.Linear(6, 4), *blocks, nn.Linear(4, 2)), (floats(2, 3, 6),))


@case(GROUP)
def convolutional_recurrent_ctc() -> Case:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Sequential(
                nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
            )
            self.rnn = Recurrent(nn.GRU, 16)
            self.head = nn.Linear(16, 7)

        def forward(self, x: Tensor, target: Tensor) -> Tensor:
            x = self.features(x).permute(0, 3, 1, 2).flatten(2)
            scores = self.head(self.rnn(x)).log_softmax(-1).transpose(0, 1)
            steps = torch.full((len(target),), len(scores), dtype=torch.long)
            ends = torch.full((len(target),), target.shape[1], dtype=torch.long)
            return F.ctc_loss(scores, target, steps, ends)

    return Case(Net(), (floats(2, 1, 8, 16), ids(2, 3, high=7)))
