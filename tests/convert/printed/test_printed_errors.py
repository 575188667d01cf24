"""Unreadable text raises one type of error, with the line and the reason."""

from __future__ import annotations

import contextlib

import pytest
from convert.printed.texts import BODY, JOINT, X, module, parse_printed
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_torchgraph import CaptureError
from pytest_torchgraph.convert import PrintedGraphError

BROKEN = {
    "empty": ("", 1, "expected one printed module"),
    "no class": ("def forward(self):\n    return ()\n", 1, "expected one printed module"),
    "two modules": (module("return x") + module("return x"), 1, "expected one printed module"),
    "another class": ("class A(object):\n    def forward(self): return 1\n", 1, "expected 'class"),
    "no forward": (BODY.format(name="A").split("    def")[0] + "    pass", 2, "expected one 'def"),
    "syntax": (module("y = (x +\nreturn y"), 3, "not Python"),
    "no self": (
        "class A(torch.nn.Module):\n    def forward(x):\n        return x\n",
        2,
        "no parameter self",
    ),
    "star": (module("return x", "*x"), 2, "inputs with *"),
    "no return": (module("y = x + 1"), 2, "the text is truncated"),
    "after return": (module("return x\ny = x + 1"), 4, "after the return"),
    "unknown name": (
        module("y = x + z\nreturn y"),
        3,
        "z is neither an earlier node",
    ),
    "used before": (
        module("y = z + 1\nz = x + 1\nreturn y"),
        3,
        "z is neither an earlier node",
    ),
    "not a function": (module("y = torch.float32(x)\nreturn y"), 3, "is not callable"),
    "twice": (module("y = x + 1\ny = x + 2\nreturn y"), 4, "y is defined twice"),
    "input twice": (module("x = x\nreturn x", 'y: "f32[2]", x: "f32[2]"'), 3, "x is defined"),
    "dropped": (module("y = x + 1;  z = None\nreturn y"), 3, "z is deleted, but not"),
    "several targets": (module("y = z = x + 1\nreturn y"), 3, "several assignment targets"),
    "no name": (module("y.z = x + 1\nreturn x"), 3, "expected a name left of ="),
    "half of an in-place": (module("x += 1\nreturn x"), 3, "no name follows the in-place"),
    "another half": (module("x += 1;  y = z\nreturn x"), 3, "no name follows the in-place"),
    "a statement": (module("for i in x: pass\nreturn x"), 3, "unsupported statement"),
    "an expression": (module("x + 1\nreturn x"), 3, "unsupported statement"),
    "a lambda": (module("y = torch.sin(lambda: 1)\nreturn y"), 3, "unsupported argument"),
    "a call inside": (module("y = torch.sin(torch.cos(x))\nreturn y"), 3, "a call of torch.cos"),
    "a nested expression": (module("y = torch.sin(x + 1)\nreturn y"), 3, "unsupported"),
    "a constant": (module("y = 3\nreturn y"), 3, "expected a call"),
    "an operator": (module("y = not x\nreturn y"), 3, "unsupported operator"),
    "a double star": (module("y = torch.sin(**x)\nreturn y"), 3, "\\*\\* in a call is not"),
    "an address": (
        module("y = torch.sin(<function f at 0x7f>)\nreturn y"),
        3,
        "unsupported argument: <function f at 0x7f>",
    ),
    "result": (
        module('y: "nonsense" = x + 1\nreturn y'),
        3,
        "'nonsense' is not a tensor annotation",
    ),
    "dtype": (module('y: "f31[2]" = x + 1\nreturn y'), 3, "'f31' is not a dtype"),
    "shape": (module('y: "f32[(2]" = x + 1\nreturn y'), 3, "is not a shape"),
    "place": (module('y: "f32[2][1]nope" = x + 1\nreturn y'), 3, "'nope' is not a device"),
    "device": (module("y = torch.sin(device(type='nope'))\nreturn y"), 3, "device\\(...\\): "),
    "a body that is missing": (
        module("b = self.body_0\ny = torch.ops.higher_order.wrap(b, x)\nreturn y"),
        5,
        "missing body of body_0",
    ),
    "returned call": (module("return torch.sin(x)"), 3, "a call in the return"),
    "joint inputs": (
        JOINT.replace("primals_1, primals_2,", "primals_2,"),
        9,
        "differ from the annotated",
    ),
}


