"""Code that lets Python wait for the device, and the same without: found on the CPU already.

Each test runs for `cpu` and `cuda`; where there is no CUDA those cases are skipped with the reason.
"""

import torch
import torch.nn.functional as F
from torch import nn

END = 3


class Decoder(nn.Module):
    """A language model of one attention layer."""

    def __init__(self, words=16, width=8):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.project = nn.Linear(width, 3 * width)
        self.head = nn.Linear(width, words)

    def forward(self, ids):
        q, k, v = self.project(self.embed(ids)).unsqueeze(1).chunk(3, dim=-1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(mixed.squeeze(1))


class Looking(nn.Module):
    """Greedy generation that looks at each token."""

    def __init__(self):
        super().__init__()
        self.decoder = Decoder()

    def forward(self, ids):
        for _ in range(4):
            token = self.decoder(ids)[:, -1:].argmax(-1)
            ids = torch.cat([ids, token], dim=1)
            if (token == END).all():
                break
        return ids


class Steady(Looking):
    """The same tokens: what follows the end is overwritten, and nobody looks."""

    def forward(self, ids):
        done = torch.zeros_like(ids[:, :1], dtype=torch.bool)
        for _ in range(4):
            token = self.decoder(ids)[:, -1:].argmax(-1).masked_fill(done, END)
            ids = torch.cat([ids, token], dim=1)
            done = done | (token == END)
        return ids


class MaskedLoss(nn.Module):
    """The loss of the words that count, picked out by a mask, or told by an index."""

    def __init__(self, *, picked):
        super().__init__()
        self.decoder = Decoder()
        self.picked = picked

    def forward(self, ids, labels):
        logits = self.decoder(ids)
        if self.picked:
            counts = labels != -100
            return F.cross_entropy(logits[counts], labels[counts])
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


IDS = torch.tensor([[1, 2, 5], [4, 6, 7]])
LABELS = torch.tensor([[2, 5, -100], [6, 7, 1]])


def test_a_loop_that_looks_waits_for_each_token(graph_device, graph_capture):
    torch.manual_seed(0)
    capture = graph_capture(Looking(), IDS, via="dispatch", device=graph_device)
    (wait,) = capture.syncs
    assert wait.code == "if (token == END).all():"
    assert wait.kind == "reads a value back"
    assert wait.occurrences == 4  # once for each token


def test_one_that_does_not_look_never_waits(graph_device, graph_capture):
    torch.manual_seed(0)
    capture = graph_capture(Steady(), IDS, via="dispatch", device=graph_device)
    capture.assert_no_syncs()
    capture.assert_no_transfers()


def test_a_mask_breaks_the_graph_and_waits(graph_device, graph_capture):
    capture = graph_capture(MaskedLoss(picked=True), IDS, LABELS, device=graph_device)
    assert {sync.code for sync in capture.syncs} == {
        "return F.cross_entropy(logits[counts], labels[counts])"
    }
    capture = graph_capture(MaskedLoss(picked=False), IDS, LABELS, device=graph_device)
    capture.assert_no_graph_breaks()
    capture.assert_no_syncs()


def test_ops_can_be_others_on_another_device(graph_device, graph_capture):
    capture = graph_capture(Decoder(), IDS, device=graph_device)
    capture.forward.assert_op_counts(
        {
            "aten.addmm": {"cpu": 2, "cuda": 2},
            "aten._scaled_dot_product_*": {"cpu": 1, "cuda": (0, 1)},  # CUDA has several of them
        }
    )
    capture.assert_matches_eager(
        rtol={"cpu": 1.3e-6, "cuda": 1e-3}, atol={"cpu": 1e-5, "cuda": 1e-3}
    )
