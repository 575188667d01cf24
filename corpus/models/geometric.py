"""Convolutions, pools and models of torch_geometric on a graph of six nodes."""

# mypy: disable-error-code="no-any-return, untyped-decorator, no-untyped-call"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..case import Case, add, case, floats, library

GROUP = "torch_geometric"
EDGES = [[0, 1, 2, 3, 4, 5, 0, 2, 4, 1], [1, 2, 3, 4, 5, 0, 2, 4, 0, 3]]


def edges() -> Tensor:
    return torch.tensor(EDGES)


class Network(nn.Module):
    """Two layers of a kind, with a norm and a dropout between them."""

    def __init__(self, first: nn.Module, second: nn.Module, width: int) -> None:
        super().__init__()
        self.first, self.second = first, second
        self.norm = library("torch_geometric.nn").GraphNorm(width)

    def forward(self, x: Tensor, edge_index: Tensor, *rest: Any) -> Tensor:
        x = self.norm(self.first(x, edge_index, *rest)).relu()
        x = F.dropout(x, 0.2, self.training)
        return self.second(x, edge_index, *rest)


def convolution(
    name: str, *args: Any, rest: Callable[[], tuple[Any, ...]] = tuple, **options: Any
) -> None:
    """Two convolutions of a class, from 8 channels to 8."""

    def make() -> Case:
        kind = getattr(library("torch_geometric.nn"), name)
        given = [arg() if callable(arg) else arg for arg in args]
        first, second = kind(*given, **options), kind(*given, **options)
        return Case(Network(first, second, 8).train(), (floats(6, 8), edges(), *rest()))

    add(GROUP, f"pyg_{name}", make)


def _mlp(wide: int = 8, out: int = 8) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(wide, out), nn.ReLU(), nn.Linear(out, out))


def _weights() -> tuple[Any, ...]:
    return (torch.rand(10),)


def _attributes() -> tuple[Any, ...]:
    return (torch.rand(10, 3),)


def _types() -> tuple[Any, ...]:
    return (torch.arange(10) % 3,)


convolution("GCNConv", 8, 8, rest=_weights)
convolution("SAGEConv", 8, 8, aggr="max")
convolution("GATConv", 8, 4, heads=2, dropout=0.2)
convolution("GATv2Conv", 8, 4, heads=2, edge_dim=3, rest=_attributes)
convolution("TransformerConv", 8, 4, heads=2, beta=True)
convolution("GINConv", _mlp(), train_eps=True)
convolution("GINEConv", _mlp(), edge_dim=3, rest=_attributes)
convolution("EdgeConv", _mlp(16))
convolution("ChebConv", 8, 8, K=3)
convolution("TAGConv", 8, 8)
convolution("SGConv", 8, 8, K=2)
convolution("SSGConv", 8, 8, alpha=0.1)
convolution("APPNP", K=2, alpha=0.1)
convolution("ARMAConv", 8, 8, num_stacks=2)
convolution("GraphConv", 8, 8)
convolution("GatedGraphConv", 8, 2)
convolution("ResGatedGraphConv", 8, 8)
convolution("MFConv", 8, 8)
convolution("CGConv", 8, 3, rest=_attributes)
convolution("GMMConv", 8, 8, 3, 2, rest=_attributes)
convolution("NNConv", 8, 8, _mlp(3, 64), rest=_attributes)
convolution("RGCNConv", 8, 8, 3, rest=_types)
convolution("FastRGCNConv", 8, 8, 3, num_bases=2, rest=_types)
convolution("RGATConv", 8, 8, 3, rest=_types)
convolution("FiLMConv", 8, 8)
convolution("FeaStConv", 8, 8, heads=2)
convolution("LEConv", 8, 8)
convolution("ClusterGCNConv", 8, 8)
convolution("GENConv", 8, 8, aggr="softmax", learn_t=True)
convolution("SuperGATConv", 8, 4, heads=2)
convolution("EGConv", 8, 8, num_heads=2, num_bases=2)
convolution("GeneralConv", 8, 8)
convolution("MixHopConv", 8, 8, powers=[1])
convolution("HypergraphConv", 8, 8)
convolution("LGConv")
convolution("AGNNConv")
convolution("PDNConv", 8, 8, edge_dim=3, hidden_channels=4, rest=_attributes)
convolution("AntiSymmetricConv", 8)
convolution(
    "PNAConv",
    8,
    8,
    ["mean", "max", "std"],
    ["identity", "attenuation"],
    deg=torch.tensor([0, 3, 2, 1]),
)
convolution("GPSConv", 8, lambda: library("torch_geometric.nn").GCNConv(8, 8), heads=2)


