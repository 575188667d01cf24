"""Logs that torch writes are read as captures, with what a watch of the same process has."""

from __future__ import annotations

import gzip
import os
import pprint
import re
import subprocess
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from subjects.models import SUBJECTS
from torch import Tensor
from watching import break_cases
from watching.traced import traced

from pytest_torchgraph import Capture, CaptureError, GraphFormatError, Ranks, load, watch
from pytest_torchgraph.convert.source_lines import localizer, relative

pytestmark = pytest.mark.filterwarnings("ignore:::torch", "ignore:The .grad attribute")


def gelu_then_break(x: Tensor) -> Tensor:
    y = F.gelu(x)
    torch._dynamo.graph_break()
    return y + 1


def scaled(x: Tensor, factor: int) -> Tensor:
    return x * factor


def in_two_sizes(backend: str) -> None:
    function = torch.compile(scaled, backend=backend)
    for factor in (2, 3, 3):
        function(torch.randn(factor, 4), factor)


def limit_reached(backend: str) -> None:
    function = torch.compile(scaled, backend=backend, dynamic=False)
    with torch._dynamo.config.patch(recompile_limit=2):
        for size in range(2, 6):
            function(torch.randn(size), size)


def trained(backend: str) -> None:
    x = torch.randn(3, requires_grad=True)
    torch.compile(gelu_then_break, backend=backend)(x).sum().backward()


def captured_backward(backend: str) -> None:
    x = torch.randn(3, requires_grad=True)
    with torch._dynamo.config.patch(compiled_autograd=True):

        @torch.compile(backend=backend)
        def step(x: Tensor) -> Tensor:
            loss = F.gelu(x).sum()
            loss.backward()
            return loss

        step(x)


def library_after_a_captured_backward(backend: str) -> None:
    captured_backward(backend)
    torch.compile(pprint.pformat, backend=backend)(torch.ones(2))


def nested_region(backend: str) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v.sin(), (x,))

    torch.compile(function, backend=backend)(torch.randn(3))


def compiled_again_after_reset(backend: str) -> None:
    for _ in range(2):
        torch.compile(scaled, backend=backend)(torch.randn(3), 2)
        torch._dynamo.reset()


def raises_while_traced(backend: str) -> None:
    def function(x: Tensor) -> Tensor:
        return x @ torch.randn(7, 7)

    with pytest.raises(Exception, match=r"mat1|size|shape"):
        torch.compile(function, backend=backend)(torch.randn(3, 3))


CASES: dict[str, Callable[[str], object]] = {
    case.__name__: case
    for case in (
        in_two_sizes,
        limit_reached,
        trained,
        captured_backward,
        nested_region,
        compiled_again_after_reset,
        raises_while_traced,
    )
}
BROKEN = ("in_try", "nested_call", "in_for_loop", "in_generator", "decorated")


def read_both(run: Callable[[], object], path: Path) -> tuple[Capture, Capture]:
    """Return the live watch of a run, and the capture of its log."""
    with traced(path), watch() as live:
        run()
    logged = load(path)
    assert isinstance(logged, Capture)
    return live, logged


def facts_of(capture: Capture) -> dict[str, Any]:
    """Return everything that a log has too."""
    record = capture.record("compilations")
    return {
        "graphs": re.sub(r" × \d+", "", capture.to_text(fold=False).partition("\n\n")[2]),
        "breaks": [(str(cut), cut.hint, cut.stack[-1:], cut.occurrences) for cut in record.breaks],
        "recompiles": [(each.function, each.line, each.limit_hit) for each in record.recompiles],
        "compilations": [
            (str(c.id), c.function, c.file, c.line, c.failure, c.finished, c.ops)
            for c in record.compiled
        ],
        "lookups": [
            (e.cache, e.state, e.backward)
            for c in record.compiled
            for e in c.lookups
            if e.state != "unsaved"  # which torch does not report
        ],
    }


