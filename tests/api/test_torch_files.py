"""`load`, `diff` and the commands on files that torch writes: logs, programs, printed graphs."""

from __future__ import annotations

import json
import logging
import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from cli.conftest import undocumented
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from watching.traced import traced

from pytest_torchgraph import Capture, GraphFormatError, diff, from_fx, load, watch
from pytest_torchgraph.cli import main

pytestmark = pytest.mark.filterwarnings("ignore:::torch", "ignore:The .grad attribute")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


# -- two logs --------------------------------------------------------------------------------------


def gelu(x: Tensor, n: int = 0) -> Tensor:
    return F.gelu(x * 2) + x


def relu(x: Tensor, n: int = 0) -> Tensor:
    return F.relu(x * 2) + x


def broken(x: Tensor, n: int = 0) -> Tensor:
    y = F.gelu(x * 2)
    torch._dynamo.graph_break()
    return y + x


def of_number(x: Tensor, n: int = 0) -> Tensor:
    return F.gelu(x * 2) + x * (n > 0) if n else F.gelu(x * 2) + x


def logged(path: Path, function: Callable[..., Tensor], *numbers: int) -> Path:
    """Write the log of a function that the log calls `step`."""
    code = function.__code__
    function.__code__ = code.replace(co_name="step")
    try:
        with traced(path):
            compiled = torch.compile(function, backend="aot_eager", dynamic=False)
            for number in numbers or (0,):
                compiled(torch.ones(3, requires_grad=True), number).sum().backward()
    finally:
        function.__code__ = code
        torch._dynamo.reset()
    return path


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_an_op_is_one_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = logged(tmp_path / "old", gelu), logged(tmp_path / "new", relu)
    assert run("diff", old, new) == 1
    text = capsys.readouterr().out
    assert text.startswith("1 edit: aten.gelu -> aten.relu (")
    assert f"{Path(__file__).name}:" in text
    assert "return F.relu(x * 2) + x" in text
    assert run("diff", old, old) == 0
    assert capsys.readouterr().out == "no difference\n"
    assert run("diff", old, new, "--format=json") == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["what"] == "aten.gelu -> aten.relu"
    assert run("diff", old, new, "--format=markdown") == 1
    assert "| `~ aten.gelu -> aten.relu`" in capsys.readouterr().out


def test_a_break_explains_the_graphs_of_its_function(tmp_path: Path) -> None:
    old, new = logged(tmp_path / "old", gelu), logged(tmp_path / "new", broken)
    difference = diff(old, new)
    (finding,) = difference.findings
    assert (finding.kind, finding.changes, finding.before, finding.after) == (
        "added",
        (),
        None,
        None,
    )
    assert finding.graph_break is not None
    assert finding.graph_break.function == "step"
    assert finding.source is not None
    assert finding.source.code == "torch._dynamo.graph_break()"
    assert finding.summary.endswith("(6 graphs of step not compared)")
    (finding,) = diff(new, old).findings
    assert finding.kind == "removed"
    assert not diff(new, new)


def test_a_recompile_explains_its_graphs(tmp_path: Path) -> None:
    old, new = logged(tmp_path / "old", of_number), logged(tmp_path / "new", of_number, 0, 5)
    (finding,) = diff(old, new).findings
    assert finding.kind == "added"
    assert finding.changes == ()
    assert finding.recompile.function == "step"
    assert finding.graph_break is None
    assert "argument n: was 0" in finding.summary
    text = str(diff(old, new))
    assert "guard of 0/0: n == 0" in text
    (finding,) = diff(new, old).findings
    assert finding.kind == "removed"


def test_an_edit_beside_a_recompile_is_its_own_finding(tmp_path: Path) -> None:
    def edited(x: Tensor, n: int = 0) -> Tensor:
        return F.relu(x * 2) + x * (n > 0) if n else F.relu(x * 2) + x

    old, new = logged(tmp_path / "old", of_number), logged(tmp_path / "new", edited, 0, 5)
    first, second = diff(old, new).findings
    assert first.recompile is not None
    assert (second.recompile, second.before and second.before.op) == (None, "aten.gelu.default")


def test_watches_have_the_same_rule() -> None:
    with watch() as old:
        torch.compile(gelu, backend="aot_eager")(torch.ones(3))
    with watch() as new:
        torch.compile(broken, backend="aot_eager")(torch.ones(3))
    kinds = {(finding.kind, finding.graph_break is not None) for finding in diff(old, new).findings}
    assert ("added", True) in kinds