def model(name: str, *args: Any, **options: Any) -> None:
    """A whole model of two layers."""

    def make() -> Case:
        kind = getattr(library("torch_geometric.nn"), name)
        return Case(kind(*args, **options).train(), (floats(6, 8), edges()))

    add(GROUP, f"pyg_model_{name}", make)


model("GCN", 8, 8, 2, 4, dropout=0.2, norm="batch_norm")
model("GraphSAGE", 8, 8, 2, 4, jk="cat")
model("GIN", 8, 8, 2, 4, norm="layer_norm")
model("GAT", 8, 8, 2, 4, heads=2, v2=True)
model("PNA", 8, 8, 2, 4, aggregators=["mean"], scalers=["identity"], deg=torch.tensor([0, 3, 2, 1]))
model("GraphUNet", 8, 8, 4, depth=2)


class Pooled(nn.Module):
    """A convolution, a pool over clusters or the best nodes, and a readout for each graph."""

    def __init__(self, pool: str, **options: Any) -> None:
        super().__init__()
        geometric = library("torch_geometric.nn")
        self.conv = geometric.GCNConv(8, 8)
        self.pool = getattr(geometric, pool)(8, **options)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        geometric = library("torch_geometric.nn")
        x = self.conv(x, edge_index).relu()
        x, edge_index, _, batch, *_ = self.pool(x, edge_index, batch=batch)
        mean, most = geometric.global_mean_pool(x, batch), geometric.global_max_pool(x, batch)
        return self.head(torch.cat([mean, most], -1)).log_softmax(-1)


@case(GROUP)
def pyg_top_k_pooling() -> Case:
    return Case(
        Pooled("TopKPooling", ratio=0.7), (floats(6, 8), edges(), torch.tensor([0, 0, 0, 1, 1, 1]))
    )


@case(GROUP)
def pyg_sag_pooling() -> Case:
    return Case(
        Pooled("SAGPooling", ratio=0.7), (floats(6, 8), edges(), torch.tensor([0, 0, 0, 1, 1, 1]))
    )


@case(GROUP)
def pyg_asap_pooling() -> Case:
    return Case(
        Pooled("ASAPooling", ratio=0.7), (floats(6, 8), edges(), torch.zeros(6, dtype=torch.long))
    )


@case(GROUP)
def pyg_dense_diff_pool() -> Case:
    geometric = library("torch_geometric.nn")

    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = geometric.DenseSAGEConv(8, 8)
            self.assign = geometric.DenseGCNConv(8, 3)

        def forward(self, x: Tensor, adjacency: Tensor, mask: Tensor) -> Tensor:
            s = self.assign(x, adjacency, mask)
            x, adjacency, link, entropy = geometric.dense_diff_pool(
                self.embed(x, adjacency, mask), adjacency, s, mask
            )
            return x.mean(1).sum() + link + entropy

    geometric_utils = library("torch_geometric.utils")
    adjacency = geometric_utils.to_dense_adj(edges())
    mask = torch.tensor([[True] * 5 + [False]])
    return Case(Dense(), (floats(1, 6, 8), adjacency, mask))


@case(GROUP)
def pyg_set_to_set() -> Case:
    model = library("torch_geometric.nn").Set2Set(8, 2)
    return Case(model, (floats(6, 8), torch.tensor([0, 0, 0, 1, 1, 1])))


@case(GROUP)
def pyg_graph_multiset() -> Case:
    model = library("torch_geometric.nn").GraphMultisetTransformer(8, 3, heads=2)
    return Case(model, (floats(6, 8), torch.tensor([0, 0, 0, 1, 1, 1])))


@case(GROUP)
def pyg_attentional_aggregation() -> Case:
    model = library("torch_geometric.nn").AttentionalAggregation(nn.Linear(8, 1), nn.Linear(8, 4))
    return Case(model, (floats(6, 8), torch.tensor([0, 0, 0, 1, 1, 1])))