@pytest.mark.parametrize("case", CASES)
def test_log_has_what_a_watch_has(case: str, tmp_path: Path) -> None:
    live, logged = read_both(lambda: CASES[case]("aot_eager"), tmp_path / "x.log")
    assert facts_of(logged) == facts_of(live)


@pytest.mark.slow("captures a backward")
def test_breaks_of_a_library_after_a_captured_backward_are_kept(tmp_path: Path) -> None:
    run = library_after_a_captured_backward
    live, logged = read_both(lambda: run("aot_eager"), tmp_path / "x.log")
    assert "library_after_a_captured_backward" in str(facts_of(live)["breaks"])
    assert facts_of(logged)["breaks"] == facts_of(live)["breaks"]


@pytest.mark.slow("forty compilations", only=["in_*"])
@pytest.mark.parametrize("case", BROKEN)
def test_graph_breaks_of_a_log(case: str, tmp_path: Path) -> None:
    live, logged = read_both(lambda: break_cases.BROKEN[case]("aot_eager")(), tmp_path / "x.log")
    assert facts_of(logged) == facts_of(live)


@pytest.mark.slow("trains each subject")
@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *((name, "aot_eager") for name in ("residual_cnn", "lstm_between_blocks", "mamba")),
        *((name, "inductor") for name in ("residual_cnn", "gpt2")),
    ],
)
def test_subjects_in_a_log(name: str, backend: str, tmp_path: Path) -> None:
    subject = SUBJECTS[name]()
    model: Any = torch.compile(subject.model, backend=backend)

    def run() -> None:
        with torch.set_grad_enabled(subject.grad):
            output = model(*subject.args, **subject.kwargs)
        leaves = torch.utils._pytree.tree_leaves(output)
        losses = [leaf.float().sum() for leaf in leaves if getattr(leaf, "requires_grad", False)]
        if losses:
            torch.stack(losses).sum().backward()

    live, logged = read_both(run, tmp_path / "x.log")
    assert facts_of(logged) == facts_of(live)


def test_runs_are_unknown(tmp_path: Path) -> None:
    live, logged = read_both(lambda: in_two_sizes("aot_eager"), tmp_path / "x.log")
    for asked in ("executions", "counters", "eager_calls", "output", "flops", "saved_bytes"):
        with pytest.raises(CaptureError, match="compilations and no calls"):
            getattr(logged, asked)
    with pytest.raises(CaptureError, match="a trace does not record ops that run eagerly"):
        _ = logged.eager
    assert logged == live  # an unknown run count equals any
    assert (logged.via, logged.log is not None, live.log) == ("trace", True, None)
    logged.assert_recompiles(1)
    with pytest.raises(AssertionError, match="recompilations: expected 0, found 1"):
        logged.assert_no_recompiles()


def test_compiled_backward_counts_as_run(tmp_path: Path) -> None:
    x = torch.randn(3, requires_grad=True)
    _, logged = read_both(lambda: torch.compile(F.gelu, backend="aot_eager")(x), tmp_path / "x.log")
    logged.assert_graph_count(forward=1, backward=1)
    logged.assert_no_recompiles()  # one compilation is enough: a log has no calls
    logged.assert_no_graph_breaks()
    with pytest.raises(AssertionError, match=r"aten\.gelu"):
        logged.assert_no_ops("aten.gelu")


def test_log_without_graphs_fails_checks(tmp_path: Path) -> None:
    function = torch.compile(lambda x: x.shape, backend="aot_eager")
    _, logged = read_both(lambda: function(torch.randn(3)), tmp_path / "x.log")
    with pytest.raises(AssertionError, match="no graph was compiled"):
        logged.assert_no_graph_breaks()


# -- other processes, ranks ------------------------------------------------------------------------

SCRIPT = """
import torch, torch.nn.functional as F
library = torch.library.Library("elsewhere", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
library.impl("twice", lambda x: x * 2, "Meta")
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())
torch.compile(lambda x: torch.ops.elsewhere.twice(model(x)), backend="aot_eager")(torch.randn(2, 4))
"""


