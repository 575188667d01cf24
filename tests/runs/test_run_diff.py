"""Two saved runs compared: causes, renames, what is not compared, damaged directories."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import undocumented

from pytest_torchgraph import GraphBreak, RunDiff, TorchGraphError, diff
from pytest_torchgraph.audit import Cause
from pytest_torchgraph.cli import main
from pytest_torchgraph.graph import Graph, Header, Program, Source
from pytest_torchgraph.runs import (
    Repeat,
    RunInfo,
    RunWriter,
    SavedCapture,
    SavedRecord,
    merge_runs,
    read_run,
)

INFO = RunInfo("", "2.13.0", {"lib": "1"}, True)
PASSED = SavedRecord("passed", compiles=True)
Tests = Mapping[str, SavedRecord]
Save = Callable[..., Path]


def program(*ops: str, size: int = 4) -> Program:
    lines, last = [], "x"
    for number, op in enumerate(ops):
        name = f"layers.{number}/{op}"
        lines.append(f"  %{name} = aten.{op}.default(%{last}) : f32[2, {size}]")
        last = name
    body = "\n".join([f"  %x = input : f32[2, {size}]", *lines, f"  return %{last}"])
    text = f"torchgraph 1\nvia aot, torch 2.13.0\n\nforward {{\n{body}\n}}\n"
    return Program(Header("aot", "2.13.0"), (Graph.from_text(text),))


class Saved:
    """A directory in which a test writes a run without torch."""

    def __init__(self, directory: Path, info: RunInfo = INFO) -> None:
        self.writer = RunWriter(directory, replace(info, id=directory.name))
        self.writer.prepare()

    def graphs(self, *ops: str) -> str:
        return self.writer.write_graphs(program(*ops))


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Write a run whose tests have the graphs of these ops, and whose fixtures have others."""

    def save(
        name: str,
        tests: Tests,
        ops: Mapping[str, str] = {},
        fixtures: Mapping[str, str] = {},
        **info: Any,
    ) -> Path:
        saved = Saved(tmp_path / name, replace(INFO, **info))
        for test, record in tests.items():
            key = saved.graphs(*ops[test].split()) if test in ops else record.graphs
            saved.writer.write_record(test, replace(record, graphs=key))
        for label, op in fixtures.items():
            compiled = SavedRecord(compiles=True, graphs=saved.graphs(op))
            saved.writer.write_record(label, compiled, fixture=True)
        saved.writer.write_info(saved.writer.info)
        return tmp_path / name

    return save


def test_an_edit_is_one_cause_with_its_tests(save: Save) -> None:
    base = save("base", {"a": PASSED, "b": PASSED, "c": PASSED}, dict.fromkeys("abc", "relu sin"))
    after = {"a": "gelu sin", "b": "gelu sin", "c": "relu sin"}
    head = save("head", {"a": PASSED, "b": PASSED, "c": PASSED}, after)
    found = diff(base, head)
    assert isinstance(found, RunDiff)
    [cause] = found.causes
    assert (cause.kind, cause.tests) == ("edit", ("a", "b"))
    assert cause.text == "aten.relu -> aten.gelu in layers.0"
    assert cause.finding is found.findings[0]
    assert found.compared == ("a", "b", "c")
    assert found.heading() == "1 cause in 2 of 3 tests"
    assert found.exit_status == 1
    assert found
    assert json.loads(json.dumps(found.to_json()))["causes"][0]["tests"] == ["a", "b"]


def on_one_line(*ops: str) -> Program:
    """Return a graph whose ops are on one line, as those of a layer class are."""
    (graph,) = program(*ops).graphs
    line = Source("model.py", 12, "return self.act(x)", "forward")
    nodes = [replace(node, source=line) if node.is_call else node for node in graph.nodes]
    return Program(Header("aot", "2.13.0"), (replace(graph, nodes=tuple(nodes)),))


def test_two_edits_of_one_line_in_a_graph_are_two_causes(tmp_path: Path) -> None:
    sides = []
    for name, ops in (("base", ("tanh", "sin", "relu")), ("head", ("relu", "sin", "tanh"))):
        saved = Saved(tmp_path / name)
        for test in ("a", "b"):
            key = saved.writer.write_graphs(on_one_line(*ops))
            saved.writer.write_record(test, replace(PASSED, graphs=key))
        saved.writer.write_info(saved.writer.info)
        sides.append(tmp_path / name)
    found = diff(*sides)
    assert [cause.tests for cause in found.causes] == [("a", "b")] * 2
    assert sorted(cause.text.partition(" in ")[0] for cause in found.causes) == [
        "aten.relu -> aten.tanh",
        "aten.tanh -> aten.relu",
    ]


