"""Each form of a printed statement, and the node that it is read as."""

from __future__ import annotations

import contextlib
import enum
import math
from collections import namedtuple
from pathlib import Path

import pytest
import torch._dynamo.external_utils  # noqa: F401  # its functions are found only if it is loaded
from convert.printed.texts import JOINT, lines, module, parse_printed, parsed
from graph.examples import Example, examples
from torch import Tensor

from pytest_torchgraph import TensorMeta
from pytest_torchgraph.convert import PrintedGraphError, describe_like, read_printed
from pytest_torchgraph.graph import Atom, Device, Source, Symbol

Point = namedtuple("Point", ["x", "y"])


class Color(enum.Enum):
    RED = 1


def helper(x: Tensor) -> Tensor:
    return x


class Holder:
    @staticmethod
    def held(x: Tensor) -> Tensor:
        return x


def argument(text: str, inputs: str = 'x: "f32[2]"') -> object:
    """Return the value that an argument of a call is read as."""
    return parsed(f"y = torch.sin({text})\nreturn y", inputs).nodes[-2].args[0]


def call(text: str, inputs: str = 'x: "f32[2]"') -> str:
    """Return the op of the node that an expression is read as."""
    node = parsed(f"y = {text}\nreturn y", inputs).nodes[-2]
    return f"{node.kind} {node.op} {node.target}".strip()


# -- calls -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("torch.ops.aten.add.Tensor(x, 1)", "call_function aten.add.Tensor"),
        ("torch.nn.functional.relu(x)", "call_function torch.nn.functional.relu"),
        ("torch._C._nn.linear(x, x)", "call_function torch.nn.functional.linear"),
        ("torch.functional.split(x, 1)", "call_function torch.split"),
        ("torch.Tensor.add_(x, 1)", "call_function torch.Tensor.add_"),
        ("x.view(-1)", "call_method Tensor.view"),
        ("x.shape", "call_function getattr"),
        ("getattr(x, 'shape', None)", "call_function getattr"),
        ("x[0]", "call_function operator.getitem"),
        ("-x", "call_function operator.neg"),
        ("~x", "call_function operator.invert"),
        ("2 ** x", "call_function operator.pow"),
        ("-2 ** x", "call_function operator.pow"),
        ("x @ x", "call_function operator.matmul"),
        ("x <= 1", "call_function operator.le"),
        ("math_sqrt(x)", "call_function math.sqrt"),
        ("math_sqrt_1(x)", "call_function math.sqrt"),
        ("_operator_contains(x, 1)", "call_function operator.contains"),
        ("len(x)", "call_function len"),
        (
            "torch__dynamo_external_utils_call_hook(x, x)",
            "call_function torch._dynamo.external_utils.call_hook",
        ),
        ("self.blocks.fc(x)", "call_module torch.nn.Module blocks.fc"),
        ('getattr(self.blocks, "0").fc(x)', "call_module torch.nn.Module blocks.0.fc"),
        ("self.scale", "get_attr get_attr scale"),
        ('getattr(self.blocks, "0").scale', "get_attr get_attr blocks.0.scale"),
        ("self._tensor_constant0", "get_attr get_attr"),
    ],
)
def test_printed_expression_is_read_as_its_call(text: str, read: str) -> None:
    assert call(text) == read


def test_user_function_is_found_by_its_mangled_name() -> None:
    mangled = __name__.replace(".", "_")
    assert call(f"{mangled}_helper(x)") == f"call_function {__name__}.helper"
    assert call(f"{mangled}_helper_2(x)") == f"call_function {__name__}.helper"
    assert call(f"{mangled}_held(x)") == f"call_function {__name__}.Holder.held"
    assert call(f"{mangled}_local(x)") == f"call_function {__name__}.local"


