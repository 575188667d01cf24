"""No edit hides behind a summary, a graph break, an inserted op, or an update that stores less."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from cli.conftest import Run
from cli.review.test_forms import leave

from pytest_torchgraph.cli import review
from pytest_torchgraph.graph import diff_graphs, equal_programs, parse_text

HEAD = "torchgraph 4\nvia {}, torch 2.13.0\n\n"


def document(
    *graphs: tuple[str, Sequence[str]], links: Sequence[str] = (), via: str = "aot"
) -> str:
    """Return a text of graphs, each with a title and its lines."""
    parts = [
        f"{title} {{\n" + "".join(f"  {line}\n" for line in lines) + "}\n"
        for title, lines in graphs
    ]
    parts += ["links\n" + "".join(f"  {line}\n" for line in links)] if links else []
    return HEAD.format(via) + "\n".join(parts)


def op(name: str, text: str) -> str:
    return f"%{name} = {text} : f32[2]"


def inputs(names: Iterable[str]) -> list[str]:
    return [op(name, "input") for name in names]


def returned(*outputs: str) -> str:
    lines = inputs(f"x{k}" for k in range(6))
    lines += [op(f"y{k}", f"aten.op{k}.default(%x{k})") for k in range(6)]
    lines += ["return [" + ", ".join(f"%y{k}" for k in range(6)) + "]"]
    lines += [f'output "o{k}" = {value}' for k, value in enumerate(outputs)]
    return document(("inference", lines))


def saved(*names: str) -> str:
    lines = inputs(f"x{k}" for k in range(8))
    lines += [op(f"y{k}", f"aten.op{k}.default(%x{k})") for k in range(8)]
    return document(("forward", [*lines, "return %y0", *(f"save %{name}" for name in names)]))


def ordered(order: str) -> str:
    last = op("r", "my.op.default(" + ", ".join(f"%{name}" for name in "abcdef") + ")")
    return document(("inference", [*inputs(order), last, "return %r"]))


def swapped(first: str, second: str, third: str) -> str:
    lines = [
        *inputs("x"),
        op(first, "aten.neg.default(%x)"),
        op(second, "aten.exp.default(%x)"),
        op(third, "my.EVIL.default(%x)"),
        op("c", "aten.mul.Tensor(%a, %x)"),
    ]
    return document(("inference", [*lines, f"return [%c, %{first}, %{second}, %{third}]"]))


def read(*readers: str, inserted: bool = True) -> str:
    lines = [*inputs("x"), op("y", "aten.neg.default(%x)")]
    lines += [op("r", "aten.relu.default(%y)")] if inserted else []
    lines += [op(n, f"aten.{n}.default({r})") for n, r in zip(("exp", "cos"), readers, strict=True)]
    return document(("inference", [*lines, "return [%exp, %cos]"]))


def layered(*ops: str) -> str:
    lines = [
        *inputs("x"),
        op("h.0/q", "aten.exp.default(%x)"),
        op("h.0/y", "aten.exp.default(%h.0/q)"),
    ]
    for k, name in enumerate(ops, 1):
        lines += [
            op(f"h.{k}/q", f"aten.relu.default(%h.{k - 1}/y)"),
            op(f"h.{k}/y", f"aten.{name}.default(%h.{k}/q)"),
        ]
    return document(("inference", [*lines, f"return %h.{len(ops)}/y"]))


def masked(*edits: str, first: str = "mask", second: str = "label") -> str:
    lines = [
        *inputs("xyz"),
        op("good", "aten.sin.default(%x)"),
        op(first, "aten.cos.default(%y)"),
        op(second, "aten.tan.default(%z)"),
        op("o", "aten.add.Tensor(%good, %z)"),
    ]
    text = document(("inference", [*lines, f"return [%o, %good, %{first}, %{second}]"]))
    for old, new in zip(edits[::2], edits[1::2], strict=True):
        assert old in text
        text = text.replace(old, new)
    return text


READS = ("%o = aten.add.Tensor(%good", "%o = aten.add.Tensor(%mask")
ADDS = ("  return [%o", f"  {op('k', 'aten.mul.Tensor(%o, %mask)')}\n  return [%k")
WRITES = (ADDS[0], ADDS[1].replace("%o, %mask) : f32[2]", "%o) : f32[2] !mutates %mask"))
SWAPPED = {"first": "label", "second": "mask"}


def broken(*positions: int) -> str:
    ops = [op(f"y{k}", f"aten.op{k}.default(%y{k - 1})") for k in range(1, 5)]
    if positions == (0,):
        return document(("inference", [*inputs(["y0"]), *ops, "return %y4"]))
    return divided(ops, *positions)


def divided(ops: Sequence[str], *positions: int) -> str:
    """Return a step of a chain of ops with a graph break after each of these ops."""
    graphs, links = [], []
    for k, (start, end) in enumerate(pairwise((0, *positions, len(ops)))):
        lines = [*inputs([f"y{start}"]), *ops[start:end], f"return %y{end}"]
        graphs.append((f"inference_{k}: inference", lines))
        links += ['break in f: "b"'] * (k > 0)
        taken = f": %y{start} = inference_{k - 1} %y{start}" if k else ""
        links.append(f"run inference_{k}{taken}")
    return document(*graphs, links=links)


CHAIN = [op(f"y{k}", f"aten.relu.default(%y{k - 1})") for k in range(1, 20)]


VALUES = [f"%y{k}" for k in range(6)]
CASES = {
    "outputs": (
        returned(*VALUES),
        returned("%y1", "%y2", "%y0", "7", *VALUES[4:]),
        returned("%y1", "%y2", "%y0", "666", *VALUES[4:]),
        "is now 666",
    ),
    "saved values": (
        saved("y0"),
        saved(*(f"y{k}" for k in range(8))),
        saved(*(f"y{k}" for k in range(7)), "x3"),
        "+ %x3",
    ),
    "orders of inputs": (ordered("abcdef"), ordered("bfaced"), ordered("bfcead"), "is: b, f, c"),
    "swapped names": (swapped(*"abe"), swapped(*"bae"), swapped(*"eba"), "is now %e"),
    "layers": (
        layered(),
        layered("sin", "sin", "EVIL"),
        layered("sin", "EVIL", "EVIL"),
        "%h.2/y = aten.EVIL",
    ),
    "operand": (masked(), masked(*READS), masked(*READS, **SWAPPED), "%label is now %mask"),
    "operand of an added op": (
        masked(),
        masked(*ADDS),
        masked(*ADDS, **SWAPPED),
        "%label is now %mask",
    ),
    "written value": (masked(), masked(*WRITES), masked(*WRITES, **SWAPPED), "%label is now %mask"),
    "cuts": (broken(0), broken(1), broken(3), "crossed by %y3"),
}


@pytest.mark.parametrize("case", CASES)
def test_each_has_its_form_and_is_shown(case: str, root: Path, run: Run) -> None:
    old, *new, mark = CASES[case]
    for name, graph in zip("ab", new, strict=True):
        leave(root, name, old, graph)
    (finding,) = json.loads(run("diff", ".", "../new", "--format=json", code=1))["findings"]
    assert len(finding["forms"]) == 2
    assert mark in str(finding["forms"])
    for words in (["diff", ".", "../new", "--all"], ["review", "../art", "--list"]):
        assert "2 forms" in run(*words, code=1)


def test_lines_of_forms_that_differ_only_in_names_come_first(root: Path, run: Run) -> None:
    whole = document(("inference", [*inputs(["y0"]), *CHAIN, f"return %y{len(CHAIN)}"]))
    for name, last in (("a", 10), ("b", 15)):
        leave(root, name, whole, divided(CHAIN, *range(1, 10), last))
    lines = run("review", "../art", "--list", code=1).splitlines()
    (form,) = [k for k, line in enumerate(lines) if line.split()[:2] == ["form", "2"]]
    assert "%y10" in "\n".join(lines[:form])
    assert "%y15" in "\n".join(lines[form:])


def test_a_name_that_differs_at_the_end_of_a_long_line_is_shown(root: Path, run: Run) -> None:
    old = document(("inference", [*inputs("xz"), op("a", "aten.relu.default(%x)"), "return %a"]))
    for name, last in (("a", "%x"), ("b", "%z")):
        operands = ", ".join(["%x"] * 60 + [last])
        ops = [
            op("b", "aten.sin.default(%x)"),
            op("c", f"my.op.default(%b, {operands})"),
            op("a", "aten.tanh.default(%c)"),
        ]
        leave(root, name, old, document(("inference", [*inputs("xz"), *ops, "return %a"])))
    output = run("diff", ".", "../new", code=1)
    assert "2 forms" in output
    assert "%x, %z)" in output


@pytest.mark.parametrize("edit", [READS, ADDS])
def test_an_edit_of_renumbered_operands_has_one_form(edit: Sequence[str]) -> None:
    forms = set()
    for name in ("mask", "cos.1"):
        text = masked(*[part.replace("%mask", f"%{name}") for part in edit], first=name)
        (finding,) = diff_graphs(parse_text(masked()).graphs, parse_text(text).graphs).findings
        forms.add(finding.to_json()["form"])
    assert len(forms) == 1


def test_a_renamed_operand_of_a_further_node_is_named() -> None:
    more = (
        ADDS[0],
        f"  {op('k', 'aten.mul.Tensor(%o, %z)')}\n  {op('m', 'aten.sub(%k, %mask)')}\n  return [%m",
    )
    old, new = (parse_text(text).graphs for text in (masked(), masked(*more, **SWAPPED)))
    assert "%label is now %mask" in diff_graphs(old, new).to_text()


def test_lines_about_order_that_are_left_out_are_counted() -> None:
    old, new = (parse_text(written(*ops)).graphs for ops in ("abcdefgh", "abcedfgh"))
    finding = max(diff_graphs(old, new).findings, key=lambda finding: len(finding.details))
    assert len(finding.details) > 1
    assert f"order   ... and {len(finding.details) - 1} more" in finding.to_text(limit=1)


def test_data_count_the_nodes_that_they_leave_out() -> None:
    ops = [op(f"y{k}", f"aten.relu.default(%y{k - 1})") for k in range(1, 31)]
    old, new = (
        parse_text(document(("inference", [*inputs(["y0"]), *lines, "return %y0"]))).graphs
        for lines in ([], [line + " !syncs" for line in ops])
    )
    (finding,) = diff_graphs(old, new).findings
    assert finding.to_json()["with"][-1] == "... and 13 more lines"


def test_readers_of_an_inserted_op_are_shown(root: Path, run: Run) -> None:
    leave(root, "a", read("%y", "%y", inserted=False), read("%r", "%y"))
    output = run("diff", ".", "../new", "--all", code=1)
    assert "%exp = aten.exp.default(%r)" in output
    assert "aten.cos" not in output


def eager(op_name: str, *, divided: bool) -> str:
    first = ("forward_0: forward", [*inputs("x"), op("a", "aten.sin.default(%x)"), "return %a"])
    island = ("eager_0", [*inputs("a"), op("m", f"{op_name}(%a)"), "return %m"])
    rest = [op("b", "aten.cos.default(%m)"), op("c", "aten.tanh.default(%b)")]
    links = [
        "run forward_0",
        'break in f: "one"',
        "run eager_0: %a = forward_0 %a",
        "run forward_1: %m = eager_0 %m",
    ]
    if not divided:
        last = [("forward_1: forward", [*inputs("m"), *rest, "return %c"])]
    else:
        last = [
            ("forward_1: forward", [*inputs("m"), rest[0], "return %b"]),
            ("forward_2: forward", [*inputs("b"), rest[1], "return %c"]),
        ]
        links += ['break in g: "two"', "run forward_2: %b = forward_1 %b"]
    return document(first, island, *last, links=links, via="dynamo")


def test_an_edit_of_an_op_that_ran_eagerly_before_is_no_consequence_of_a_break() -> None:
    old, new = (
        parse_text(text).graphs
        for text in (eager("aten.mul.Tensor", divided=False), eager("my.op.default", divided=True))
    )
    cut, edit = diff_graphs(old, new).findings
    assert cut.graph_break is not None
    assert edit.after is not None
    assert edit.after.op == "my.op.default"


def backwards(line: str, result: str = "") -> str:
    forward = [*inputs("x"), op("a", "aten.sin.default(%x)"), op("b", "aten.cos.default(%x)")]
    graphs = [("forward", [*forward, "return [%a, %b]", "save %a", "save %b"])]
    for number, name in enumerate("ab"):
        lines = [
            op(name, "saved"),
            op("tangent.0", "tangent"),
            op("m", f"aten.mul.Tensor(%tangent.0, %{name})"),
        ]
        lines += [op("n", "aten.exp.default(%m)"), "return [%m, %n]"]
        graphs.append((f"backward_{number}: backward", lines))
    links = [
        "run forward",
        "run backward_0",
        f"run backward_1{line}",
        *([result] if result else []),
    ]
    return document(*graphs, links=links)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (backwards(": %tangent.0 = backward_0 %m"), backwards(": %tangent.0 = backward_0 %n")),
        (backwards(""), backwards(": %b = forward %a")),
        (backwards(""), backwards("", 'result "grad x" = backward_0 %n')),
    ],
)
def test_links_of_two_backwards_are_compared(old: str, new: str) -> None:
    first, second = parse_text(old).graphs, parse_text(new).graphs
    assert equal_programs(first, parse_text(old).graphs)
    assert not equal_programs(first, second)
    assert not diff_graphs(first, parse_text(old).graphs)
    assert diff_graphs(first, second).findings


def gradients(name: str, line: str = "") -> str:
    first = [*inputs("x"), op("a", "aten.exp.default(%x)"), "return %a", "save %x"]
    second = [*inputs("b"), op("c", f"aten.{name}.default(%b)"), "return %c", "save %b"]
    lines = [op("x", "input"), op("b", "input"), op("tangent.0", "tangent")]
    lines += [op("m", "aten.mul.Tensor(%tangent.0, %b)"), op("n", "aten.mul.Tensor(%m, %x)")]
    graphs = ("forward_0: forward", first), ("forward_1: forward", second)
    run = f"run backward: %b = forward_0 %a{line}"
    links = ["run forward_0", 'break in f: "b"', "run forward_1: %b = forward_0 %a", run]
    return document(*graphs, ("backward", [*lines, "return [%m, %n]"]), links=links)


def test_another_value_that_enters_a_backward_is_shown_beside_an_edit() -> None:
    old = parse_text(gradients("sin")).graphs
    alone, edited, both = (
        [finding.to_text() for finding in diff_graphs(old, parse_text(text).graphs).findings]
        for text in (
            gradients("sin", ", %tangent.0 = input %b"),
            gradients("tan"),
            gradients("tan", ", %tangent.0 = input %b"),
        )
    )
    assert both == [edited[0].partition("\n    follows")[0], *alone]
    assert "backward: inputs in a different order" in both[1]


def test_another_order_of_saved_values_is_no_difference_beside_an_edit() -> None:
    def training(name: str, order: str) -> str:
        ops = {"a": op("a", "aten.sin.default(%x)"), "b": op("b", "aten.exp.default(%x)")}
        forward = [*inputs("x"), *(ops[name] for name in order)]
        forward += [op("c", "aten.mul.Tensor(%a, %b)"), op("d", f"aten.{name}.default(%c)")]
        forward += ["return %d", *(f"save %{name}" for name in order)]
        backward = [*(op(name, "saved") for name in order), op("tangent.0", "tangent")]
        backward += [op("m", "aten.mul.Tensor(%tangent.0, %a)"), op("n", "aten.mul.Tensor(%m, %b)")]
        return document(("forward", forward), ("backward", [*backward, "return %n"]))

    old, new, both = (
        parse_text(training(*case)).graphs
        for case in (("tanh", "ab"), ("cos", "ab"), ("cos", "ba"))
    )
    assert str(diff_graphs(old, both)) == str(diff_graphs(old, new))


def test_links_of_a_step_too_large_to_join_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_torchgraph.graph.step.MOST_NODES", 1)
    old, new = (
        parse_text(broken(1).replace("run inference_1: %y1 = inference_0 %y1", line)).graphs
        for line in (
            "run inference_1: %y1 = inference_0 %y1",
            "run inference_1: %y1 = inference_0 %y0",
        )
    )
    (finding,) = diff_graphs(old, new).findings
    assert finding.summary.startswith("the links between graphs differ: ")
    assert not diff_graphs(old, old)


LESS = {
    "digits": (
        returned(*VALUES),
        returned(*VALUES).replace("2.13.0", "2.13.0, digits 2"),
        "digits 2, was exact",
    ),
    "outputs": (
        returned(*VALUES),
        returned().replace("torchgraph 4", "torchgraph 2"),
        "return values",
    ),
    "links": (broken(1), broken(1).partition("\nlinks")[0], "links between graphs"),
}


def constants(*values: str) -> str:
    lines = [op("x0", "input")]
    for k, value in enumerate(values):
        lines += [op(f"c{k}", f"constant{value}"), op(f"x{k + 1}", f"aten.mul(%x{k}, %c{k})")]
    return document(("inference", [*lines, f"return %x{len(values)}"]))


def modules(*options: str) -> str:
    calls = [op(f"x{k + 1}", f"torch.nn.ELU[{text}](%x{k})") for k, text in enumerate(options)]
    lines = [op("x0", "input"), *calls, f"return %x{len(options)}"]
    return document(("forward", lines), via="fx")


def ranks(*texts: str) -> str:
    head, mesh = HEAD.format("aot").rstrip("\n"), f"\nmesh dp={len(texts)}\n"
    bodies = [text.removeprefix(HEAD.format("aot")) for text in texts]
    parts = [f"\nrank {k}\n\n{body}" for k, body in enumerate(bodies)]
    return f"{head}{mesh}{''.join(parts)}"


TWICE = returned().replace("inference {", "inference × 2 {")
PARTS = {
    "value of one constant": (
        constants("(1.0)", "(2.0)"),
        constants("(1.0)", ""),
        "values of constants",
    ),
    "value of another constant": (
        constants("(1.0)", ""),
        constants("", "(2.0)"),
        "values of constants",
    ),
    "module options": (
        modules('"l.0", "alpha=0.5"', '"l.1"'),
        modules('"l.0"', '"l.1"').replace("h 4", "h 2"),
        "module options",
    ),
    "origin": (
        constants("").replace("mul(%x0, %c0)", "detach.default(%x0)").replace(" {", " given {"),
        constants("").replace("mul(%x0, %c0)", "detach.default(%x0)"),
        "origin of the graphs",
    ),
    "value on a rank": (
        ranks(*[constants("(1.0)")] * 2),
        ranks(constants("(1.0)"), constants("")),
        "values of constants",
    ),
    "format": (returned(), returned().replace("h 4", "h 2"), "format 2, was 4"),
    "run counts": (TWICE, returned().replace("h 4", "h 2"), "run counts"),
}


@pytest.mark.parametrize("case", [*LESS, *PARTS])
def test_update_that_stores_less_says_so_alone_and_beside_an_edit(
    case: str, root: Path, run: Run
) -> None:
    old, new, lost = (LESS | PARTS)[case]
    leave(root, "a", old, new)
    leave(root, "b", old, new.replace(": f32", ": f16", 1))
    for words in (["--list"], ["--format=markdown"]):
        output = run("review", "../art", *words, code=1)
        assert lost in output
        assert "f32 -> f16" in output
    causes = json.loads(run("review", "../art", "--format=json", code=1))["causes"]
    telling = [cause["waiting"] for cause in causes if lost in cause["what"]]
    assert {name for names in telling for name in names} == {
        f"__snapshots__/test_{name}/test_a.tgraph" for name in "ab"
    }


def full(op_name: str, layout: str) -> str:
    lines = [*inputs("x"), op("a", f"{op_name}(%x)") + layout, op("b", "aten.tan(%a)"), "return %b"]
    text = document(("inference", lines))
    return text.replace("\n\n", ", detail full\n\n", 1)


def test_another_layout_of_a_replaced_op_is_shown(root: Path, run: Run) -> None:
    old, new = full("aten.sin", ' stride [1] on "cpu"'), full("aten.cos", ' stride [2] on "cpu"')
    leave(root, "a", old, new)
    leave(root, "b", old, new.replace("[2] on", "[1] on"))
    names = [f"{top}/__snapshots__/test_a/test_a.tgraph" for top in (".", "../new")]
    for words in (["review", "../art", "--list"], ["diff", ".", "../new"], ["diff", *names]):
        output = run(*words, code=1)
        assert "replaced ops : f32[2], before: stride [1]" in output
        assert output.count("! strides or devices differ") == 1


A, B, C = (f' stride [{n}] on "{device}"' for n, device in ((1, "cpu"), (2, "cpu"), (1, "cuda:0")))
OTHER_LAYOUTS = {
    "exchanged": ([("relu", A), ("relu", C), ("sin", A)], [("relu", C), ("relu", A), ("cos", A)]),
    "beside an added op": ([("relu", A), ("sin", A)], [("relu", B), ("sin", A), ("relu", A)]),
    "of another dtype": ([("relu", A), ("sin", A)], [("relu", A), ("sin", C)]),
    "of an added op": ([("relu", A)], [("relu", A), ("sin", C)]),
}


@pytest.mark.parametrize("case", OTHER_LAYOUTS)
def test_other_layouts_beside_an_edit_are_shown(case: str, root: Path, run: Run) -> None:
    texts = []
    for ops in OTHER_LAYOUTS[case]:
        lines = [*inputs("x")]
        for k, (name, layout) in enumerate(ops):
            lines.append(op(f"v{k}", f"aten.{name}(%{f'v{k - 1}' if k else 'x'})") + layout)
        text = document(("inference", [*lines, f"return %v{len(ops) - 1}"]))
        texts.append(text.replace("\n\n", ", detail full\n\n", 1))
    if case == "of another dtype":
        texts[1] = 'f16[2] stride [1] on "cuda:0"'.join(
            texts[1].rsplit('f32[2] stride [1] on "cuda:0"', 1)
        )
    leave(root, "a", *texts)
    names = [f"{top}/__snapshots__/test_a/test_a.tgraph" for top in (".", "../new")]
    for words in (["review", "../art", "--list"], ["diff", *names]):
        output = run(*words, code=1)
        assert output.count("! strides or devices differ: ") == 1
        assert ("cuda:0" in output) == any(C in layout for _, layout in OTHER_LAYOUTS[case][1])


AS_JOINT = ordered("abcdef").replace("inference {", '"inference": joint {')


@pytest.mark.parametrize("case", ["outputs", "links", "value on a rank", "kind"])
def test_difference_of_files_says_what_is_no_longer_compared(
    case: str, root: Path, run: Run
) -> None:
    old, new, lost = (LESS | PARTS | {"kind": (ordered("abcdef"), AS_JOINT, "joint")})[case]
    leave(root, "a", old, new)
    names = [f"{top}/__snapshots__/test_a/test_a.tgraph" for top in (".", "../new")]
    for paths in ([".", "../new"], names):
        for form in ("text", "markdown", "json"):
            assert lost in run("diff", *paths, f"--format={form}", code=1)


def test_the_prompt_asks_about_what_is_no_longer_stored(
    root: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, lost = LESS["links"]
    leave(root, "a", old, new.replace("aten.op4", "aten.op9"))
    answers = iter("nnq")
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    monkeypatch.setattr(review, "_in_terminal", lambda: True)
    output = run("review", "../art", code=1)
    assert "cause 2, 2 of 2" in output
    assert f"! no longer stored, so no longer compared: {lost}" in output


def test_an_edit_that_stores_no_less_loses_nothing(root: Path, run: Run) -> None:
    pairs = {
        "a": (constants("(1.0)", "(2.0)"), constants("(1.0)")),
        "b": (constants("(1.0)"), constants("", "(1.0)")),
        "c": (broken(1), broken(0)),
        "d": (broken(0), broken(1)),
        "e": (constants("", "(1.0)"), constants("(2.0)", "(1.0)")),
        "f": (constants("(1.0)").replace("2.13.0", "2.13.0, digits 2"), constants("(2.0)")),
    }
    for name, (old, new) in pairs.items():
        leave(root, name, old, new)
    assert "no longer" not in run("review", "../art", "--list", code=1)


def written(*ops: str) -> str:
    lines = [
        op(f"w{k}", f"aten.{name}(%x, {k})") + " !mutates %x" + f" after %w{k - 1}" * (k > 0)
        for k, name in enumerate(ops)
    ]
    return document(("inference", [*inputs("x"), *lines, "return %x"]))


def in_regions(*names: str) -> str:
    ops = {
        "a": op("a", "aten.sin(%x)"),
        "b": op("b", "aten.cos(%x)"),
        "off": "%off = torch._C._set_grad_enabled(False)",
        "on": "%on = torch._C._set_grad_enabled(True)",
    }
    lines = [*inputs("x"), *(ops[name] for name in names), "return [%a, %b]"]
    return document(("inference", lines), via="dynamo")


def attribute(target: str) -> str:
    lines = [f'%w = get_attr["{target}"] : f32[2]', op("a", "aten.sin(%w)"), "return %a"]
    return document(("inference", lines))


def of_dtype(dtype: str) -> str:
    lines = [*inputs("x"), op("w", "input"), op("a", "aten.mm.default(%x, %w)"), "return %a"]
    return document(("inference", lines)).replace("f32", dtype)


ONE_FORM = {
    "order of writes": (
        written("add_", "mul_"),
        written("mul_", "add_"),
        "with ~ %w0 is followed by",
    ),
    "region": (
        in_regions("off", "a", "on", "b"),
        in_regions("off", "a", "b", "on"),
        "with ~ %b follows %off, before: nothing",
    ),
    "dtype of an input": (
        of_dtype("f32"),
        of_dtype("f16"),
        "with ~ %w = input : f32[2] -> %w = input : f16[2]",
    ),
    "attribute": (attribute("w"), attribute("w2"), 'after %w = get_attr["w2"]'),
    "effect": (written("add_"), written("add_").replace(" !mutates %x", ""), "2] !mutates %x"),
    "name": (masked(), masked(*READS, **SWAPPED), "with > %label is now %mask"),
    "rank": (
        ranks(of_dtype("f32"), of_dtype("f32")),
        ranks(of_dtype("f32"), of_dtype("f16")),
        "rank 1",
    ),
}


@pytest.mark.parametrize("case", ONE_FORM)
def test_a_reviewer_sees_what_one_form_changed(
    case: str, root: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, mark = ONE_FORM[case]
    leave(root, "a", old, new)
    monkeypatch.setattr("builtins.input", lambda _: "n")
    monkeypatch.setattr(review, "_in_terminal", lambda: True)
    for words in ([], ["--list"], ["--format=markdown"]):
        output = " ".join(run("review", "../art", *words, code=1).replace("`", "").split())
        assert mark in re.sub("&#([0-9]+);", lambda code: chr(int(code[1])), output)