SILU = "neg %x, exp %neg, add %exp 1, div %x %add"
"""An activation as a compiler decomposes it: op and operands, the result named like the op."""
GELU = "mul %x 0.7, erf %mul, add %erf 1, half %x 0.5, times %half %add"


def decomposed(ops: str, lines: tuple[int, ...]) -> Program:
    """Return a graph of these ops, all on one line of code, or on the line of each."""
    body, last = ["  %x = input : f32[2, 4]"], ""
    for text in ops.split(", "):
        last, *operands = text.split()
        body.append(f"  %{last} = aten.{last}({', '.join(operands)}) : f32[2, 4]")
    text = "\n".join(["torchgraph 1", "", "forward @ aot {", *body, f"  return %{last}", "}", ""])
    graph, numbers = Graph.from_text(text), itertools.cycle(lines)
    nodes = [
        replace(node, source=Source("model.py", next(numbers), "self.act(x)", "forward"))
        if node.is_call
        else node
        for node in graph.nodes
    ]
    return Program(Header("aot", "2.13.0"), (replace(graph, nodes=tuple(nodes)),))


@pytest.mark.parametrize(("lines", "count"), [((7,), 1), (tuple(range(7, 12)), 2)])
def test_ops_that_a_compiler_made_of_one_line_are_one_cause(
    tmp_path: Path, lines: tuple[int, ...], count: int
) -> None:
    """Both activations have an `add`, so that two edits are left around it."""
    sides = []
    for name, ops in (("base", SILU), ("head", GELU)):
        saved = Saved(tmp_path / name)
        key = saved.writer.write_graphs(decomposed(ops, lines))
        saved.writer.write_record("a", replace(PASSED, graphs=key))
        saved.writer.write_info(saved.writer.info)
        sides.append(tmp_path / name)
    found = diff(*sides)
    assert len(found.causes) == count
    # Without a known module, the heading of a cause has its line.
    assert "at model.py:7: self.act(x)  (1 test)" in found.to_text()


def test_reasons_of_causes_are_listed_on_demand(
    save: Save, capsys: pytest.CaptureFixture[str]
) -> None:
    base = save("base", {"a": PASSED}, {"a": "relu sin"})
    head = save("head", {"a": PASSED}, {"a": "relu cos exp sin"})
    main(["diff", str(base), str(head)])
    assert "why " not in capsys.readouterr().out
    main(["diff", str(base), str(head), "--why"])
    assert "    why     reads the result: + %layers.2/exp reads + %layers.1/cos" in (
        capsys.readouterr().out
    )


def test_the_same_run_has_no_difference(save: Save, capsys: pytest.CaptureFixture[str]) -> None:
    base = save("base", {"a": PASSED, "b": SavedRecord("passed")}, {"a": "relu"})
    head = save("head", {"b": SavedRecord("passed"), "a": PASSED}, {"a": "relu"})
    assert not diff(base, head)
    assert main(["diff", str(base), str(head)]) == 0
    assert capsys.readouterr().out == "no difference in 1 test\n"


