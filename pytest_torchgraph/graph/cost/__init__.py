"""Costs of graphs, computed from ops and shapes only.

The properties of a capture call `total_flops`, `saved_bytes`, `peak_bytes`, `recomputed_ops` and
`by_module` with all graphs of a step.

- `cost`: `Cost`, the two figures of some ops or of an edit.
- `flops`: floating-point operations, by torch's formulas; the only module that requires torch.
- `storages`: storages of a step of several graphs, and the storages saved by the forward. Also the
  costs of single nodes.
- `peak`: an estimate of peak memory.
- `recomputed`: ops that a backward recomputes.
- `table`: costs by module, in rows and as text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .cost import UNKNOWN, Cost, sum_of
    from .flops import flops_of, flops_of_call, total_flops, why_none_counted
    from .peak import peak_bytes
    from .recomputed import (
        Recomputed,
        changed_recomputation,
        need_backward,
        recomputed_if_known,
        recomputed_nodes,
        recomputed_ops,
    )
    from .storages import (
        KeptStorage,
        StepStorages,
        find_base,
        flops_by_node,
        kept,
        need_saved,
        owners_of_saved,
        producer_of,
        saved_by_node,
        saved_bytes,
        storage_bytes,
        storage_bytes_if_known,
        viewed_by,
        with_savers,
    )
    from .table import by_module, cost_table, format_cost_table
else:
    __getattr__ = front_door(
        __name__,
        {
            "cost": "Cost UNKNOWN sum_of",
            "flops": "flops_of flops_of_call total_flops why_none_counted",
            "peak": "peak_bytes",
            "recomputed": (
                "Recomputed changed_recomputation need_backward recomputed_if_known "
                "recomputed_nodes recomputed_ops"
            ),
            "storages": (
                "KeptStorage StepStorages find_base flops_by_node kept need_saved owners_of_saved "
                "producer_of saved_by_node saved_bytes storage_bytes storage_bytes_if_known "
                "viewed_by with_savers"
            ),
            "table": "by_module cost_table format_cost_table",
        },
    )
