"""Costs of graphs, computed from ops and shapes only.

- `cost`: `Cost`, the two figures of some ops or of an edit.
- `flops`: floating-point operations, by torch's formulas; the only module that requires torch.
- `step`: storages of a step of several graphs, and the storages saved by the forward.
- `peak`: an estimate of peak memory.
- `recomputed`: ops that a backward recomputes.
- `by_node`: costs of single nodes. `table`: costs by module, in rows and as text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .by_node import flops_by_node as flops_by_node
    from .by_node import saved_by_node as saved_by_node
    from .cost import UNKNOWN as UNKNOWN
    from .cost import Cost as Cost
    from .cost import sum_of as sum_of
    from .flops import flops_of as flops_of
    from .flops import flops_of_call as flops_of_call
    from .flops import total_flops as total_flops
    from .flops import why_none_counted as why_none_counted
    from .peak import peak_bytes as peak_bytes
    from .recomputed import Recomputed as Recomputed
    from .recomputed import changed_recomputation as changed_recomputation
    from .recomputed import need_backward as need_backward
    from .recomputed import recomputed_if_known as recomputed_if_known
    from .recomputed import recomputed_nodes as recomputed_nodes
    from .recomputed import recomputed_ops as recomputed_ops
    from .step import KeptStorage as KeptStorage
    from .step import Received as Received
    from .step import StepStorages as StepStorages
    from .step import find_base as find_base
    from .step import kept as kept
    from .step import need_saved as need_saved
    from .step import owners_of_saved as owners_of_saved
    from .step import producer_of as producer_of
    from .step import saved_bytes as saved_bytes
    from .step import storage_bytes as storage_bytes
    from .step import storage_bytes_if_known as storage_bytes_if_known
    from .step import viewed_by as viewed_by
    from .step import with_savers as with_savers
    from .table import by_module as by_module
    from .table import changed_costs as changed_costs
    from .table import cost_table as cost_table
    from .table import format_cost_table as format_cost_table
else:
    __getattr__ = front_door(
        __name__,
        {
            "by_node": "flops_by_node saved_by_node",
            "cost": "Cost UNKNOWN sum_of",
            "flops": "flops_of flops_of_call total_flops why_none_counted",
            "peak": "peak_bytes",
            "recomputed": (
                "Recomputed changed_recomputation need_backward recomputed_if_known "
                "recomputed_nodes recomputed_ops"
            ),
            "step": (
                "KeptStorage Received StepStorages find_base kept need_saved owners_of_saved "
                "producer_of saved_bytes storage_bytes storage_bytes_if_known viewed_by with_savers"
            ),
            "table": "by_module changed_costs cost_table format_cost_table",
        },
    )
