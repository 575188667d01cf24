"""The rules: why two changes are one edit, and why a change is a consequence of an edit.

Each module that joins or attaches changes names its rule, and `Origins` records the two nodes, so
that a finding can say why it is one. The table is in the documentation, with an example of each
rule. It is made from this module, and the examples are run as tests.

The idea that a comparison keeps the rule behind each of its decisions is from openxla's `hlo_diff`,
where each pair of instructions has the matcher that made it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Rule(NamedTuple):
    """A rule.

    Attributes:
        name: the reason, as `Finding.reasons` gives it.
        kind: "joins" if two changes are one edit, "follows" if a change is a consequence.
        meaning: what it joins, or what follows.
        verb: what stands between the two nodes of a use, in the text of a finding.
    """

    name: str
    kind: Literal["joins", "follows"]
    meaning: str
    verb: str


class Reason(NamedTuple):
    """The two nodes of one use of a rule.

    Attributes:
        rule: name of the rule.
        node: name of the joined node, or of the node that follows.
        other: name of the node that it was joined to, or of a node of the edit; "" for a break.
        signs: the sign of the change of each, see `SIGNS`; "" for a node that does not differ.
        graphs: the graphs of the two, if they are in different graphs.
        shared: name of the node that both take, or that takes both; "" if the rule needs none.
    """

    rule: str
    node: str
    other: str
    signs: tuple[str, str] = ("", "")
    graphs: tuple[str, ...] = ()
    shared: str = ""


SLOT = "same operand slot"
OPERAND = "operand added or removed"
EXCHANGED = "exchanged values"
READS = "reads the result"
QUANTIZER = "same quantizer"
COPY = "copy for a reshape"
SIZE = "size of an operand"
SUMMED_SIZE = "summed size"
CALL = "same call"
SIDE_EFFECT = "side effect"
MOVED_MODULE = "same moved module"
INPUT_ORDER = "input order"
MODULE = "same added or removed module"
TORCH_MODULE = "same module of torch"
RUNS = "same run counts"
MOVED = "moved op between"
RENAMED = "renamed module"
BODY = "result of a body"
FOLDED_NORM = "unfolded batch norm"
CALIBRATED = "calibrated constant"
VALUE = "gradient of a value"
ON_LINE = "gradient of the line"
OF_OP = "gradient of the op"
IN_MODULE = "gradient in the module"
OF_OPERAND = "gradient of an operand"
OF_OPERANDS = "gradient of a common operand"
CONNECTED = "connected gradient"
NEAREST = "nearest module"
CUT = "graph break"

RULES = (
    Rule(
        SLOT,
        "joins",
        "A removed and an added value are the same operand of a common reader. Not if one of them "
        "is in a module that only one side has, and the other in one of its list that is kept.",
        "is the same operand as",
    ),
    Rule(
        OPERAND,
        "joins",
        "A reader takes another value, which was added or removed.",
        "takes another value:",
    ),
    Rule(
        EXCHANGED,
        "joins",
        "Two readers take each other's values.",
        "takes the place of the operand of",
    ),
    Rule(
        READS,
        "joins",
        "An added or removed op reads the result of an op that was added, removed or changed. Not "
        "if that op only took the place of another one, and the reader is in another module. Nor "
        "if they are in two modules of one list, and one module is one-sided or the op is equal. "
        "In graphs that torch printed, the ops of one line are also joined across a kept op.",
        "reads",
    ),
    Rule(
        QUANTIZER,
        "joins",
        "A quantize and a dequantize op have the same changed constants.",
        "has the changed constants of",
    ),
    Rule(
        COPY,
        "joins",
        "A `clone` is there only because `reshape` needs a copy of the value.",
        "is a copy for",
    ),
    Rule(
        SIZE,
        "joins",
        "An op differs only in the size or dtype that an operand gives it.",
        "has its size or dtype from",
    ),
    Rule(
        SUMMED_SIZE,
        "joins",
        "Both factors of a product have another size where they are summed; a scale is its root.",
        "and the other factor,",
    ),
    Rule(
        CALL,
        "joins",
        "Ops of one call of a torch function, such as `einsum`, were added or removed.",
        "is of the same call as",
    ),
    Rule(
        SIDE_EFFECT,
        "follows",
        "A node is computed only to be saved, selects a result, or asserts a dtype. It belongs to "
        "the nearest edit.",
        "is nearest to",
    ),
    Rule(
        MOVED_MODULE,
        "joins",
        "Ops of a module that moved read its one operand.",
        "is in one module with",
    ),
    Rule(INPUT_ORDER, "joins", "Inputs of a graph are in another order.", "moved with"),
    Rule(
        MODULE,
        "joins",
        "An op is in a module of a list that only one side has.",
        "is in one module with",
    ),
    Rule(
        TORCH_MODULE,
        "joins",
        "Edits are in exactly the same modules of torch.",
        "is in the same modules as",
    ),
    Rule(
        BODY,
        "joins",
        "A body of a higher-order op returns something else, so its call does.",
        "returns the result of",
    ),
    Rule(
        RUNS,
        "joins",
        "Graphs run equally often before, and equally often after.",
        "runs as often as",
    ),
    Rule(
        MOVED,
        "follows",
        "An op reads the same value if one looks through what moved.",
        "is rewired by the move of",
    ),
    Rule(
        RENAMED,
        "follows",
        "A called module is named after an operand of the edit.",
        "is named after",
    ),
    Rule(
        FOLDED_NORM,
        "follows",
        "An op between a convolution and its batch norm unfolds it.",
        "is unfolded by",
    ),
    Rule(
        CALIBRATED,
        "follows",
        "A scale or zero point is computed from values after the edit.",
        "is computed after",
    ),
    Rule(
        VALUE,
        "follows",
        "An op of the backward takes or has the name of a value of the edit.",
        "takes",
    ),
    Rule(
        ON_LINE,
        "follows",
        "An op of the backward is in a module of the edit, and of its line of code only.",
        "is of the same line as",
    ),
    Rule(
        OF_OP,
        "follows",
        "An op of the backward has the name of an op of this edit only, among those of its module.",
        "is of the op of",
    ),
    Rule(
        IN_MODULE,
        "follows",
        "An op of the backward is in a module of the edit.",
        "is in the module of",
    ),
    Rule(
        OF_OPERAND,
        "follows",
        "An op of the backward takes an operand of this edit only.",
        "takes the same operand as",
    ),
    Rule(
        OF_OPERANDS,
        "follows",
        "An op of the backward takes an operand of several edits.",
        "takes the same operand as",
    ),
    Rule(
        CONNECTED,
        "follows",
        "An op of the backward reads one that follows, or is joined with it.",
        "is joined with what follows from",
    ),
    Rule(
        NEAREST,
        "follows",
        "An op of the backward is nearest to the module of the edit.",
        "is nearest to",
    ),
    Rule(
        CUT, "follows", "Compiled and eager code record it otherwise, or it ran for the break.", ""
    ),
)
"""All rules, in the order of `Finding.reasons`."""

VERBS = {rule.name: rule.verb for rule in RULES}
FOLLOWS = frozenset(rule.name for rule in RULES if rule.kind == "follows")