@pytest.mark.parametrize(
    "record",
    [
        '{"artifact": {"name": "torch_version"}, "has_payload": ""}\n'
        '\t{\n\t"pytorch_version": "RELEASE+cpu"\n\t}',
        '{"artifact": {"name": "fx_graph_runnable"}, "has_payload": ""}\n'
        "\timport torch\n\t# torch version: RELEASE+cpu\n\t# torch cuda version: 12.8",
        '{"compilation_metrics": {"pytorch_version": "RELEASE+cpu"}}',
    ],
    ids=["torch 2.13", "torch 2.9", "torch 2.11"],
)
def test_another_release_is_said_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], record: str
) -> None:
    log = logged(tmp_path / "log", gelu).read_text()
    # Without what this torch writes about itself.
    log = re.sub(r"pytorch_version|# torch version", "other", log)
    paths = []
    for release in ("2.13.0", "2.14.1"):
        paths.append(tmp_path / release)
        named = record.replace("RELEASE", release)
        paths[-1].write_text(f"{log[: log.index('{')]}{named}\n{log}")
    assert run("diff", *paths) == 0
    assert capsys.readouterr().out.startswith("torch 2.13.0 -> 2.14.1; no difference")


def test_a_directory_of_a_process_that_compiled_nothing(tmp_path: Path) -> None:
    for name in ("log", "none"):
        (tmp_path / name).mkdir()
    logged(tmp_path / "log" / "0.log", gelu)
    with pytest.raises(TypeError, match=r"none is a directory.* only if it compiles"):
        diff(tmp_path / "log", tmp_path / "none")


