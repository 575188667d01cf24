"""`ModeRegions`: the regions of a graph in which ops run in another mode, such as `no_grad`.

At the level of Dynamo, a node without operands switches the mode of all later nodes.
"""

from __future__ import annotations

from ..model import Node

_SET_GRAD = "torch._C._set_grad_enabled"
_SET_ATTENTION = "torch.nn.attention._sdpa_kernel"
_ATTENTION = "torch.nn.functional.scaled_dot_product_attention"
_VMAP = "vmap"
_ENTERING = {
    "torch._functorch.predispatch._vmap_increment_nesting": _VMAP,
    "torch.amp.autocast_mode._enter_autocast": "autocast",
    "torch.autograd.grad_mode._enter_inference_mode": "inference mode",
}
"""Functions that begin a region in which ops run in another mode."""
_LEAVING = {
    "torch._functorch.predispatch._vmap_decrement_nesting": _VMAP,
    "torch.amp.autocast_mode._exit_autocast": "autocast",
    "torch.autograd.grad_mode._exit_inference_mode": "inference mode",
}
"""Functions that end a region."""


class ModeRegions:
    """The regions around the current node in which ops run in another mode.

    `around` must be called for all nodes in order: it opens and closes the regions.

    No operand shows the region of an op. An op inside a region therefore follows the function that
    begins it. An op outside needs no order: the mode before a region equals the mode after it.
    """

    def __init__(self) -> None:
        # The functions that began the open regions of each kind, outermost first; the grad mode in
        # which the graph starts; and the last function that chose the backends of attention.
        self._open: dict[str, list[int]] = {}
        self._initial_grad: bool | None = None
        self._attention: list[int] = []

    @property
    def is_inside(self) -> bool:
        """True if a region is open."""
        return any(self._open.values())

    def around(self, node: Node, i: int) -> list[int]:
        """Return the functions that began the regions around the next node, whose number is `i`.

        If the node itself begins or ends a region, record that.
        """
        op = node.op
        enables_grad = op == _SET_GRAD and node.args == (True,)
        if op in _LEAVING:
            del self._open.get(_LEAVING[op], [])[-1:]
            return []
        if op == _SET_GRAD:
            if self._initial_grad is None:  # the first call changes the mode
                self._initial_grad = not enables_grad
            self._open["grad"] = []  # the function itself does not depend on the grad mode
        # These compute nothing, so they have no mode.
        if node.kind == "output" or op in ("operator.getitem", "get_attr"):
            return []
        # Of the ops in a vmap without a batched operand, only a random op runs differently.
        numbers = [
            starts[-1]
            for region, starts in self._open.items()
            if starts and (region != _VMAP or node.effects)
        ]
        if op in _ENTERING:
            self._open.setdefault(_ENTERING[op], []).append(i)
        elif op == _SET_GRAD and enables_grad != self._initial_grad:
            self._open["grad"] = [i]
        elif op == _SET_ATTENTION:
            self._attention = [i]
        elif op == _ATTENTION:
            numbers += self._attention
        return numbers