@pytest.mark.slow("further cases; a few are in every run", only=["a double star"])
@pytest.mark.parametrize("case", BROKEN)
def test_unreadable_text_is_an_error_with_line_and_reason(case: str) -> None:
    text, line, reason = BROKEN[case]
    with pytest.raises(PrintedGraphError, match=reason) as caught:
        parse_printed(text, level="dynamo", kind="forward")
    assert caught.value.line == line
    assert isinstance(caught.value, CaptureError)


@pytest.mark.parametrize(
    ("printed", "op"),
    [
        ("torch.ops.nope.op.default", "nope.op.default"),
        ("torch.nope.sin", "torch.nope.sin"),
        ("nope_sin", "nope_sin"),
    ],
)
def test_functions_of_other_processes_have_their_printed_names(printed: str, op: str) -> None:
    graph = parse_printed(module(f"y = {printed}(x)\nreturn y"), level="dynamo", kind="forward")
    assert [node.op for node in graph.nodes if node.is_call] == [op]


def test_the_message_shows_the_line() -> None:
    with pytest.raises(PrintedGraphError) as caught:
        parse_printed(module("y = torch.float32(x)\nreturn y"), level="dynamo", kind="forward")
    assert str(caught.value) == (
        "cannot read the graph that torch printed, line 3: torch.float32 is not callable\n"
        "    y = torch.float32(x)\n"
        "Use graph_capture(target, ...) instead of watch(), and please report this line"
    )


WHOLE = module(
    """
    # File: /nowhere/net.py:3 in forward, code: x
    body_0 = self.body_0
    wrap = torch.ops.higher_order.wrap(body_0, x, 'a "text"', [1, -2.5]);  body_0 = None
    getitem: "f32[2, 3][3, 1]cpu" = wrap[0];  wrap = None
    x[(slice(None, 1, None),)] = 2;  setitem = x;  setitem = None
    getitem -= -inf;  y: "f32[2, 3]" = getitem;  getitem = None
    z: "Sym(s7//2)" = torch.ops.aten.sym_size.int(y, 1)
    return (y, z, None, {'k': y})
    """,
    inner=BODY.format(name="body_0"),
)


def test_truncated_text_is_an_error() -> None:
    whole = WHOLE.splitlines()
    parse_printed(WHOLE, level="dynamo", kind="forward")
    for end in range(len(whole)):
        with pytest.raises(PrintedGraphError):
            parse_printed("\n".join(whole[:end]), level="dynamo", kind="forward")


@pytest.mark.slow("a search for a second")
@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 6), st.text(max_size=4))
@example(WHOLE.index("2,"), 0, "\N{SUPERSCRIPT FOUR}")  # str.isdigit() is true, but int() fails
def test_damaged_printed_text_raises_only_the_read_error(start: int, length: int, put: str) -> None:
    text = WHOLE[:start] + put + WHOLE[start + length :]
    with contextlib.suppress(PrintedGraphError):
        parse_printed(text, level="dynamo", kind="forward")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000,
        module("y = " + "-" * 5000 + "x\nreturn y"),
        module(f"return ({'[' * 300}x"),
        "\0",
    ],
)
def test_printed_text_with_excess_depth_or_characters_is_an_error(text: str) -> None:
    with pytest.raises(PrintedGraphError):
        parse_printed(text, level="dynamo", kind="forward")


def test_printed_error_cases_have_readable_inputs() -> None:
    parse_printed(module("return x", X), level="dynamo", kind="forward")