@examples(Path(__file__).parent / "statements")
def test_printed_graph_is_read_as_in_the_example(example: Example) -> None:
    (heading,) = example.expected
    level, kind = heading.split()
    text = "\n".join(line[1:] for line in example.patch.split("\n"))
    graph = parse_printed(f"{text}\n", level=level, kind=kind)  # type: ignore[arg-type]
    assert all(node.module == "" for node in graph.nodes)
    example.check({heading: graph.to_text(fold=False).partition("\n\n")[2].rstrip("\n")})


# -- arguments -------------------------------------------------------------------------------------


@pytest.mark.slow("further cases; a few are in every run", only=["-inf--inf"])
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-1", -1),
        ("1e-05", 1e-05),
        ("inf", math.inf),
        ("-inf", -math.inf),
        ("True", True),
        ("...", ...),
        ("9223372036854775807", 2**63 - 1),
        ("'a\\nb # \"c\"'", 'a\nb # "c"'),
        ("'<class \\'int\\'>'", "<class 'int'>"),
        ("b'ab'", b"ab"),
        ("(1, [2, None], {'k': 3})", (1, (2, None), {"k": 3})),
        ("(1, )", (1,)),
        ("torch.float32", Atom("torch.float32")),
        ("torch.channels_last", Atom("torch.channels_last")),
        ("torch.strided", Atom("torch.strided")),
        ("device(type='cpu')", Device("cpu")),
        ("device(type='cuda', index=3)", Device("cuda")),
        ("slice(None, 2, None)", slice(None, 2, None)),
        ("range(0, 3)", Atom("range(0, 3)")),
        ("torch.Tensor(size=[2], dtype=float32)", Atom("torch.Tensor")),
        ("torch.ops.aten.sin.default", Atom("aten.sin.default")),
        ("<class 'torch.Tensor'>", Atom("torch.Tensor")),
        ("<torch._C.Generator object at 0x7f00>", Atom("torch._C.Generator")),
        ("s77", Symbol("s0")),
        ("(s77 // 2)", Symbol("(s0//2)")),
        ("Max(1, 2*s77)", Symbol("Max(1, 2*s0)")),
    ],
)
def test_printed_argument_is_read_as_its_value(text: str, value: object) -> None:
    read = argument(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    "value", [1 + 2j, -3j, 3j, complex(-0.0, -2), complex(math.inf, -math.inf), complex(0.0, -0.0)]
)
def test_complex_number_is_read_with_signed_zeros(value: complex) -> None:
    assert repr(argument(repr(value))) == repr(value)


def test_nan_is_a_number() -> None:
    assert math.isnan(argument("nan"))  # type: ignore[arg-type]
    assert math.isnan(argument("(nan+nanj)").imag)  # type: ignore[attr-defined]


def test_printed_enum_members_and_named_tuples_are_found_by_name() -> None:
    mangled = __name__.replace(".", "_")
    assert argument("Color.RED") == Atom(f"{__name__}.Color.RED")
    assert argument("<Color.RED: 1>") == Atom(f"{__name__}.Color.RED")
    assert argument(f"{mangled}_Point(1, 2)") == (1, 2)


# -- results ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "result"),
    [
        ("f32[2, 3][3, 1]cpu", TensorMeta("float32", (2, 3), (3, 1), "cpu")),
        ("i64[][]cuda:1", TensorMeta("int64", (), (), "cuda")),
        ("b8[4]", TensorMeta("bool", (4,))),
        ("c64[2][0]", TensorMeta("complex64", (2,), (0,))),
        ("f32[0, s7]", TensorMeta("float32", (0, Symbol("s0")))),
        ("f32[Max(1, s7), 2*s7]", TensorMeta("float32", (Symbol("Max(1, s0)"), Symbol("2*s0")))),
        ("Parameter(f32[2][1]cpu)", TensorMeta("float32", (2,), (1,), "cpu")),
        ("DTensor(f32[2][1]cpu, S(0))", TensorMeta("float32", (2,), (1,), "cpu")),
        ("Sym(s7 + 1)", Symbol("s0 + 1")),
        ("Sym(Eq(s7, 3))", Symbol("Eq(s0, 3)")),
    ],
)
def test_printed_annotation_is_read_as_the_result(annotation: str, result: object) -> None:
    assert parsed(f'y: "{annotation}" = torch.sin(x)\nreturn y').nodes[-2].result == result


