"""Colours of boxes, by kind of change, op category or cost.

Colours of changes are distinguishable with any of the usual colour vision deficiencies.

Category colours are those of Okabe and Ito, some of them lightened or darkened. Any two categories
differ in border or fill, even with one of the usual colour vision deficiencies. Fills are tints, so
black text stays readable.

Cost colours are shades of purple, darker for a higher cost. They are distinguishable in greyscale
and with any colour vision deficiency, and no other element of a drawing is purple. Each step of the
scale begins at a fixed share of the drawing's total cost, so adding a cheap op recolours no other
op.

A light background needs no CSS, because the colours are attributes, which every viewer supports.
For a dark background, the whole drawing has the filter `DARK`, so no colour has a second value.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

from ..graph.cost import flops_by_node, need_saved, saved_by_node
from ..graph.model import Atom, Graph, Node
from ..ops.collectives import WAITS, collective_kinds
from ..words import amount, counted


class Paint(NamedTuple):
    """The colours of a box, chosen by op category, change mark or cost; part of its `Look`.

    Attributes:
        border: border colour, `#RRGGBB`; DOT's `color`.
        fill: fill colour, `#RRGGBB`; DOT's `fillcolor`.
    """

    border: str
    fill: str


WHITE = "#FFFFFF"
GREY = "#666666"
"""Colour of edges and of their text."""
CHANGE_PAINTS: dict[str, Paint] = {
    "added": Paint("#009E73", "#A9E8D0"),
    "removed": Paint("#C24E00", "#F0A97B"),
    "changed": Paint("#E69F00", "#FCE29F"),
    "rewired": Paint("#3B4CC0", "#9DB4EE"),
    "surplus": Paint("#C24E00", "#F0A97B"),
}
"""Paint of a box or an edge with a change mark, keyed by the kind of the mark."""
CATEGORY_PAINTS: dict[str, Paint] = {
    "matmul": Paint("#0072B2", "#8CBFE0"),
    "pointwise": Paint("#009E73", "#A9E0CE"),
    "reduction": Paint("#C24E00", "#F2B48C"),
    "view": Paint("#A6A6A6", "#F5F5F5"),
    "copy/cast": Paint("#E69F00", "#F9D284"),
    "collective": Paint("#B0437F", "#E2A3C6"),
    "random": Paint("#8F8400", "#F8F08C"),
    "custom": Paint("#000000", "#B0B0B0"),
    "other": Paint("#444444", "#FFFFFF"),
    "input": Paint("#56B4E9", "#DDF0FB"),
}
"""Paint of each op category and of inputs, in the order of the legend."""

_OP_NAMES = {
    "matmul": r"""\w*mm | \w*matmul | \w*linear | conv(_?transpose)?\d?d? | convolution\w* | dot
        | vdot | mv | addmv | addr | ger | outer | einsum | tensordot | bilinear | \w*attention\w*
        | \w*addmm\w* | conv_tbc""",
    "random": r"""(native_|alpha_|feature_)?(alpha_)?dropout\d?d? | bernoulli | rand\w* | normal
        | normal_functional | uniform | multinomial | exponential | poisson | cauchy | geometric
        | log_normal | rrelu_with_noise | seed | inductor_random | inductor_seeds?""",
    "copy/cast": r"""clone | copy | to_copy | to_dtype | to | contiguous | float | half | double
        | bfloat16 | int | long | bool | type | type_as | cuda | cpu | lift_fresh\w* | lift
        | convert_element_type | device_put | cat | concat | concatenate | stack | repeat
        | repeat_interleave | pad | constant_pad_nd | \w*scatter\w* | empty_like | \w*_copy | roll
        | flip | embedding | index | index_select | gather | take | take_along_dim""",
    "view": r"""view | unsafe_view | view_as\w* | reshape | reshape_as | t | transpose | permute
        | expand | expand_as | squeeze | unsqueeze | slice | select | split | split_with_sizes
        | unsafe_split\w* | tensor_split | chunk | as_strided | alias | detach | flatten | unflatten
        | unbind | narrow | unfold | diagonal | movedim | swapaxes | swapdims | broadcast_to | real
        | imag | getitem | getattr | adjoint | ravel | numpy_T | mT | T | H | is_\w+ | dim | size
        | shape""",
    "reduction": r"""sum | sum_to_size | mean | prod | amax | amin | aminmax | argmax | argmin | max
        | min | all | any | var | std | var_mean | std_mean | median | mode | norm | vector_norm
        | linalg_\w*norm | \w*softmax\w* | logsumexp | cum\w+ | topk | sort | argsort | kthvalue
        | count_nonzero | \w*layer_?norm | \w*batch_?norm\w* | \w*group_?norm | \w*instance_?norm
        | \w*rms_?norm | batchnorm\dd | \w*pool\w* | \w*_loss\w* | cross_entropy | \w*loss
        | trace | xor_sum""",
    "pointwise": r"""add | sub | rsub | mul | div | true_divide | floor_divide | remainder | fmod
        | truediv | floordiv | mod | iadd | isub | imul | itruediv | pow | ipow | neg | abs | sgn
        | sign | exp\d? | expm1 | log | log1p | log2 | log10 | sqrt | rsqrt | square | reciprocal
        | sin | cos | tan | a?sinh | a?cosh | a?tanh | asin | acos | atan2? | erf | erfc | erfinv
        | floor | ceil | round | trunc | frac | clamp\w* | maximum | minimum | fmax | fmin | where
        | relu6? | leaky_?relu | p?relu | elu | selu | celu | gelu | silu | mish | sigmoid
        | hard\w+ | log_?sigmoid | softplus | softsign | softshrink | threshold | glu | swiglu
        | eq | ne | lt | le | gt | ge | isnan | isinf | isfinite | logical_\w+ | bitwise_\w+
        | and | or | xor | invert | lerp | addcmul | addcdiv | masked_fill | tril | triu | fill
        | zero | nan_to_num | deg2rad | rad2deg | logit | fma | logaddexp2? | heaviside
        | native_dropout_grad | dropout_grad""",
}
"""Op names without namespace and overload, as verbose patterns. The first match wins."""
_CATEGORY = re.compile(
    "|".join(
        # The name of a group cannot contain the slash of "copy/cast".
        f"(?P<{'copy' if category == 'copy/cast' else category}>{names})"
        for category, names in _OP_NAMES.items()
    ),
    re.VERBOSE | re.IGNORECASE,
)
_COLLECTIVES = re.compile(
    r"(all_reduce|all_gather|reduce_scatter|all_to_all|broadcast|barrier|isend|irecv)\w*"
)
"""Names of custom ops that communicate, for ops without a recorded effect."""
_OWN_NAMESPACES = frozenset(
    """aten prims prim torch operator _operator math builtins Tensor higher_order inductor
    quantized quantized_decomposed profiler rngprims symm_mem fsdp
    torchvision debugprims streams _inductor_test""".split()
)
"""Namespaces of ops that ship with torch. Ops of any other namespace are custom."""
_PYTHON_NAMESPACES = ("torch.", "operator.", "math.", "builtins.", "Tensor.", "_operator.")
"""Namespaces of Python functions and methods, whose names have no overload suffix."""


def op_category(node: Node) -> str:
    """Return the category of a node's op, a key of `CATEGORY_PAINTS`; "other" if none matches."""
    if node.kind == "placeholder":
        return "input"
    # Recorded effects first: they also know custom ops, whose names say nothing.
    kinds = {effect.kind for effect in node.effects}
    if "communicates" in kinds:
        return "collective"
    if "random" in kinds:
        return "random"
    if node.op.startswith("higher_order.") and node.args and isinstance(node.args[0], Atom):
        return _category_of(node.args[0].name)  # the wrapped op, as in auto_functionalized
    if node.op in WAITS or collective_kinds(node.op, node.args):
        return "collective"
    return _category_of(node.op)


