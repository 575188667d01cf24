"""Texts made to be slow or to break the reader end soon, as a graph or a format error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from graph.build import calls, document, graph
from graph.hostile import FILES, READABLE, REPEATED, Text

from pytest_torchgraph import GraphFormatError
from pytest_torchgraph.graph import (
    Atom,
    Graph,
    Node,
    Program,
    Ref,
    diff_graphs,
    format_document,
    parse_document,
)
from pytest_torchgraph.graph.cost import recomputed_if_known

REFUSED = {"equal_hashes"}
"""Texts that look like a graph but are malformed."""


class _Audit:
    """Events of Python's audit hook. A hook cannot be removed, so all tests share this one."""

    def __init__(self) -> None:
        self.armed = False
        self.events: list[str] = []
        sys.addaudithook(self)

    def __call__(self, event: str, _args: Any) -> None:
        if self.armed:
            self.events.append(event)

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Check that nothing is opened, imported, compiled or run inside the block."""
        self.events.clear()
        self.armed = True
        try:
            yield
        finally:
            self.armed = False
        assert not self.events


@pytest.fixture(scope="module")
def audit() -> _Audit:
    return _Audit()


def read(text: str) -> Program | None:
    """Return the document, or None if the text is malformed."""
    try:
        return parse_document(text)
    except GraphFormatError:
        return None


def test_a_piece_repeated_is_a_graph_or_a_format_error(audit: _Audit) -> None:
    read("torchgraph 1\n")
    for make in REPEATED.values():
        text = make(3000)
        with audit.silence():
            read(text)
    with pytest.raises(AssertionError), audit.silence():
        compile("1", "", "eval")


@pytest.mark.slow(
    "further cases; a few are in every run",
    unless=["equal_hashes", "floats", "numbers"],
)
@pytest.mark.parametrize("name", [*READABLE, *FILES])
def test_hostile_text_reads_back_equal(name: str) -> None:
    text = (READABLE | FILES)[name](5000)
    found = read(text)
    assert (found is None) == (name in REFUSED), "as the table says"
    if found is None or not found.graphs:
        return
    for detail in ("dataflow", "full"):
        printed = format_document(found.graphs, found.header, detail)
        again = parse_document(printed)
        assert format_document(again.graphs, again.header, detail) == printed
        for one, other in zip(found.graphs, again.graphs, strict=True):
            assert one == other
            assert hash(one) == hash(other)
        assert not diff_graphs(found.graphs, again.graphs)
    edited = read(text.replace("f(", "zz(", 1))
    if edited is not None and "f(" in text:
        assert 1 <= len(diff_graphs(found.graphs, edited.graphs).findings) <= 3


def work(make: Text, size: int) -> dict[str, int]:
    """Return the numbers of function calls for reading and for comparing."""
    text = make(size)
    counted = {"read": calls(lambda: read(text))}
    found, again = read(text), read(text)
    edited = read(text.replace("f(", "zz(", 3))
    if found is not None and again is not None and edited is not None:
        a, b, c = found.graphs, again.graphs, edited.graphs
        counted["print"] = calls(lambda: format_document(a, found.header))
        counted["=="] = calls(lambda: all(x == y for x, y in zip(a, b, strict=True)))
        counted["diff"] = calls(lambda: diff_graphs(a, c).to_text())
    return counted


@pytest.mark.slow(
    "the same with another process, plugin, option or mechanism",
    unless=["equal_hashes", "floats", "numbers"],
)
@pytest.mark.parametrize("name", [*READABLE, *FILES])
def test_reading_work_grows_with_the_size_of_the_text_not_its_square(name: str) -> None:
    make = (READABLE | FILES)[name]
    small, large = work(make, 5_000), work(make, 20_000)
    assert small.keys() == large.keys()
    for step, count in small.items():
        assert large[step] < 7 * count + 500, step


def of_lines(line: Callable[[int, str], str]) -> Callable[[int, str], str]:
    """Return a function that writes a graph of these lines."""

    def text(count: int, op: str) -> str:
        lines = [line(k, op) for k in range(count)]
        return document("\n".join(["%x = input", *lines, "return %x"]))

    return text


def broken_step(count: int, op: str) -> str:
    """Return a step with many breaks, each crossed by the values of all runs before it."""
    run = "forward {\n  %x = input : f32[2]\n  %y = aten.neg.default(%x) : f32[2]\n  return %y\n}\n"
    graphs = [f"forward_{k}: {run}" for k in range(count)]
    inputs = "".join(f"  %a{k} = input : f32[2]\n" for k in range(count))
    refs = ", ".join(f"%a{k}" for k in range(count))
    last = f"forward_{count}: forward {{\n{inputs}  %y = {op}({refs}) : f32[2]\n  return %y\n}}\n"
    runs = [f'  break in {op}{k}: "b"\n  run forward_{k}\n' for k in range(count)]
    given = ", ".join(f"%a{k} = forward_{k} %y" for k in range(count))
    links = f"links\n{''.join(runs)}  run forward_{count}: {given}\n"
    return "\n".join(["torchgraph 4\nvia dynamo, torch 2.13.0\n", *graphs, last, links])


def nested_bodies(depth: int, op: str) -> str:
    """Return a graph with a body in a body, each called twice."""
    lines = ["%x = input", f"%a = {op}(%x)", "return %a"]
    for level in range(depth):
        body = [f"g{level}: forward {{", *(f"  {line}" for line in lines), "}"]
        twice = [f"%b{k} = higher_order.cond(@g{level}, %x)" for k in range(2)]
        lines = [*body, "%x = input", *twice, "return [%b0, %b1]"]
    return document("\n".join(lines))


def many_bodies(count: int, op: str) -> str:
    bodies = [
        f"g{k}: forward {{\n  %x = input\n  %a = f{k}(%x)\n  return %a\n}}" for k in range(count)
    ]
    calls = [f"%b{k} = higher_order.cond(@g{k}, %x)" for k in range(count)]
    return document("\n".join([*bodies, "%x = input", *calls, f"%y = {op}(%x)", "return %y"]))


def inputs_of_one_name(count: int, op: str) -> str:
    """Return a step whose runs take other values of one name."""
    graphs = [
        f"forward_{k}: forward {{\n  %x = input : f32[{k + 1}]\n  %y = {op}(%x)\n  return %y\n}}\n"
        for k in range(count)
    ]
    runs = "".join(f"  run forward_{k}\n" for k in range(count))
    return "\n".join(["torchgraph 4\nvia dynamo, torch 2.13.0\n", *graphs, f"links\n{runs}"])


def inserted_ops(count: int, op: str) -> str:
    """Return chains, which of another op than `f` have one op more."""
    lines = [f"%a{k} = aten.f{k}.default(%x)" for k in range(count)]
    read = "a" if op == "f" else "b"
    if op != "f":
        lines += [f"%b{k} = aten.g{k}.default(%a{k})" for k in range(count)]
    lines += [f"%c{k} = aten.h{k}.default(%{read}{k})" for k in range(count)]
    return document("\n".join(["%x = input", *lines, "return %x"]))


EDITED: dict[str, tuple[Callable[[int, str], str], int]] = {
    "chain": (of_lines(lambda k, op: f"%l.{k}/a = {op}(%{f'l.{k - 1}/a' if k else 'x'})"), 300),
    "names": (of_lines(lambda k, op: f"%l{k}x/a = {op}(%x)"), 100),
    "kinds": (of_lines(lambda k, op: f"%l.{k}/a = {op}{k}(%x)"), 300),
    "constants": (of_lines(lambda k, op: f"%l.{k}/a = {op}(%x, {k}.5)"), 300),
    "deep": (of_lines(lambda k, op: f"%{'1.' * 190}{k}/a = {op}(%x)"), 300),
    "breaks": (broken_step, 50),
    "nested bodies": (nested_bodies, 4),
    "many bodies": (many_bodies, 100),
    "inputs of one name": (inputs_of_one_name, 75),
    "inserted ops": (inserted_ops, 30),
}
"""Texts of one op and, with another op, of edits; and a size."""


def reported(old: Sequence[Graph], new: Sequence[Graph]) -> None:
    diff = diff_graphs(old, new)
    diff.to_text()
    diff.to_json()


@pytest.mark.slow("further lines", unless=["nested*", "breaks", "inserted ops"])
@pytest.mark.parametrize("name", EDITED)
def test_diff_takes_work_in_proportion(name: str) -> None:
    text, least = EDITED[name]
    counted = []
    for count in (least, 4 * least):
        old, new = (parse_document(text(count, op)).graphs for op in ("f", "g"))
        counted.append(calls(partial(reported, old, new)))
    assert counted[1] < 5 * counted[0]


@pytest.mark.slow("a long text")
def test_reading_a_repeated_piece_takes_work_in_proportion() -> None:
    for name, make in REPEATED.items():
        small, large = (calls(partial(read, make(size))) for size in (1000, 4000))
        assert large < 6 * small + 200, name


# -- errors that these texts revealed --------------------------------------------------------------


def problem(body: str) -> str:
    """Return the error message for a call with this argument."""
    with pytest.raises(GraphFormatError) as caught:
        graph(f"%a = f({body})\nreturn %a")
    assert (caught.value.line, caught.value.column) >= (6, 10)
    return caught.value.problem


def test_keys_that_print_alike_are_one_key() -> None:
    assert problem("{nan: 1, nan: %x}") == "a key is given twice"
    assert problem("{nan: 1, -nan: %x}") == "a key is given twice"
    assert problem("{[nan]: 1, [nan]: %x}") == "a key is given twice"


@pytest.mark.parametrize("key", ["%x", "[1, %x]", "slice(1, 2, None)", "{}", "[{}]"])
def test_dictionary_key_that_is_not_a_constant_is_refused(key: str) -> None:
    assert problem(f"{{{key}: 1}}") == "this value cannot be a key of a dict"


def test_keys_made_to_have_one_hash_are_refused() -> None:
    keys = ", ".join(f"{k * (2**61 - 1)}: 1" for k in range(1, 200))
    assert problem(f"{{{keys}}}") == "too many keys with the same hash"
    assert graph(f"%a = f({{{', '.join(f'{k}: 1' for k in range(200))}}})\nreturn %a")


def test_keys_of_a_live_graph_that_print_alike_are_compared() -> None:
    nan = float("nan")
    table = {nan: Ref("x"), float("nan"): 1}
    nodes = (
        Node("x", "placeholder", "input"),
        Node("y", "call_function", "f", (table,)),
        Node("output", "output", "output", (Ref("y"),)),
    )
    assert Graph(nodes) == Graph(nodes)


def test_long_row_does_not_lengthen_other_rows_of_a_table() -> None:
    values = "\n".join(f"%n{k} = f(%x)" for k in range(200))
    returned = ", ".join(f"%n{k}" for k in range(200))
    rows = graph(f"{values}\nreturn [{returned}]").to_table().splitlines()
    assert max(map(len, rows[:-1])) < 300 < len(rows[-1])


def test_opaque_effects_are_ordered_by_one_edge_each() -> None:
    count = 50
    names = [f"x{k}" for k in range(count)]
    inputs = "\n".join(f"%{name} = input" for name in names)
    writes = "\n".join(f"%w{k} = f_(%{name}) !mutates %{name}" for k, name in enumerate(names))
    first, *others = [f"%o{k} = g() !opaque" for k in range(count)]
    several = graph("\n".join([writes, first, *others, "return None"]), inputs=inputs)
    swapped = graph("\n".join([first, writes, *others, "return None"]), inputs=inputs)
    assert several != swapped
    from pytest_torchgraph.graph.equality.numbered_graph import NumberedGraph

    flat = NumberedGraph(several)
    assert sum(map(len, flat.operands)) < 6 * count


BODY = "{name}: forward {{\n  %p = input\n  %q = {op}(%p)\n  return %q\n}}\n"


def test_graphs_that_are_equal_have_one_hash() -> None:
    sin, twin, idle = (BODY.format(name=name, op="sin") for name in ("b", "c", "d"))
    shared = graph("%h = f(@b, @b)\nreturn %h", inputs=f"{sin}%x = input")
    double = graph("%h = f(@b, @c)\nreturn %h", inputs=f"{sin}{twin}%x = input")
    unused = graph("%h = f(@b, @b)\nreturn %h", inputs=f"{sin}{idle}%x = input")
    assert shared == double == unused
    assert hash(shared) == hash(double) == hash(unused)
    taken = "%a = operator.getitem(%h, 0)\nreturn %a"
    several, unknown = (graph(f"%h = f(%x){result}\n{taken}") for result in (" : ()", ""))
    assert several == unknown
    assert hash(several) == hash(unknown)


def test_bodies_that_differ_only_in_sharing_are_unequal() -> None:
    def body(name: str, second: str) -> str:
        lines = ["%p = input", "%a = sin(%p)", "%b = sin(%p)", f"%s = add(%a, %{second})"]
        inner = "\n".join(f"  {line}" for line in [*lines, "return [%s, %b]"])
        return f"{name}: forward {{\n{inner}\n}}\n"

    one, other = body("b", "a"), body("b", "b")
    called = "%y = f(@b)\nreturn %y"
    assert graph(called, inputs=one) == graph(called, inputs=one)
    assert graph(called, inputs=one) != graph(called, inputs=other)
    both = one + body("c", "b")
    assert graph("%y = f(@b, @c)\nreturn %y", inputs=both) != graph(
        "%y = f(@c, @b)\nreturn %y", inputs=both
    )


def test_exported_assertion_before_a_cast_belongs_to_the_cast() -> None:
    asserted = "%m = aten._assert_tensor_metadata.default(%x, dtype=torch.float32)\n"
    before = graph("%a = sin(%x)\nreturn %a")
    after = graph(f"{asserted}%t = aten.to.dtype(%x, torch.float64)\n%a = sin(%t)\nreturn %a")
    (finding,) = diff_graphs([before], [after]).findings
    assert finding.after is not None
    assert finding.after.op == "aten.to.dtype"
    (alone,) = diff_graphs([before], [graph(f"{asserted}%a = sin(%x)\nreturn %a")]).findings
    assert [change.node.op for change in alone.changes] == ["aten._assert_tensor_metadata.default"]
    assert alone.changes[0].node.kwargs == {"dtype": Atom("torch.float32")}


def test_a_file_of_many_graphs_pairs_each_backward_with_its_own_forward() -> None:
    def pair(k: int, op: str) -> str:
        forward = f"%x = input\n  %s{k} = {op}(%x)\n  return %x\n  save %s{k}"
        backward = f"%s{k} = saved\n  %g = mul(%s{k}, 2)\n  return %g"
        return (
            f"f{k}: forward @ aot {{\n  {forward}\n}}\n\n"
            f"b{k}: backward @ aot {{\n  {backward}\n}}\n\n"
        )

    old = parse_document("torchgraph 1\n\n" + "".join(pair(k, "sin") for k in range(5))).graphs
    new = parse_document(
        "torchgraph 1\n\n" + "".join(pair(k, "cos" if k == 3 else "sin") for k in range(5))
    ).graphs
    (finding,) = diff_graphs(old, new).findings
    assert finding.graph == "f3"


WITHOUT_ARGUMENTS = """torchgraph 4
via {via}