@pytest.mark.slow("a process of its own")
def test_log_of_another_process(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "TORCH_TRACE": str(tmp_path / "trace")}
    subprocess.run([sys.executable, str(script)], check=True, env=environment)
    script.unlink()  # the line of its code is read from the log
    (of_process,) = (tmp_path / "trace").iterdir()
    logged = load(of_process)
    assert isinstance(logged, Capture)
    assert logged.log is not None
    assert logged.log.torch == torch.__version__.partition("+")[0]
    assert logged.log.pid > 0
    assert logged.log.truncated == ""
    logged.assert_op_counts({"aten.gelu": 1, "elsewhere.twice": 1, "aten.addmm": 1, "aten.t": 1})
    (node,) = logged.graphs[0].find("aten.gelu")
    assert node.source is not None
    assert node.source.code.startswith("torch.compile(lambda x:")
    assert load(of_process.parent) == logged


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "whole.log"
    torch._dynamo.reset()
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())
    with traced(path):
        torch.compile(lambda x: model(x), backend="aot_eager")(torch.randn(2, 4))
    return path


def test_compressed_log(log: Path, tmp_path: Path) -> None:
    packed = tmp_path / "anything"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    assert load(packed) == load(log)


@pytest.mark.parametrize("there", ["/opt/there", "/a folder/of theirs"])
def test_paths_of_another_machine(there: str, log: Path, tmp_path: Path) -> None:
    """The lines of torch's own modules are torch's, wherever it was installed."""
    home = str(Path(torch.__file__).parent.parent)
    text = log.read_text().replace(home, f"{there}/lib/python3.12/site-packages")
    moved = tmp_path / "moved.log"
    moved.write_text(re.sub(r'"has_payload": "\w+"', '"has_payload": ""', text))
    (node,) = load(moved).graphs[0].find("aten.gelu")
    (here,) = load(log).graphs[0].find("aten.gelu")
    assert node.source == here.source
    assert relative("/opt/there/x.py") == "x.py"


def test_standard_library_of_another_machine() -> None:
    local = localizer('"/opt/there/lib/python3.12/site-packages/torch/_dynamo/eval_frame.py"')
    assert local("/usr/lib/python3.9/typing.py") == typing.__file__


def test_interleaved_ranks_and_foreign_lines(log: Path, tmp_path: Path) -> None:
    text = log.read_text()
    records = re.split(r"(?m)^(?=V\d{4} )", text)[1:]
    ranks = []
    for rank in (1, 0):
        their = [
            re.sub(r"^(\S+ \S+) \d+ (.*?\] \{)", rf"\1 {100 + rank} \2", record)
            for record in records
        ]
        ranks.append(
            [re.sub(r"\] \{(?!\"str)", f'] {{"rank": {rank}, ', r, count=1) for r in their]
        )
    mixed = tmp_path / "mixed.log"
    pairs = zip(*ranks, strict=True)
    mixed.write_text("a line of another program\n".join(a + b for a, b in pairs))
    both = load(mixed)
    assert isinstance(both, Ranks)
    assert both.ranks == (0, 1)
    assert both.mesh == {}
    single = load(log)
    assert [capture == single for capture in both] == [True, True]
    assert [capture.log.pid for capture in both if capture.log] == [100, 101]
    both.assert_same_graphs()


def test_process_that_compiled_nothing_but_broke_is_kept(log: Path, tmp_path: Path) -> None:
    """A rank without a graph has a reason, which a check of the other ranks would not show."""
    (tmp_path / "whole.log").write_bytes(log.read_bytes())
    with traced(tmp_path / "skipped.log"):
        break_cases.BROKEN["in_try"]("aot_eager")()
    ranks = load(tmp_path)
    assert isinstance(ranks, Ranks)
    broken = [capture for capture in ranks if not capture.program]
    with pytest.raises(AssertionError, match=r"graph breaks: expected 0, found 1(.|\n)*print"):
        broken[0].assert_no_graph_breaks()


