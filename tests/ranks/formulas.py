"""Bytes that the models of `parallel_models` send in one step, by kind and group."""

from __future__ import annotations

from ranks.parallel_models import DIM, ROWS

MESH = {"dp": 2, "tp": 4}
RANK = 6
FLOAT = 4


def parameters() -> int:
    """Return the number of elements in the parameters of an `MLP`."""
    return DIM * 2 * DIM + 2 * DIM + 2 * DIM * DIM + DIM


FORMULAS = {
    "tensor parallel": {("all_reduce", "tp"): 2 * ROWS * DIM * FLOAT},
    "sequence parallel": {
        ("all_gather", "tp"): 2 * MESH["tp"] * ROWS * DIM * FLOAT,
        ("reduce_scatter", "tp"): 2 * MESH["tp"] * ROWS * DIM * FLOAT,
    },
    "fully sharded": {
        ("all_gather", "dp"): 6 * parameters() * FLOAT,
        ("reduce_scatter", "dp"): 3 * parameters() * FLOAT,
    },
    "hybrid sharded": {
        ("all_gather", "tp"): 6 * parameters() * FLOAT,
        ("reduce_scatter", "tp"): 3 * parameters() * FLOAT,
        ("all_reduce", "dp"): 3 * parameters() * FLOAT // MESH["tp"],
    },
    "experts": {("all_to_all", "tp"): 4 * ROWS * DIM * FLOAT},
    "in place": {
        ("all_reduce", "tp"): ROWS * DIM * FLOAT,
        ("all_gather", "tp"): MESH["tp"] * ROWS * DIM * FLOAT,
    },
    "data parallel": {("all_reduce", "dp"): parameters() * FLOAT},
    "coalesced": {("all_reduce", "dp"): (ROWS + 1) * DIM * FLOAT},
}