def test_runs_are_compared_without_torch(save: Save) -> None:
    base = save("base", {"a": PASSED}, {"a": "relu sin"})
    head = save("head", {"a": PASSED}, {"a": "gelu sin"})
    code = (
        "import sys\n"
        "from pytest_torchgraph import diff\n"
        f"print(len(diff({str(base)!r}, {str(head)!r}).causes), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("1 False\n", "")


CUT = GraphBreak(
    "Data-dependent jump", "why\nmore", "", "m.py", 7, "if x.sum() > 0:", "f", (), "", ""
)
REPEAT = Repeat("f", "m.py", 3, ("self.calls: was 1, is 2",))


def test_a_break_explains_the_graphs_and_recompiles_of_its_test(save: Save) -> None:
    base = save("base", {"a": PASSED, "b": PASSED}, {"a": "relu sin", "b": "relu"})
    broken = replace(PASSED, breaks=(CUT,), recompiles=(REPEAT, REPEAT))
    head = save("head", {"a": broken, "b": PASSED}, {"a": "relu cos cos", "b": "relu"})
    [cause] = diff(base, head).causes
    assert (cause.kind, cause.tests, str(cause.source)) == ("break", ("a",), "m.py:7")
    assert cause.text == (
        "graph break added at m.py:7 in f: if x.sum() > 0: (graphs of 1 test not compared)"
    )
    assert cause.ops == ("aten.cos.default +2", "aten.sin.default -1")
    assert cause.finding is not None
    assert cause.finding.graph_break is not None
    [gone] = diff(head, base).causes
    assert gone.text.startswith("graph break removed")


def test_a_break_lists_the_ops_that_any_of_its_tests_gained_or_lost(
    save: Save, capsys: pytest.CaptureFixture[str]
) -> None:
    """The graphs are not compared, so an edit beside the break shows only here."""
    base = save("base", dict.fromkeys("abc", PASSED), dict.fromkeys("abc", "relu sin"))
    broken = dict.fromkeys("abc", replace(PASSED, breaks=(CUT,)))
    many = "acos asin atan cosh sinh"
    head = save("head", broken, {"a": f"{many} relu", "b": f"{many} _to_copy relu", "c": many})
    [cause] = diff(base, head).causes
    casts, *others = cause.ops
    assert casts == "aten._to_copy.default +0 to +1"
    assert others == [
        *(f"aten.{op}.default +1" for op in many.split()[:4]),
        "aten.relu.default -1 to +0",
        "aten.sin.default -1",
        "aten.sinh.default +1",
    ]
    assert diff(base, head).to_json()["causes"][0]["ops"] == [*cause.ops]
    for options, last in (
        ([], "cosh.default +1 and 3 more"),
        (["--all"], "sinh.default +1"),
        (["--format=markdown"], "3 more"),
    ):
        main(["diff", str(base), str(head), *options])
        out = capsys.readouterr().out
        assert f"ops: {casts}, " in out
        assert last in out
        assert "1 cause in 3 of 3 tests, which may hide others" in out
        assert "graphs that are not compared may differ too: mend the causes" in out


def test_a_break_says_that_graphs_with_the_same_ops_are_not_compared(save: Save) -> None:
    base = save("base", {"a": PASSED}, {"a": "relu sin"})
    head = save("head", {"a": replace(PASSED, breaks=(CUT,))}, {"a": "sin relu"})
    [cause] = diff(base, head).causes
    assert cause.text.endswith("(graphs of 1 test not compared)")
    head = save("same", {"a": replace(PASSED, breaks=(CUT,))}, {"a": "relu sin"})
    found = diff(base, head)
    [cause] = found.causes
    assert "not compared" not in cause.text
    assert found.heading() == "1 cause in 1 of 1 test"


@pytest.mark.parametrize(
    "other",
    [
        replace(CUT, line=9),
        replace(CUT, function="g", file="moved.py"),
    ],
)
def test_a_break_that_moved_is_no_cause(save: Save, other: GraphBreak) -> None:
    base = save("base", {"a": replace(PASSED, breaks=(CUT,))})
    assert not diff(base, save("head", {"a": replace(PASSED, breaks=(other,))}))


def test_a_break_met_more_often_is_not_silent(save: Save) -> None:
    base = save("base", {"a": replace(PASSED, breaks=(CUT,))})
    head = save("head", {"a": replace(PASSED, breaks=(replace(CUT, occurrences=3),))})
    [cause] = diff(base, head).causes
    assert cause.text == "graph breaks met 3 times, were met 1 time"


def test_recompiles_of_a_function_are_one_cause(save: Save) -> None:
    base = save("base", {"a": PASSED, "b": PASSED})
    more = replace(REPEAT, reasons=("self.calls: was 2, is 3",))
    head = {
        "a": replace(PASSED, recompiles=(REPEAT, more)),
        "b": replace(PASSED, recompiles=(REPEAT,)),
    }
    [cause] = diff(base, save("head", head)).causes
    assert (cause.kind, cause.tests, str(cause.source)) == ("recompile", ("a", "b"), "m.py:3")
    assert cause.text == "recompile added: f (m.py:3): self.calls: was 1, is 2"
    limited = replace(REPEAT, reasons=(), limit_hit=True)
    [cause] = diff(base, save("head", {"a": replace(PASSED, recompiles=(limited,))})).causes
    assert cause.text == (
        "recompile added: f (m.py:3): no reason is known, up to the limit: later calls run eagerly"
    )


def test_recompiles_of_a_function_say_that_the_limit_was_hit(save: Save) -> None:
    limited = replace(REPEAT, reasons=("self.calls: was 8, is 9",), limit_hit=True)
    head = save("head", {"a": replace(PASSED, recompiles=(REPEAT, limited))})
    [cause] = diff(save("base", {"a": PASSED}), head).causes
    assert cause.text == (
        "recompile added: f (m.py:3): self.calls: was 8, is 9, up to the limit: later calls run "
        "eagerly"
    )


def eager(count: int, text: str = "skipped", function: str = "f") -> Cause:
    return Cause("eager", "m.py", function, text, "", 3, count)


def past_limit(count: int) -> Cause:
    return Cause("limit", "m.py", "f", "the recompile limit", "", 3, count)


@pytest.mark.parametrize(
    ("before", "after", "texts"),
    [
        ([], [eager(2)], ["f (m.py:3) now runs eagerly: skipped"]),
        ([eager(2)], [], ["f (m.py:3) no longer runs eagerly: skipped"]),
        ([eager(1)], [eager(1200)], ["f (m.py:3) 1,200 calls run eagerly, was 1: skipped"]),
        ([eager(1)], [eager(1)], []),
        ([eager(1)], [eager(1, function="renamed")], []),
        (
            [past_limit(2)],
            [past_limit(12)],
            ["f (m.py:3) 12 calls run eagerly, was 2: the recompile limit"],
        ),
        ([], [past_limit(2)], []),  # the recompile that reached it is the cause
        (
            [eager(1)],
            [eager(1, "limit")],
            [
                "f (m.py:3) no longer runs eagerly: skipped",
                "f (m.py:3) now runs eagerly: limit",
            ],
        ),
    ],
)
def test_eager_calls(save: Save, before: list[Cause], after: list[Cause], texts: list[str]) -> None:
    sides = [
        save(name, dict.fromkeys("ab", replace(PASSED, eager=tuple(causes))))
        for name, causes in (("base", before), ("head", after))
    ]
    found = diff(*sides)
    assert [cause.text for cause in found.causes] == texts
    for cause in found.causes:
        assert (cause.kind, cause.tests, str(cause.source)) == ("eager", ("a", "b"), "m.py:3")
        assert cause.finding is None
    assert found.exit_status == bool(texts)


def test_a_test_that_compiles_nothing_any_more(save: Save) -> None:
    base = save("base", {"a": PASSED}, {"a": "relu"})
    [cause] = diff(base, save("head", {"a": SavedRecord("passed")})).causes
    assert (cause.kind, cause.tests) == ("share", ("a",))
    assert cause.text == "compiles nothing, and compiled: no compiled callable is called"
    skipped = SavedRecord("passed", breaks=(CUT,))
    [cause] = diff(base, save("skipped", {"a": skipped})).causes
    assert cause.text == "compiles nothing, and compiled: Data-dependent jump (m.py:7)"
    assert str(cause.source) == "m.py:7"


def test_a_test_whose_code_dynamo_skips_in_both_runs_is_not_compared(save: Save) -> None:
    skipped = SavedRecord("passed", breaks=(CUT,))
    base = save("base", {"a": skipped, "b": PASSED})
    found = diff(base, save("head", {"a": skipped, "b": PASSED}))
    assert not found
    assert found.compared == ("b",)
    assert found.not_compared == {"a": "compiled and captured nothing in both runs"}
    other = replace(skipped, breaks=(replace(CUT, code="if x.max() > 0:", function="g"),))
    assert len(diff(base, save("other", {"a": other, "b": PASSED})).causes) == 2


@pytest.mark.parametrize(
    ("before", "after", "texts"),
    [
        ([1.0], [0.5], ["compiled share of a capture fell: 100.0% -> 50.0%"]),
        ([0.5], [1.0], []),
        ([1.0], [1.0, 1.0], ["1 capture added"]),
        ([1.0, 1.0], [1.0], ["1 capture removed"]),
        ([None], [1.0], []),
        (["no graph"], [1.0], ["a capture has graphs, and had none: no graph"]),
        ([1.0], ["no graph"], ["a capture has no graphs, and had some: no graph"]),
    ],
)
def test_captures(save: Save, before: list[Any], after: list[Any], texts: list[str]) -> None:
    """An item of a list is the share of a capture, or why it has no graphs."""
    sides = []
    for name, shares in (("base", before), ("head", after)):
        saved = Saved(save(name, {}).parent / name)
        captures = tuple(
            SavedCapture(problem=share)
            if isinstance(share, str)
            else SavedCapture(saved.graphs("relu"), share)
            for share in shares
        )
        saved.writer.write_record("a", SavedRecord("passed", captures=captures))
        saved.writer.write_info(replace(saved.writer.info, complete=True))
        sides.append(saved.writer.directory)
    found = diff(*sides)
    assert [cause.text for cause in found.causes] == texts
    assert found.compared == ("a",)


def test_renamed_added_and_removed(save: Save) -> None:
    ops = {"t.py::old[1]": "relu", "t.py::old[2]": "relu", "t.py::gone": "sin", "t.py::same": "cos"}
    base = save("base", {**dict.fromkeys(ops, PASSED), "t.py::empty": SavedRecord("passed")}, ops)
    ops = {"t.py::new[2]": "relu", "t.py::new[1]": "relu", "t.py::come": "exp", "t.py::same": "cos"}
    head = save("head", {**dict.fromkeys(ops, PASSED), "t.py::nothing": SavedRecord("passed")}, ops)
    found = diff(base, head)
    assert found.renamed == (("t.py::old[1]", "t.py::new[1]"), ("t.py::old[2]", "t.py::new[2]"))
    assert (found.added, found.removed) == (
        ("t.py::come", "t.py::nothing"),
        ("t.py::gone", "t.py::empty"),
    )
    assert not found
    assert found.exit_status == 0


def test_equal_tests_of_a_moved_file_keep_their_names(save: Save) -> None:
    base = save("base", dict.fromkeys(["t.py::A::b", "t.py::a", "t.py::B::c"], PASSED))
    head = save("head", dict.fromkeys(["u.py::a", "u.py::C::c", "u.py::A::b"], PASSED))
    assert dict(diff(base, head).renamed) == {
        "t.py::A::b": "u.py::A::b",
        "t.py::a": "u.py::a",
        "t.py::B::c": "u.py::C::c",
    }


@pytest.mark.parametrize("labels", [("n of t.py::A", "n of t.py::B"), ("n", "n[1]")])
def test_a_fixture_with_a_new_label_is_compared_with_itself(
    save: Save, labels: tuple[str, str]
) -> None:
    """Its class was renamed, or it got a further parameter before this one."""
    base, same, head = (
        save(name, {"t": replace(PASSED, fixtures=(label,))}, fixtures={label: op})
        for name, label, op in zip(
            ("a", "same", "head"), (*labels, labels[1]), ("relu", "relu", "gelu"), strict=True
        )
    )
    assert not diff(base, same)
    [cause] = diff(base, head).causes
    assert (cause.kind, cause.tests) == ("edit", ("t",))


def test_each_fixture_of_one_name_is_compared_with_itself(save: Save) -> None:
    """A module overrides a fixture of its directory, and uses it. Both moved."""
    sides = []
    for place, ops in (("a", ("relu", "sin")), ("b", ("gelu", "sin")), ("c", ("gelu", "cos"))):
        labels = (f"n of {place}", f"n of {place}/t.py")
        tests = {"t": replace(PASSED, fixtures=labels)}
        sides.append(save(place, tests, fixtures=dict(zip(labels, ops, strict=True))))
    for before, after in itertools.pairwise(sides):
        assert [cause.kind for cause in diff(before, after).causes] == ["edit"]


def test_what_is_not_compared_has_a_reason(save: Save) -> None:
    outcomes = ("passed", "failed", "skipped")
    names = [f"{one}-{two}" for one in outcomes for two in outcomes]
    sides = [
        {name: replace(PASSED, outcome=name.split("-")[side]) for name in names} for side in (0, 1)
    ]
    found = diff(save("base", sides[0]), save("head", sides[1]))
    assert found.compared == ("passed-passed",)
    assert found.not_compared["passed-failed"] == "failed in head"
    assert found.not_compared["failed-skipped"] == "failed in base, skipped in head"
    assert found.not_compared["skipped-skipped"] == "skipped in both runs"
    assert len(found.not_compared) == len(names) - 1
    assert "not compared, 1 test, failed in head: passed-failed" in found.to_text()


def test_shared_code_is_compared_only_in_one_order(save: Save) -> None:
    shared = replace(PASSED, shared=True)
    base = save("base", {"a": PASSED, "b": shared}, {"b": "relu"})
    assert diff(base, save("same", {"a": PASSED, "b": shared}, {"b": "sin"})).causes
    found = diff(base, save("other", {"b": shared, "a": PASSED}, {"b": "sin"}))
    assert not found
    assert found.not_compared["b"].endswith("set torchgraph_save_run_isolation = on")


def test_the_record_of_a_fixture_belongs_to_the_tests_that_use_it(save: Save) -> None:
    """Also to one that compiles nothing else."""
    uses = ("fixture net",)
    tests = {"a": replace(PASSED, fixtures=uses), "b": SavedRecord("passed", fixtures=uses)}
    base, head = (
        save(name, {**tests, "c": PASSED}, fixtures={"fixture net": op})
        for name, op in (("base", "relu"), ("head", "gelu"))
    )
    assert diff(base, base).exit_status == 0
    found = diff(base, head)
    assert [cause.tests for cause in found.causes] == [("a", "b")]
    assert found.compared == ("a", "b", "c")


@pytest.mark.parametrize(
    ("info", "ops", "status", "line"),
    [
        ({}, "relu", 0, "no difference in 1 test"),
        ({"complete": False, "problem": "2 of 3"}, "relu", 2, "head is not complete: 2 of 3"),
        ({"complete": False}, "sin", 1, "head is not complete: the run did not end"),
        ({"torch": "2.14.1"}, "relu", 0, "torch 2.13.0 -> 2.14.1"),
        ({"versions": {"lib": "2"}}, "relu", 0, "other versions: lib 1 -> 2"),
        ({"versions": {}}, "relu", 0, "other versions: lib 1 -> missing"),
    ],
)  # fmt: skip
def test_what_is_said_first_and_the_exit_status(
    save: Save,
    capsys: pytest.CaptureFixture[str],
    info: dict[str, Any],
    ops: str,
    status: int,
    line: str,
) -> None:
    base = save("base", {"a": PASSED}, {"a": "relu"})
    head = save("head", {"a": PASSED}, {"a": ops}, **info)
    for form in ("text", "markdown", "json"):
        assert main(["diff", str(base), str(head), f"--format={form}"]) == status
        out = capsys.readouterr().out
        if form == "text":
            assert out.splitlines()[0] == line
        if form == "json":
            assert undocumented(json.loads(out)) == []


def test_nothing_compared_is_trouble(save: Save, capsys: pytest.CaptureFixture[str]) -> None:
    plain = save("plain", {"a": SavedRecord("passed")})
    assert main(["diff", str(plain), str(plain)]) == 2
    assert capsys.readouterr().out.startswith("nothing was compared")


@pytest.mark.parametrize(
    "record",
    [
        SavedRecord("passed", eager=(Cause("nothing", "", "", "switched off", "", 0),)),
        SavedRecord("passed", captures=(SavedCapture(problem="no graph was compiled"),)),
        SavedRecord("passed", fixtures=("fixture that compiles nothing",)),
    ],
)
def test_tests_that_compile_nothing_in_both_runs_are_not_compared(
    save: Save, record: SavedRecord
) -> None:
    found = diff(save("base", {"a": record}), save("head", {"a": record}))
    assert found.exit_status == 2
    assert not found.compared
    reasons = {} if record.is_empty else {"a": "compiled and captured nothing in both runs"}
    assert found.not_compared == reasons


def test_markdown_begins_with_a_verdict_for_each_file(save: Save) -> None:
    files = {"a.py": "relu", "b.py": "relu", "c.py": "relu"}
    tests = {f"{file}::test_{n}": op for file, op in files.items() for n in range(3)}
    base = save("base", dict.fromkeys(tests, PASSED), tests)
    cut = replace(PASSED, breaks=(CUT,))
    after = {**dict.fromkeys(tests, PASSED), "b.py::test_0": cut}
    edited = tests | {"b.py::test_1": "gelu", "c.py::test_1": "gelu", "c.py::test_2": "gelu"}
    lines = diff(base, save("head", after, edited)).to_markdown().splitlines()
    assert lines[:5] == [
        "**2 causes in 4 of 9 tests**",
        "",
        "- `b.py`: 2 causes in 2 of 3 tests",
        "- `c.py`: 1 cause in 2 of 3 tests",
        "- no difference in 1 file",
    ]
    assert "- no difference" not in diff(base, base).to_markdown()
    one = save("one", {"a.py::test_0": PASSED}, {"a.py::test_0": "gelu"})
    assert "- `a.py`" not in diff(base, one).to_markdown()


def test_the_page_has_causes_and_what_is_not_compared(
    save: Save, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = SavedRecord("failed")
    base = save("base", {"a": PASSED, "b": PASSED, "c": failed}, {"a": "relu"})
    cut = replace(PASSED, breaks=(CUT,))
    head = save("head", {"a": PASSED, "b": cut, "c": PASSED}, {"a": "gelu"}, torch="2.14.1")
    out = tmp_path / "new" / "page.html"
    assert main(["diff", str(base), str(head), "-o", str(out)]) == 1
    assert "2 causes in 2 of 2 tests" in capsys.readouterr().out
    html = out.read_text(encoding="utf-8")
    data = json.loads(html.partition('id="data">')[2].partition("</script>")[0])
    assert data["causes"]["heading"] == "2 causes in 2 of 2 tests"
    assert data["warning"] == "torch 2.13.0 -> 2.14.1"
    cut_row, edit, rest = data["causes"]["list"]
    assert cut_row["what"].startswith("graph break added at m.py:7 in f: if x.sum() > 0:")
    assert (cut_row["sources"], cut_row["files"]) == (["m.py:7: if x.sum() > 0"], ["b"])
    assert (edit["what"], edit["where"]) == ("aten.relu -> aten.gelu", "layers.0")
    assert edit["after"] == "%layers.0/gelu = aten.gelu.default(%x) : f32[2, 4]"
    assert (rest["what"], rest["files"]) == ("not compared, 1 test, failed in base", ["c"])


def test_a_page_is_written_of_saved_runs_only(
    save: Save, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plain").mkdir()
    page = tmp_path / "page.html"
    assert main(["diff", *[str(tmp_path / "plain")] * 2, "-o", str(page)]) == 2
    assert "-o writes a page of two saved runs" in capsys.readouterr().err
    assert not page.exists()


# -- strangers -------------------------------------------------------------------------------------


def test_markdown_of_strangers_is_no_markup_and_fits_a_comment(save: Save) -> None:
    evil = "<!-- marker -->@torvalds|](http://x)`<img src=x>`"
    many = {f"t.py::{evil}[{n}]": PASSED for n in range(600)}
    base = save("base", many)
    cuts = {
        name: replace(PASSED, breaks=(replace(CUT, code=f"{evil}{n}" * 9, kind=f"{evil}{n}"),))
        for n, name in enumerate(many)
    }
    found = diff(base, save("head", cuts))
    text = found.to_markdown()
    assert len(found.causes) == 600
    assert 50_000 < len(text) <= 65_536
    assert "more causes in" in text
    for piece in ("<!--", "@torvalds", "](http", "<img"):
        assert piece not in text
    assert "**600 causes in 600 of 600 tests**" in text


def facts(run: Path) -> Path:
    return run / "facts" / "main.jsonl"


def damage_line(run: Path) -> None:
    facts(run).write_text(facts(run).read_text()[:-5])


def edited(glob: str, old: str, new: str) -> Callable[[Path], None]:
    def edit(run: Path) -> None:
        path = next(run.glob(glob))
        path.write_text(path.read_text().replace(old, new))

    return edit


def remove_graphs(run: Path) -> None:
    next((run / "graphs").glob("*.json")).unlink()


def link_facts(run: Path) -> None:
    facts(run).rename(run.parent / "elsewhere")
    facts(run).symlink_to(run.parent / "elsewhere")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (damage_line, "not whole"),
        (edited("graphs/*.tgraph", "relu", "gelu"), "not what was written"),
        (remove_graphs, "missing in this saved run"),
        (link_facts, "a link"),
        (
            edited("run.json", '"format": 1', '"format": 2'),
            "format 2, but this version of pytest-torchgraph reads format 1",
        ),
        (edited("facts/*", '"run": "base"', '"run": "other"'), "written by two runs"),
        (edited("facts/*", '"graphs": "', '"graphs": "../../'), "not a key of graphs"),
        (edited("facts/*", '"compiles": true', '"compiles": "yes"'), "damaged"),
    ],
)
def test_a_damaged_run_is_never_compared(
    save: Save,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], None],
    words: str,
) -> None:
    base = save("base", {"a": PASSED}, {"a": "relu"})
    head = save("head", {"a": PASSED}, {"a": "sin"})
    damage(base)
    assert main(["diff", str(base), str(head)]) == 2
    output = capsys.readouterr()
    assert words in output.err
    assert output.out == ""


