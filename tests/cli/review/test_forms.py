"""A cause of several files prints each form of its change: none is hidden behind the first."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from pytest_torchgraph.cli import main
from pytest_torchgraph.cli.review import prompt, waiting

T = ": f32[2, 3, 4, 5]"
RELU = f"%y = aten.relu.default(%x) {T}"
FORMS = {
    "slice": (
        "%y = aten.slice.Tensor(%x, 0, 0, 1) : f32[1, 3, 4, 5]",
        "%y = aten.slice.Tensor(%x, 0, 1, 2) : f32[1, 3, 4, 5]",
    ),
    "size": (f"%y = aten.add.Tensor(%x, 2) {T}", f"%y = aten.add.Tensor(%x, 3) {T}"),
    "operand": (f"%y = aten.mul.Tensor(%x, %x) {T}", f"%y = aten.mul.Tensor(%x, %z) {T}"),
    "order": (f"%y = aten.sub.Tensor(%x, %z) {T}", f"%y = aten.sub.Tensor(%z, %x) {T}"),
    "dtype": (f"%y = aten.add.Tensor(%x, 1) {T}", "%y = aten.add.Tensor(%x, 1) : f16[2, 3, 4, 5]"),
    "shape": (f"%y = aten.foo.default(%x) {T}", "%y = aten.foo.default(%x) : f32[7]"),
    "effect": (
        f"%y = aten.add_.Tensor(%x, 1) {T} !mutates %x",
        f"%y = aten.add_.Tensor(%x, 1) {T} !mutates %z",
    ),
}


def text(*lines: str, of: str = "", size: str = "2") -> str:
    body = "\n".join(f"  {line}" for line in (f"%x = input {T}", f"%z = input {T}", *lines))
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


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "repo")
    return tmp_path


@pytest.mark.parametrize("forms", FORMS.values(), ids=FORMS.keys())
def test_cause_prints_each_form(
    forms: tuple[str, str], root: Path, capsys: Any, monkeypatch: Any
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
        assert main(words) == 1
        shown.append(capsys.readouterr().out)
    for output in shown:
        assert "cause 2" not in output
        for form in forms:
            assert form in output.replace("`", "").replace("\\", "")
    assert "(2 places, 2 files, 2 forms)" in shown[1]
    assert "       form 2  in __snapshots__/test_b/test_a.tgraph\n" in shown[1]


def test_equal_changes_are_one_form(root: Path, capsys: Any) -> None:
    """Neither sizes that the edit did not change, nor neighbours, make another form."""
    new = RELU.replace("relu", "gelu")
    leave(root, "a", text(RELU), text(new))
    leave(root, "b", text(RELU, size="7"), text(new, size="7"))
    leave(root, "c", text(RELU, of="layer.3.act/"), text(new, of="layer.3.act/"))
    assert main(["review", "../art", "--list"]) == 1
    output = capsys.readouterr().out
    assert "(3 places, 3 files)" in output
    assert "form" not in output


def test_many_forms_are_counted(root: Path, capsys: Any) -> None:
    for k in range(6):
        leave(root, str(k), text(RELU), text(f"%y = aten.slice.Tensor(%x, 0, {k}, 9) {T}"))
    assert main(["diff", ".", "../new"]) == 1
    output = capsys.readouterr().out
    assert "(6 places, 6 files, 6 forms)" in output
    assert "    form 4  in __snapshots__/test_3/test_a.tgraph\n" in output
    assert "    ... and 2 more forms\n" in output
    assert main(["diff", ".", "../new", "--all"]) == 1
    assert "form 6  in __snapshots__/test_5/test_a.tgraph\n" in capsys.readouterr().out


def test_second_op_makes_another_form(root: Path, capsys: Any) -> None:
    for name, number in (("a", 1), ("b", 1000)):
        neg = f"%a = aten.neg.default(%x) {T}"
        leave(root, name, text(RELU), text(neg, f"%y = aten.add.Tensor(%a, {number}) {T}"))
    assert main(["review", "../art", "--list"]) == 1
    output = capsys.readouterr().out
    assert output.startswith("1 cause")
    assert f"with    + %y = aten.add.Tensor(%a, 1000) {T}\n" in output


def test_lines_of_artifacts_hide_no_form(root: Path, capsys: Any) -> None:
    old, *new = (text(f"%y = aten.sub.Tensor({o}) {T}") for o in ("%x, %x", "%x, %z", "%z, %x"))
    for _ in range(2):
        findings = [f for u in read_pending_or_none(root) for f in u.findings]
        lines = {waiting.place_key(finding.places[0]): "one" for finding in findings}
        for name, graph in zip("ab", new, strict=True):
            leave(root, name, old, graph, lines=lines)
    assert main(["review", "../art", "--list"]) == 1
    output = capsys.readouterr().out
    assert output.startswith("1 cause")
    for operands in ("%x, %z", "%z, %x"):
        assert f"after   %y = aten.sub.Tensor({operands}) {T}\n" in output


def test_list_names_few_other_causes_of_a_file(root: Path, capsys: Any) -> None:
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
    assert main(["review", "../art", "--list"]) == 1
    output = capsys.readouterr().out
    causes = int(output.split()[0])
    assert causes > 8
    assert f"1 file also has cause 4 and {causes - 4} more\n" in output
    assert output.count("also has cause") == 3 * causes


def read_pending_or_none(root: Path) -> Any:
    return waiting.read_pending(root / "art").updates if (root / "art").exists() else ()