# -- truncated and hostile logs --------------------------------------------------------------------


def cuts(data: bytes) -> dict[str, int]:
    """Return a position in each kind of place of a log."""
    record = data.index(b'{"aot_')  # inside a compilation
    line = data.rindex(b"\nV", 0, record) + 1
    end = data.index(b"\n", record)
    return {
        "inside a prefix": line + 12,
        "inside the JSON": record + 20,
        "before the payload": end + 1,
        "inside a payload line": end + 40,
        "between payload lines": data.index(b"\n", end + 30) + 1,
        "between records": line,
    }


PLACES = list(cuts(b'\nV {"aot_\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\nV\n'))


@pytest.mark.parametrize("place", PLACES)
def test_truncated_log_is_refused(place: str, log: Path, tmp_path: Path) -> None:
    data = log.read_bytes()
    cut = tmp_path / "cut.log"
    cut.write_bytes(data[: cuts(data)[place]])
    with pytest.raises(GraphFormatError, match=r"truncated: .*--allow-truncated"):
        load(cut)
    rest = load(cut, truncated="allow")
    assert isinstance(rest, Capture)
    assert rest.log is not None
    assert rest.log.truncated
    assert rest.program == ()
    with pytest.raises(AssertionError, match="no graph was compiled"):
        rest.assert_no_graph_breaks()


def test_log_without_its_last_line_end_is_whole(log: Path, tmp_path: Path) -> None:
    """Editors remove it; a record and its payload say themselves whether they are whole."""
    stripped = tmp_path / "stripped.log"
    stripped.write_bytes(log.read_bytes().rstrip(b"\n"))
    assert load(stripped) == load(log)


def test_cut_archive_is_refused(log: Path, tmp_path: Path) -> None:
    packed = gzip.compress(log.read_bytes())
    cut = tmp_path / "cut.log.gz"
    for size in (10, len(packed) // 2, len(packed) - 4):
        cut.write_bytes(packed[:size])
        with pytest.raises(GraphFormatError, match="truncated"):
            load(cut)


def test_wrong_argument(log: Path) -> None:
    wrong: Any = "ignore"
    with pytest.raises(ValueError, match=r"truncated='ignore': pass \"refuse\" or \"allow\""):
        load(log, truncated=wrong)


MUTATIONS = (
    (b'"frame_id": 0', b'"frame_id": [0]'),
    (b'"frame_id": 0', b'"frame_id": "x"'),
    (b'"stack": [', b'"stack": [7, '),
    (b'"co_firstlineno": ', b'"co_firstlineno": 1e999, "x": '),
    (b'"co_name": ', b'"co_name": {}, "x": '),
    (b'{"artifact": {', b'{"artifact": 3, "y": {'),
    (b'{"str": [', b'{"str": [1, 2, '),
    (b'"compilation_metrics": {', b'"compilation_metrics": [], "y": {'),
    (b'"has_payload": "', b'"has_payload": "0'),
    (b"torch.ops.aten.gelu.default(", b"__import__('os').system("),
)


@pytest.mark.parametrize("number", range(len(MUTATIONS)))
def test_damaged_log_is_one_error(number: int, log: Path, tmp_path: Path) -> None:
    before, after = MUTATIONS[number]
    data = log.read_bytes()
    assert before in data
    damaged = data.replace(before, after)
    if number == len(MUTATIONS) - 1:  # the payload is as its record says
        damaged = re.sub(rb'"has_payload": "\w+"', b'"has_payload": ""', damaged)
    path = tmp_path / "damaged.log"
    path.write_bytes(damaged)
    try:
        damaged_capture = load(path)
        text = damaged_capture.to_text().partition("\n\n")[2]
    except (GraphFormatError, CaptureError):
        return
    assert text == load(log).to_text().partition("\n\n")[2]