@case(GROUP)
def pyg_heterogeneous() -> Case:
    geometric = library("torch_geometric.nn")
    kinds = {
        ("user", "buys", "item"): geometric.SAGEConv((8, 8), 8),
        ("item", "by", "user"): geometric.GATConv((8, 8), 8, add_self_loops=False),
    }
    model = geometric.HeteroConv(kinds, aggr="sum")
    some = torch.tensor([[0, 1, 2, 3], [1, 0, 2, 1]])
    nodes = {"user": floats(4, 8), "item": floats(3, 8)}
    return Case(
        model, (nodes, {("user", "buys", "item"): some, ("item", "by", "user"): some.flip(0)})
    )


@case(GROUP)
def pyg_hgt() -> Case:
    geometric = library("torch_geometric.nn")
    metadata = (["user", "item"], [("user", "buys", "item"), ("item", "by", "user")])
    some = torch.tensor([[0, 1, 2, 3], [1, 0, 2, 1]])
    nodes = {"user": floats(4, 8), "item": floats(3, 8)}
    model = geometric.HGTConv(8, 8, metadata, heads=2)
    return Case(
        model, (nodes, {("user", "buys", "item"): some, ("item", "by", "user"): some.flip(0)})
    )


@case(GROUP)
def pyg_masked_training() -> Case:
    geometric = library("torch_geometric.nn")

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.ModuleList([geometric.GCNConv(8, 8), geometric.GCNConv(8, 3)])
            self.norm = geometric.PairNorm()

        def forward(self, x: Tensor, edge_index: Tensor, y: Tensor, mask: Tensor) -> Tensor:
            x = self.norm(self.convs[0](x, edge_index)).relu()
            x = self.convs[1](x, edge_index)
            return F.cross_entropy(x[mask], y[mask])

    mask = torch.tensor([True, True, False, True, False, False])
    return Case(Masked(), (floats(6, 8), edges(), torch.arange(6) % 3, mask))


@case(GROUP)
def pyg_link_prediction() -> Case:
    geometric = library("torch_geometric.nn")
    utils = library("torch_geometric.utils")
    encoder = geometric.GCN(8, 8, 2, 4)

    class Links(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gae = geometric.VGAE(Encoder())

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            z = self.gae.encode(x, edge_index)
            negative = utils.negative_sampling(edge_index, 6)
            return self.gae.recon_loss(z, edge_index, negative) + self.gae.kl_loss() / 6

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shared, self.mean, self.spread = encoder, nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            x = self.shared(x, edge_index)
            return self.mean(x), self.spread(x)

    return Case(Links().train(), (floats(6, 8), edges()))


@case(GROUP)
def pyg_schnet() -> Case:
    model = library("torch_geometric.nn").SchNet(8, 8, 2, 10, cutoff=5.0, interaction_graph=_all)
    return Case(model, (torch.tensor([1, 6, 8, 1, 1]), torch.rand(5, 3) * 2))


def _all(position: Tensor, batch: Tensor) -> Any:
    pairs = torch.combinations(torch.arange(len(position))).t()
    return pairs, (position[pairs[0]] - position[pairs[1]]).norm(dim=-1)


@case(GROUP)
def pyg_point_net() -> Case:
    geometric = library("torch_geometric.nn")
    model = geometric.PointNetConv(_mlp(11)(), _mlp()())
    return Case(model, (floats(6, 8), torch.rand(6, 3), edges()))


@case(GROUP)
def pyg_meta_layer() -> Case:
    model = library("torch_geometric.nn").MetaLayer(_EdgeModel(), _NodeModel())
    return Case(model, (floats(6, 8), edges(), floats(10, 3)))


class _EdgeModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.Linear(19, 3)

    def forward(self, src: Tensor, dst: Tensor, attr: Tensor, u: Any, batch: Any) -> Tensor:
        return self.mlp(torch.cat([src, dst, attr], -1)).relu()


class _NodeModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.Linear(11, 8)

    def forward(self, x: Tensor, edge_index: Tensor, attr: Tensor, u: Any, batch: Any) -> Tensor:
        sums = library("torch_geometric.utils").scatter(attr, edge_index[1], dim_size=len(x))
        return self.mlp(torch.cat([x, sums], -1)).relu()