# -- comments --------------------------------------------------------------------------------------


def test_source_applies_until_the_next_comment() -> None:
    graph = parsed(
        """
        # File: /nowhere/net.py:3 in forward, code: a = x.sin()  # File: no:1 in it, code: b
        a = x.sin()
        b = a.cos()

        # Annotation: {'k': 1} recompute: X Backward of forward node: File: /n/m.py:7 in f, code: c
        c = b.exp()

        # No stacktrace found for following nodes
        d = c.tan()
        return d
        """
    )
    first = Source("net.py", 3, "a = x.sin()  # File: no:1 in it, code: b", "forward")
    assert [node.source for node in graph.nodes[1:5]] == [
        first,
        first,
        Source("m.py", 7, "c", "f"),
        None,
    ]


def test_source_does_not_apply_to_the_next_body() -> None:
    graph = parsed(
        """
        # File: /nowhere/net.py:3 in forward, code: x
        a = self.body_0
        b = torch.ops.higher_order.wrap(a, x)
        return b
        """,
        inner='class body_0(torch.nn.Module):\n    def forward(self, x: "f32[2]"):\n'
        "        y = x.sin()\n        return (y,)",
    )
    assert graph.subgraphs[0].nodes[1].source is None


def test_later_stage_copies_missing_descriptions() -> None:
    described = read_printed(
        module("return (x,  # PlainAOTOutput(idx=0)\nx,  # SavedForBackwardsAOTOutput(idx=0)\n)")
    )
    assert len(described.output.meta["desc"]) == 2
    later = read_printed(module("return (x, x)"))
    describe_like(later, described)
    assert later.output.meta["desc"] == described.output.meta["desc"]
    other = read_printed(module("return (x, x, x)"))
    describe_like(other, described)
    assert "desc" not in other.output.meta


# -- modules ---------------------------------------------------------------------------------------


def test_inputs_of_a_joint_graph_are_in_the_order_of_its_tree_flatten() -> None:
    graph = parse_printed(JOINT, level="aot", kind="joint")
    assert [node.name for node in graph.inputs] == ["primals_1", "primals_2", "tangents_1"]
    assert graph.inputs[1].result is None
    assert lines(graph)[-1] == "return [%mul<net.forward>, None]"
    placeholders = read_printed(JOINT).placeholders
    assert [repr(node.meta.get("desc")) for node in placeholders] == [
        "PlainAOTInput(idx=0)",
        "None",
        "TangentAOTInput(output=PlainAOTOutput(idx=0))",
    ]


def test_trailing_remark_of_inductor_is_ignored() -> None:
    text = module("y = x + 1\nreturn (y,)") + "\n\n # graph id: 139872364\n"
    assert parse_printed(text, level="dynamo", kind="forward") == parsed("y = x + 1\nreturn (y,)")


@pytest.mark.parametrize(
    "body",
    [
        "y = torch.save(x, {mark!r})\nreturn y",
        "y = open({mark!r}, 'w')\nreturn y",
        "y = torch.sin(device(open({mark!r}, 'w')))\nreturn y",
        "y: \"f32[2]\" = x + open({mark!r}, 'w')\nreturn y",
        "return x\nopen({mark!r}, 'w')",
    ],
)
def test_reading_printed_text_evaluates_nothing(tmp_path: Path, body: str) -> None:
    mark = tmp_path / "mark"
    with contextlib.suppress(PrintedGraphError):
        parsed(body.format(mark=str(mark)))
    assert not mark.exists()