def test_a_run_is_not_compared_with_other_files(
    save: Save, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = save("base", {"a": PASSED}, {"a": "relu"})
    (tmp_path / "plain").mkdir()
    assert main(["diff", str(base), str(tmp_path / "plain")]) == 2
    assert "is not a saved run" in capsys.readouterr().err
    with pytest.raises(TypeError, match="only be compared with a saved run"):
        diff(base, program("relu").graphs[0])


def test_an_older_run_is_replaced_and_others_are_refused(save: Save, tmp_path: Path) -> None:
    save("base", {"a": PASSED, "b": PASSED}, {"a": "relu", "b": "sin"})
    base = save("base", {"a": PASSED}, {"a": "relu"})
    assert [*read_run(base).tests] == ["a"]
    assert len([*(base / "graphs").iterdir()]) == 2
    (base / "graphs" / "notes.txt").touch()
    with pytest.raises(TorchGraphError, match=r"no saved run, such as 'notes\.txt'"):
        save("base", {})
    assert (base / "run.json").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "run.json").write_text("{}")
    with pytest.raises(TorchGraphError, match="not a saved run"):
        save("mine", {})
    (tmp_path / "file").touch()
    with pytest.raises(TorchGraphError, match="is not a directory"):
        save("file", {})


def test_what_is_left_of_an_older_run_is_damaged(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = save("base", {"a": PASSED}, {"a": "relu"})
    with monkeypatch.context() as patch:
        patch.setattr("pytest_torchgraph.runs.stored._old_files", lambda directory: [])
        RunWriter(base, replace(INFO, id="killed", complete=False)).prepare()
    with pytest.raises(TorchGraphError, match="written by two runs"):
        read_run(base)
    assert [*read_run(save("base", {"b": PASSED})).tests] == ["b"]


def test_nothing_is_written_through_a_link(save: Save, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "facts").symlink_to(outside)
    with pytest.raises(TorchGraphError, match="no saved run"):
        save("base", {})
    (tmp_path / "base" / "facts").unlink()
    saved = Saved(tmp_path / "base")
    (tmp_path / "base" / "graphs").symlink_to(outside)
    with pytest.raises(TorchGraphError, match="outside the root directory"):
        saved.graphs("relu")
    (tmp_path / "base" / "facts").mkdir()
    (tmp_path / "base" / "facts" / "main.jsonl").symlink_to(outside / "new")
    with pytest.raises(TorchGraphError, match="cannot write"):
        saved.writer.write_record("a", PASSED)
    assert not [*outside.iterdir()]


def test_a_run_that_another_replaced_does_not_become_complete(save: Save, tmp_path: Path) -> None:
    first = Saved(tmp_path / "base")
    RunWriter(tmp_path / "base", replace(INFO, id="second", complete=False)).prepare()
    with pytest.raises(TorchGraphError, match="another run was saved in"):
        first.writer.write_info(replace(first.writer.info, complete=False, problem="x"))
    assert not read_run(tmp_path / "base").info.complete


# -- shards ----------------------------------------------------------------------------------------


def test_merge_joins_shards(save: Save, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = save("one", {"a": PASSED}, {"a": "relu"})
    two = save("two", {"b": PASSED}, {"b": "sin"})
    whole = save("whole", {"a": PASSED, "b": PASSED}, {"a": "relu", "b": "sin"})
    out = tmp_path / "out"
    assert main(["merge", str(one), str(two), "-o", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: 2 tests from 2 runs\n"
    found = diff(whole, out)
    assert found.exit_status == 0
    assert found.compared == ("a", "b")


@pytest.mark.parametrize(
    ("tests", "info", "words"),
    [
        ({"a": PASSED}, {}, "a is in two runs"),
        ({"b": PASSED}, {"torch": "2.14.0"}, "different versions"),
    ],
)
def test_merge_refuses(
    save: Save, tmp_path: Path, tests: Tests, info: dict[str, Any], words: str
) -> None:
    runs = [save("one", {"a": PASSED}), save("two", tests, **info)]
    with pytest.raises(TorchGraphError, match=words):
        merge_runs(runs, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_merge_does_not_write_into_a_run_that_it_reads(save: Save) -> None:
    run = save("one", {"a": PASSED})
    with pytest.raises(TorchGraphError, match="is one of the runs: choose another output"):
        merge_runs([run], run)
    assert [*read_run(run).tests] == ["a"]


def test_a_merged_run_is_complete_only_if_all_parts_are(save: Save, tmp_path: Path) -> None:
    runs = [save("one", {"a": PASSED}), save("two", {"b": PASSED}, complete=False)]
    info = merge_runs(runs, tmp_path / "out").info
    assert (info.complete, info.problem) == (False, "the run did not end")