def test_ranks_are_compared_by_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = []
    for name, functions in (("old", (gelu, gelu)), ("new", (gelu, relu))):
        folder = tmp_path / name
        folder.mkdir()
        for rank, function in enumerate(functions):
            file = logged(folder / f"{1 - rank}.log", function)  # the order of files is no order
            pid, text = file.read_text().split(" ", 3)[2], file.read_text()
            text = text.replace(f" {pid} ", f" {pid}{rank} ")
            # Ranks never compile equally long.
            text = re.sub(r'("entire_frame_compile_time_s": )[\d.]+', rf"\g<1>{7 + rank}.5", text)
            file.write_text(
                text.replace("] {", f'] {{"rank": {rank}, ').replace(
                    f'{{"rank": {rank}, "str"', '{"str"'
                )
            )
        folders.append(folder)
    assert run("diff", *folders) == 1
    assert "rank 1:" in capsys.readouterr().out
    assert run("show", folders[0]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("ranks 0-1, torch ")
    assert "8.5 s to compile" in shown
    single = load(folders[0])[0]
    with pytest.raises(GraphFormatError, match="several processes compiled graphs"):
        diff(single, folders[0])
    (folders[1] / "0.log").unlink()
    assert run("diff", *folders) == 2


# -- show ------------------------------------------------------------------------------------------


def test_glance_lists_the_worst_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    with traced(path):
        torch.compile(gelu, backend="aot_eager")(torch.ones(3))
        function = torch.compile(broken, backend="aot_eager", dynamic=False)
        function(torch.ones(3)), function(torch.ones(4))
    assert run("show", path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("2 functions, 5 graphs, 1 graph break, 2 recompiles, ")
    functions = [line.partition(" (")[0] for line in lines if line and line[0] in "bg"]
    assert functions == ["broken", "gelu"]
    text = "\n".join(lines)
    assert "break      " in text
    assert "torch._dynamo.graph_break()" in text
    assert "recompile  0/1 broken" in text or "recompile  1/1 broken" in text
    assert "1 aten.gelu" in text
    assert run("show", path, "--format=json") == 0
    document = json.loads(capsys.readouterr().out)
    assert undocumented(document) == []
    (process,) = document["processes"]
    assert process["truncated"] == ""
    worst, best = process["functions"]
    assert [worst["function"], best["function"]] == ["broken", "gelu"]
    assert best["ops"] == {"aten.mul": 1, "aten.add": 1, "aten.gelu": 1}
    (cut,) = worst["graph_breaks"]
    assert cut["code"] == "torch._dynamo.graph_break()"
    assert cut["file"].endswith("test_torch_files.py")
    reasons = [each["reasons"] for each in worst["recompiles"]]
    assert len(reasons) == 2
    assert all("was 3, is 4" in reason for (reason,) in reasons)
    assert run("show", path, "--stage=dynamo") == 0
    assert "torch.nn.functional.gelu" in capsys.readouterr().out
    assert run("show", path, "--ops") == 0
    assert "aten.gelu" in capsys.readouterr().out


def test_truncated_log_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logged(tmp_path / "log", gelu)
    log.write_bytes(log.read_bytes()[:-3000])
    for command in (("show", log), ("diff", log, log)):
        assert run(*command) == 2
        assert "--allow-truncated" in capsys.readouterr().err
    assert run("show", log, "--allow-truncated") == 0
    assert "TRUNCATED: " in capsys.readouterr().out


def test_stage_is_for_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = tmp_path / "x.tgraph"
    stored.write_text("torchgraph 4\n\nforward {\n  %x = input : f32[2]\n  return %x\n}\n")
    assert run("show", stored, "--stage=aot") == 2
    assert "--stage applies to logs" in capsys.readouterr().err


# -- exported programs -----------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(16)
        self.factor = torch.tensor([1.5, 2.5])

    def forward(self, x: Tensor) -> dict[str, Any]:
        y = self.norm(self.fc(x))
        first, second = y.split([4, 12], 1)
        third = torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, (first,))
        doubled = torch.cat([third, third]).to(torch.float16)
        return {"y": doubled * self.factor.sum(), "rows": [second.shape[0] * 2 - 1, 7]}


def exported() -> torch.export.ExportedProgram:
    sizes = ({0: torch.export.Dim("batch", max=64)},)
    return torch.export.export(Net().eval(), (torch.randn(4, 8),), dynamic_shapes=sizes)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """Return an exported program and its file."""
    path = tmp_path_factory.mktemp("program") / "net.pt2"
    made = exported()
    torch.export.save(made, path)
    return made, path


def test_program_equals_the_live_one(program: tuple[Any, Path], tmp_path: Path) -> None:
    made, path = program
    capture = load(path)
    assert isinstance(capture, Capture)
    assert capture.via == "export"
    (graph,) = capture.graphs
    live = from_fx(made)
    assert graph == live
    assert graph.to_text("full") == live.to_text("full")
    (linear,) = graph.find("aten.linear")
    assert linear.module == "fc"
    assert linear.source == live.find("aten.linear")[0].source
    stored = tmp_path / "net.tgraph"
    stored.write_text(capture.to_text())
    assert not diff(stored, path)
    assert not diff(path, stored)
    assert not diff(live, path)


def test_program_is_not_unpickled(program: tuple[Any, Path], tmp_path: Path) -> None:
    """Nothing in the archive but JSON and the bytes of constants is read."""
    hostile = tmp_path / "hostile.pt2"
    with zipfile.ZipFile(program[1]) as source, zipfile.ZipFile(hostile, "w") as target:
        for info in source.infolist():
            data = source.read(info)
            if "sample_inputs" in info.filename or "weight_" in info.filename:
                data = pickle.dumps(Bomb())
            target.writestr(info.filename, data)
    assert load(hostile) == load(program[1])


class Bomb:
    def __reduce__(self) -> Any:
        return pytest.fail, ("unpickled",)


DAMAGES = (
    (b"Symbol('s", b"Symbol((('s"),
    (b'"device": {"type": "cpu"', b'"device": {"type": "nothing"'),
    (b'"as_tensor": {"name": "linear"}', b'"as_tensor": {"name": "nope"}'),
    (b"Symbol('s", b"__import__('os').system('s"),
    (b'"dtype": 7', b'"dtype": 99'),
)


@pytest.mark.parametrize("number", range(len(DAMAGES)))
def test_damaged_program_is_one_error(
    number: int, program: tuple[Any, Path], tmp_path: Path
) -> None:
    before, after = DAMAGES[number]
    damaged = tmp_path / "damaged.pt2"
    with zipfile.ZipFile(program[1]) as source, zipfile.ZipFile(damaged, "w") as target:
        for info in source.infolist():
            data = source.read(info)
            if info.filename.endswith("model.json"):
                assert before in data
                data = data.replace(before, after, 1)
            target.writestr(info.filename, data)
    with pytest.raises(GraphFormatError, match=r"the program is not as torch writes it"):
        load(damaged)


def test_other_archives_are_named(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save(nn.Linear(2, 2).state_dict(), path)
    with pytest.raises(GraphFormatError, match="a zip archive without an exported program"):
        load(path)
    path.write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(GraphFormatError, match="the archive is damaged"):
        load(path)


# -- printed graphs --------------------------------------------------------------------------------


def test_print_readable(tmp_path: Path) -> None:
    module = make_fx(lambda x: torch.relu(x) + 1)(torch.randn(2))
    path = tmp_path / "graph.txt"
    text = module.print_readable(False, include_stride=True, include_device=True)
    path.write_text(f"Here is the graph:\n\n{text}\n")
    capture = load(path)
    assert isinstance(capture, Capture)
    capture.assert_op_counts({"aten.relu": 1, "aten.add": 1})
    assert capture.graphs[0].level == "aot"
    path.write_text(f"{text}\n{text}")
    assert len(load(path).graphs) == 2


@pytest.mark.parametrize("prefixes", [True, False])
def test_graphs_of_torch_logs(prefixes: bool, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    handler = logging.FileHandler(path)
    if prefixes:
        handler.setFormatter(torch._logging._internal.TorchLogsFormatter())
    loggers = [logging.getLogger(f"torch.{name}") for name in ("_dynamo", "_functorch")]
    torch._logging.set_logs(graph_code=True, aot_graphs=True)
    names = [
        name
        for name in logging.root.manager.loggerDict
        if name.endswith(("__graph_code", "__aot_graphs"))
    ]
    loggers = [logging.getLogger(name) for name in names]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        with watch() as live:
            gelu_of = torch.compile(gelu, backend="aot_eager")
            gelu_of(torch.ones(3, requires_grad=True)).sum().backward()
    finally:
        torch._logging.set_logs()
        for logger in loggers:
            logger.removeHandler(handler)
        handler.close()
    capture = load(path)
    assert isinstance(capture, Capture)
    # The text does not say which outputs of a forward are saved.
    assert [graph.op_counts for graph in capture.graphs] == [g.op_counts for g in live.graphs]
    assert capture.at("dynamo").graphs == live.at("dynamo").graphs
    capture.assert_graph_count(forward=1, backward=1)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'digraph {\n  relu [label="{name=%relu}"];\n}\n', "a Graphviz drawing"),
        (pickle.dumps([1]), "a pickle"),
        (b"class Repro(torch.nn.Module):\n    def forward(self): pass\n", "fx_graph_runnable"),
        (b"graph():\n    %x : [num_users=1] = placeholder[target=x]\n", "text of a torch.fx.Graph"),
        (b"module @jit_f {\n}\n", "MLIR"),
    ],
)
def test_refusals_say_what_to_do(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(GraphFormatError, match=rf"{words}.*from_fx\(gm\)\.to_text\(\)"):
        load(path)


def test_the_advice_of_a_refusal_works(tmp_path: Path) -> None:
    gm = make_fx(torch.relu)(torch.randn(2))
    path = tmp_path / "graph.tgraph"
    path.write_text(from_fx(gm).to_text())
    assert load(path).graphs == (from_fx(gm),)


def test_directories_of_programs(
    program: tuple[Any, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for side in ("old", "new"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "net.pt2").write_bytes(program[1].read_bytes())
        (tmp_path / side / "README.md").write_text("# not a graph\n")
    assert run("diff", tmp_path / "old", tmp_path / "new") == 0
    assert capsys.readouterr().out.strip() == "no difference in 1 file"
    assert run("show", program[1]) == 0
    assert "aten.linear" in capsys.readouterr().out


def test_stored_texts_with_other_names_are_compared(tmp_path: Path) -> None:
    """A file is recognised by its content, not by its name."""
    old, new = tmp_path / "old.txt", tmp_path / "new.txt"
    for path, op in ((old, "relu"), (new, "gelu")):
        body = f"  %x = input : f32[2]\n  %y = aten.{op}.default(%x) : f32[2]\n  return %y\n"
        path.write_text(f"torchgraph 4\n\nmain: forward @ aot {{\n{body}}}\n")
    assert diff(old, new).heading() == "1 edit: aten.relu -> aten.gelu"
    assert not diff(old, old)
