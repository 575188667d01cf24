"""A cause of several files prints each form of its change: none is hidden behind the first."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Run

from pytest_torchgraph.cli.review import prompt, waiting

T = ": f32[2, 3, 4, 5]"
RELU = f"%y = aten.relu.default(%x) {T}"
FORMS = {
    "slice": (
        "%y = aten.slice.Tensor(%x, 0, 0, 1) : f32[1, 3, 4, 5]",
        "%y = aten.slice.Tensor(%x, 0, 1, 2) : f32[1, 3, 4, 5]",
    ),
    "order": (f"%y = aten.sub.Tensor(%x, %z) {T}", f"%y = aten.sub.Tensor(%z, %x) {T}"),
    "dtype": (f"%y = aten.add.Tensor(%x, 1) {T}", "%y = aten.add.Tensor(%x, 1) : f16[2, 3, 4, 5]"),
    "shape": (f"%y = aten.foo.default(%x) {T}", "%y = aten.foo.default(%x) : f32[7]"),
    "effect": (
        f"%y = aten.add_.Tensor(%x, 1) {T} !mutates %x",
        f"%y = aten.add_.Tensor(%x, 1) {T} !mutates %z",
    ),
}


CHAIN = [f"%y{k} = aten.add.Tensor(%y{k - 1}, 1) {T}" for k in range(1, 20)]
LAYER = (f"%h.0/y = aten.relu.default(%x) {T}", f"%h.0/q = aten.exp.default(%h.0/y) {T}")
NEXT = f"%h.1/y = aten.relu.default(%h.0/q) {T}"


def second(op: str) -> tuple[str, ...]:
    return f"%a = aten.neg.default(%x) {T}", f"%y = my.op.default({op}"


def body(number: int) -> str:
    return (
        "body: forward {\n    %a = input : f32[2]\n"
        f"    %m = aten.add.Tensor(%a, {number}) : f32[2]\n    return %m\n  }}"
    )


WHOLE: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], str]] = {
    "18th further op": (
        (RELU,),
        (f"%y0 = aten.neg.default(%x) {T}", *CHAIN, f"%y = aten.add.Tensor(%y19, 1) {T}"),
        (f"%y0 = aten.neg.default(%x) {T}", *CHAIN, f"%y = aten.add.Tensor(%y19, 1000) {T}"),
        "%y19, 1000)",
    ),
    "index of getitem": (
        (RELU,),
        ("%a = my.op.default(%x) : (f32[2], f32[2])", "%y = operator.getitem(%a, 0) : f32[2]"),
        ("%a = my.op.default(%x) : (f32[2], f32[2])", "%y = operator.getitem(%a, 1) : f32[2]"),
        "getitem(%a, 1)",
    ),
    "body of a higher-order op": (
        (RELU,),
        (body(1), f'%y = higher_order.invoke_subgraph(@body, "body", %x) {T}'),
        (body(1000), f'%y = higher_order.invoke_subgraph(@body, "body", %x) {T}'),
        "%a, 1000)",
    ),
    "size of an added input": (
        (RELU,),
        ("%w = parameter : f32[7]", f"%y = my.op.default(%x, %w) {T}"),
        ("%w = parameter : f32[999]", f"%y = my.op.default(%x, %w) {T}"),
        "f32[999]",
    ),
    "value of a constant": (
        (RELU,),
        ("%c = constant(1) : i64[]", f"%y = aten.add.Tensor(%x, %c) {T}"),
        ("%c = constant(1000) : i64[]", f"%y = aten.add.Tensor(%x, %c) {T}"),
        "constant(1000)",
    ),
    "string like a size": (
        (RELU,),
        second(f'%a, "x1[safe]") {T}'),
        second(f'%a, "x1[evil]") {T}'),
        "x1[evil]",
    ),
    "op outside an added module": (
        (*LAYER, f"%y = aten.neg.default(%h.0/q) {T}"),
        (
            *LAYER,
            NEXT,
            f"%h.1/q = aten.mul.Tensor(%h.1/y, 1) {T}",
            f"%o = aten.mul.Tensor(%h.1/q, 1) {T}",
            f"%y = aten.neg.default(%o) {T}",
        ),
        (
            *LAYER,
            NEXT,
            f"%h.1/q = aten.mul.Tensor(%h.1/y, 1) {T}",
            f"%o = aten.mul.Tensor(%h.1/q, 1000) {T}",
            f"%y = aten.neg.default(%o) {T}",
        ),
        "%h.1/q, 1000)",
    ),
    "added graph": (
        (RELU,),
        (RELU, "return %y\n}\n\ninference {", f"%y = my.op.default(1) {T}"),
        (RELU, "return %y\n}\n\ninference {", f"%y = my.op.default(1000) {T}"),
        "op.default(1000)",
    ),
}


def text(*lines: str, of: str = "", size: str = "2") -> str:
    bodies = [line for line in lines if line.startswith("body: ")]
    lines = *bodies, f"%x = input {T}", f"%z = input {T}", *lines[len(bodies) :]
    body = "\n".join(f"  {line}" for line in lines)
    body = f"torchgraph 4\nvia dispatch, torch 2.13.0\n\ninference {{\n{body}\n  return %y\n}}\n"
    return body.replace("f32[2", f"f32[{size}").replace("%y", f"%{of}y")


def leave(root: Path, name: str, old: str, new: str, **more: Any) -> None:
    target = f"__snapshots__/test_{name}/test_a.tgraph"
    for top, content in ((root / "repo", old), (root / "new", new)):
        (top / target).parent.mkdir(parents=True, exist_ok=True)
        (top / target).write_text(content)
    (root / "repo" / f"test_{name}.py").touch()
    (root / "art").mkdir(exist_ok=True)
    data = {
        "torchgraph_update": 2,
        "test": f"test_{name}.py::test_a",
        "target": target,
        "text": new,
        "digests": {target: sha256(old.encode()).hexdigest()},
        "refused": "",
        **more,
    }
    (root / "art" / f"{name}.update.json").write_text(json.dumps(data))


@pytest.mark.parametrize("forms", FORMS.values(), ids=FORMS.keys())
def test_cause_prints_each_form(
    forms: tuple[str, str], root: Path, run: Run, capsys: Any, monkeypatch: Any
) -> None:
    for name, form in zip("ab", forms, strict=True):
        leave(root, name, text(RELU), text(form))
    monkeypatch.setattr("builtins.input", lambda _: "n")
    prompt.ask(waiting.read_pending(root / "art"))
    shown = [capsys.readouterr().out]
    for words in (
        ["review", "../art", "--list"],
        ["review", "../art", "--format=markdown"],
        ["review", "../art", "--format=json"],
        ["diff", ".", "../new"],
        ["diff", ".", "../new", "--format=markdown"],
    ):
        shown.append(run(*words, code=1))
    for output in shown:
        assert "cause 2" not in output
        for form in forms:
            assert form in output.replace("`", "").replace("\\", "")
    assert "(2 files, 2 forms)" in shown[1]
    assert "       form 2  in __snapshots__/test_b/test_a.tgraph\n" in shown[1]


@pytest.mark.parametrize("case", WHOLE.values(), ids=WHOLE.keys())
def test_form_covers_what_is_cut(case: Any, root: Path, run: Run) -> None:
    """Which of two equal beginnings is which, a cut text does not say."""
    old, *new, mark = case
    for name, graph in zip("ab", new, strict=True):
        leave(root, name, text(*old), text(*graph))
    for words in (["review", "../art", "--list"], ["diff", ".", "../new"]):
        output = run(*words, code=1)
        assert output.count("2 forms") == 1
        assert mark in output
    for words in (
        ["review", "../art", "--format=json"],
        ["review", "../art", "--format=markdown"],
        ["diff", ".", "../new", "--all"],
    ):
        output = run(*words, code=1).replace("`", "").replace("\\", "")
        assert re.sub("&#([0-9]+);", lambda code: chr(int(code[1])), output).count(mark) == 1


def test_places_of_one_file_are_in_its_form(root: Path, run: Run) -> None:
    """The edit is the same at each size of a new value, but a size is not hidden."""
    layers = [
        (f"%h.{k}/q = aten.exp.default({x}) {T}", f"%h.{k}/y = aten.relu.default(%h.{k}/q) {T}")
        for k, x in enumerate(("%x", "%h.0/y"))
    ]
    old = [*layers[0], *layers[1], f"%y = aten.neg.default(%h.1/y) {T}"]
    for name, size in (("a", "7"), ("b", "999")):
        new = "\n".join(old).replace("relu", "my").replace(f"q) {T}", "q) : f32[7]", 1)
        leave(
            root,
            name,
            text(*old),
            text(*new.replace(f"h.1/q) {T}", f"h.1/q) : f32[{size}]").split("\n")),
        )
    output = run("diff", ".", "../new", "--all", code=1)
    assert "2 forms" in output
    assert "f32[999]" in output


@pytest.mark.parametrize("files", ["a", "ab"])
def test_all_lists_each_further_op(files: str, root: Path, run: Run) -> None:
    for name in files:
        new = f"%y0 = aten.neg.default(%x) {T}", *CHAIN, f"%y = my.{name}.default(%y19) {T}"
        leave(root, name, text(RELU), text(*new))
    output = run("diff", ".", "../new", "--all", code=1)
    for name in files:
        assert output.count(f"with    + %y = my.{name}.default(%y19) {T}\n") == 1
    assert output.count("with    + %y19 = ") == len(files)


def test_equal_changes_are_one_form(root: Path, run: Run) -> None:
    """Neither sizes that the edit did not change, nor neighbours, make another form."""
    new = RELU.replace("relu", "gelu")
    leave(root, "a", text(RELU), text(new))
    leave(root, "b", text(RELU, size="7"), text(new, size="7"))
    leave(root, "c", text(RELU, of="layer.3.act/"), text(new, of="layer.3.act/"))
    output = run("review", "../art", "--list", code=1)
    assert "(3 files)" in output
    assert "form" not in output


def test_many_forms_are_counted(root: Path, run: Run) -> None:
    for k in range(6):
        leave(root, str(k), text(RELU), text(f"%y = aten.slice.Tensor(%x, 0, {k}, 9) {T}"))
    output = run("diff", ".", "../new", code=1)
    assert "(6 files, 6 forms)" in output
    assert "    form 4  in __snapshots__/test_3/test_a.tgraph\n" in output
    assert "    ... and 2 more forms\n" in output
    assert "form 6  in __snapshots__/test_5/test_a.tgraph\n" in run(
        "diff", ".", "../new", "--all", code=1
    )


def test_lines_of_artifacts_hide_no_form(root: Path, run: Run) -> None:
    old, *new = (text(f"%y = aten.sub.Tensor({o}) {T}") for o in ("%x, %x", "%x, %z", "%z, %x"))
    for _ in range(2):
        findings = [f for u in read_pending_or_none(root) for f in u.difference.findings]
        lines = {waiting.place_key(finding, finding.places[0]): "one" for finding in findings}
        for name, graph in zip("ab", new, strict=True):
            leave(root, name, old, graph, lines=lines)
    output = run("review", "../art", "--list", code=1)
    assert output.startswith("1 cause")
    for operands in ("%x, %z", "%z, %x"):
        assert f"after   %y = aten.sub.Tensor({operands}) {T}\n" in output


def test_list_names_few_other_causes_of_a_file(root: Path, run: Run) -> None:
    """Otherwise the list grows with the square of the edits of one file."""
    old, new = (
        [
            line
            for k in range(9)
            for line in (
                f"%k{k} = aten.keep{k}.default(%x) {T}",
                f"%y{k} = aten.{op}{k}(%k{k}) {T}",
            )
        ]
        for op in ("a", "b")
    )
    leave(root, "a", text(*old, f"%y = aten.c(%y0) {T}"), text(*new, f"%y = aten.c(%y0) {T}"))
    output = run("review", "../art", "--list", code=1)
    causes = int(output.split()[0])
    assert causes > 8
    assert f"1 file also has cause 4 and {causes - 4} more\n" in output
    assert output.count("also has cause") == 3 * causes


def test_causes_of_equal_files_are_counted_once(root: Path) -> None:
    """Otherwise the time grows with the square of the edits of one file."""
    leave(root, "a", text(RELU), text(RELU.replace("relu", "gelu")))
    pending = waiting.read_pending(root / "art")
    targets = (pending.updates[0].target,)
    assert pending.count_causes(targets) == [(1, 1)]
    assert pending.count_causes(targets) is pending.count_causes(targets)


def read_pending_or_none(root: Path) -> Any:
    return waiting.read_pending(root / "art").updates if (root / "art").exists() else ()