forward {{
  %x = input : f32[2]
  %c = {op}() : f32[2]
  %view = aten.view.default() : f32[2]
  %kept = aten.contiguous.default(%x) : f32[2]
  return [%c, %view, %kept]
}}

backward {{
  %t = tangent : f32[2]
  %m = aten.cos.default(%t) : f32[2]
  return %m
}}
"""


@pytest.mark.parametrize("via", ["aot", "export"])
@pytest.mark.parametrize("op", ["aten.clone.default", "aten.detach.default", "aten.exp_.default"])
def test_ops_without_arguments_are_compared(op: str, via: str) -> None:
    graphs = parse_document(WITHOUT_ARGUMENTS.format(op=op, via=via)).graphs
    assert not diff_graphs(graphs, graphs)
    assert recomputed_if_known(graphs) == ()


LINKED = """torchgraph 4
via aot

forward_0: forward {
  %x = input : f32[2]
  %c = constant : f32[2]
  %mul = aten.mul.Tensor(%x, %c) : f32[2]
  return %mul
}

forward_1: forward {
  %mul = input : f32[2]
  %c = constant : f32[2]
  %sin = aten.sin.default(%mul) : f32[2]
  %add = aten.add.Tensor(%sin, %c) : f32[2]
  return %add
  save %sin
}

backward_1: backward {
  %sin = saved : f32[2]
  %tangent.0 = tangent : f32[2]
  %mul.1 = aten.mul.Tensor(%tangent.0, %sin) : f32[2]
  return [%mul.1, %mul.1]
}

links
  run forward_0
  run forward_1: %mul = forward_0 %mul
  run backward_1
"""


def test_a_gradient_of_a_constant_without_a_link_is_no_result() -> None:
    program = parse_document(LINKED)
    assert parse_document(format_document(program.graphs)).graphs == program.graphs