@lru_cache(maxsize=4096)
def _category_of(op: str) -> str:
    """Return the category of an op by its name alone."""
    namespace, _, qualified_rest = op.partition(".")
    if op.startswith(_PYTHON_NAMESPACES) or not qualified_rest:
        name = op.rpartition(".")[2]
    else:
        name = qualified_rest.partition(".")[0]
    if "c10d" in namespace:
        return "collective"
    if namespace not in _OWN_NAMESPACES and _COLLECTIVES.fullmatch(name):
        return "collective"
    name = name.strip("_")  # private as `_softmax`, or in place as `add_`
    base = re.sub(r"_(backward|grad|jvp)\w*$", "", name)
    # The derivative of an op has the category of the op. Only that of a dropout differs: it
    # multiplies by the mask of the forward, and draws no numbers.
    if base != name and "dropout" in base:
        return "pointwise"
    if namespace not in _OWN_NAMESPACES:
        return "custom"
    match = _CATEGORY.fullmatch(base)
    if match is None or match.lastgroup is None:
        return "other"
    return "copy/cast" if match.lastgroup == "copy" else match.lastgroup


HeatFigure = Literal["flops", "saved_bytes"]
"""Cost figures that colours can show."""
UNITS: dict[HeatFigure, tuple[str, str]] = {
    "flops": ("FLOP", "floating-point operations"),
    "saved_bytes": ("B", "bytes saved for backward"),
}
"""Unit and description of each figure."""
BORDER = "#54478C"
HEAT_PAINTS: dict[str, Paint] = {
    "most": Paint(BORDER, "#9C8FCC"),
    "more": Paint(BORDER, "#B2A7D9"),
    "medium": Paint(BORDER, "#C8C0E5"),
    "less": Paint(BORDER, "#DCD7EE"),
    "least": Paint(BORDER, "#F0EDF8"),
    "none": Paint("#A6A6A6", "#FFFFFF"),
    "unknown": Paint("#A6A6A6", "#FEFEFE"),
}
"""Paint of each step of the scale, in the order of the legend."""
SHARES: dict[str, float] = {"most": 0.3, "more": 0.1, "medium": 0.03, "less": 0.01, "least": 0.0}
"""Smallest share of the total cost for each step."""
STEP_LABELS = {
    **{step: f"{share:.0%} and more" for step, share in SHARES.items() if share},
    **{"least": "under 1%", "none": "nothing", "unknown": "unknown"},
}
"""Text of each step in the legend."""


@dataclass(frozen=True)
class Heat:
    """Cost of the ops in a drawing.

    Attributes:
        figure: the cost figure.
        costs: cost of each node, `None` if unknown. A missing node costs nothing.
        total: sum of the known costs.
    """

    figure: HeatFigure
    costs: Mapping[Node, int | None]
    total: int

    @classmethod
    def of(cls, graphs: Iterable[Graph], figure: HeatFigure, *, times_run: bool) -> Heat:
        """Compute the heat of graphs that are drawn together.

        Args:
            graphs: the graphs.
            figure: the cost figure.
            times_run: True to multiply the cost of a graph by its run count.

        Raises:
            CaptureError: if the figure is not available at the level of a graph.
            ValueError: if the figure is unknown.
        """
        if figure not in UNITS:
            figures = " or ".join(map(repr, get_args(HeatFigure)))
            raise ValueError(f"heat={figure!r} is not a cost: use {figures}")
        costs: dict[Node, int | None] = {}
        for graph in graphs:
            times = graph.runs if times_run else 1
            if figure == "saved_bytes":
                need_saved((graph,))  # raises if the level has no saved values
                by_name = saved_by_node(graph) or {}
            else:
                by_name = flops_by_node(graph)
            for name, value in by_name.items():
                if value != 0:  # a missing node costs nothing
                    costs[graph.by_name[name]] = None if value is None else value * times
        return cls(figure, costs, sum(value or 0 for value in costs.values()))

    def known_cost(self, nodes: Collection[Node]) -> int:
        """Return the sum of the nodes' known costs."""
        return sum(self.costs.get(node) or 0 for node in nodes)

    def step(self, nodes: Collection[Node]) -> str:
        """Return the step of the scale for a box of these nodes, a key of `HEAT_PAINTS`."""
        value = self.known_cost(nodes)
        if not value:
            return "unknown" if self._unknown(nodes) else "none"
        share = value / self.total
        # From the largest share down to 0, so one of them always matches.
        return next(step for step, least in SHARES.items() if share >= least)

    def format_cost(self, nodes: Collection[Node]) -> str:
        """Return the cost of nodes as text, for example `1.2 MFLOP, 12.3%`; "" for no cost."""
        unit = UNITS[self.figure][0]
        value, unknown = self.known_cost(nodes), self._unknown(nodes)
        text = self.format_amount(value)
        if unknown:
            uncounted = f"{unit} of {counted(unknown, 'op')} unknown"
            return f"{text}; {uncounted}" if text else uncounted
        return text

    def format_amount(self, value: int) -> str:
        """Return an amount and its share of the total as text, "" for 0."""
        if not value:
            return ""
        return f"{amount(value, UNITS[self.figure][0])}, {value / self.total:.1%}"

    def title(self) -> str:
        """Return the title line that explains the colours."""
        unit, description = UNITS[self.figure]
        unknown = sum(value is None for value in self.costs.values())
        uncounted = f"; unknown for {counted(unknown, 'op')}" if unknown else ""
        return f"colour: share of all {description}, {amount(self.total, unit)}{uncounted}"

    def _unknown(self, nodes: Collection[Node]) -> int:
        """Return the number of nodes with an unknown cost. A missing node costs nothing."""
        return sum(self.costs.get(node, 0) is None for node in nodes)


DARK = "invert(0.95) hue-rotate(180deg)"
"""CSS filter for a dark background: it turns light into dark, and keeps the hues."""
