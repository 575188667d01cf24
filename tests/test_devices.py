"""`graph_device`: the devices of each test, and the effect of an absent device."""

from __future__ import annotations

import functools
import re

import pytest
import torch
from projects import Run, files
from torch import nn

from pytest_torchgraph import capture, devices
from pytest_torchgraph.graph import Graph

pytestmark = pytest.mark.gpu

WITHOUT_CUDA = """
import pytest

@pytest.fixture(autouse=True, scope="session")
def without_cuda():
    import torch
    torch.cuda.is_available = lambda: False
"""

WITH_CUDA = WITHOUT_CUDA.replace("False", "True")


def test_graph_device_ids_are_device_names(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("dtype", ["half", "float"])
        def test_x(dtype, graph_device): pass

        def test_y(tmp_path): pass
        """
    )
    result = run("--collect-only", "-q")
    assert sorted(line for line in result.outlines if "::" in line) == [
        "test_graph_device_ids_are_device_names.py::test_x[cpu-float]",
        "test_graph_device_ids_are_device_names.py::test_x[cpu-half]",
        "test_graph_device_ids_are_device_names.py::test_x[cuda-float]",
        "test_graph_device_ids_are_device_names.py::test_x[cuda-half]",
        "test_graph_device_ids_are_device_names.py::test_y",
    ]


def test_absent_device_of_the_command_line_is_an_error(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeconftest(STAND_IN)
    pytester.makeini("[pytest]\ntorchgraph_isolation = off")
    pytester.makepyfile("def test_x(graph_device): pass")
    result = run("--torchgraph-devices=cpu,cuda")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "device 'cuda' of --torchgraph-devices is not available: "
            "torch.cuda.is_available() is False: *"
        ]
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("gpu", "unknown device 'gpu': use cpu, cuda, *"),
        ("cpu,cuda:0", "unknown device 'cuda:0': use * (without an index)"),
        (" , ", "names no device: use cpu, *"),
    ],
)
def test_unknown_device_is_a_usage_error_before_anything_runs(
    pytester: pytest.Pytester, run: Run, value: str, message: str
) -> None:
    pytester.makepyfile("def test_x(): pass")
    result = run(f"--torchgraph-devices={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --torchgraph-devices*{message}"])
    pytester.makeini(f"[pytest]\ntorchgraph_devices ={value}x:")
    result = run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: torchgraph_devices: unknown device *"])


def test_devices_are_taken_in_order_and_once() -> None:
    assert devices.parse_devices(" cuda, cpu,cuda ", "option") == ("cuda", "cpu")


def test_test_may_parametrize_the_fixture_itself(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("graph_device", ["cpu"], indirect=True)
        def test_single(graph_device):
            assert graph_device.type == "cpu"

        @pytest.mark.parametrize("n, graph_device", [(1, "cpu")], indirect=["graph_device"])
        def test_double(n, graph_device):
            assert graph_device.type == "cpu"
        """
    )
    run().assert_outcomes(passed=2)


def test_project_may_redefine_the_fixture(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def graph_device():
            return "mine"

        def test_x(graph_device):
            assert graph_device == "mine"
        """
    )
    run().assert_outcomes(passed=1)


@pytest.mark.slow("a run of pytest of its own")
def test_fixture_and_a_class_can_use_it_too(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeconftest(WITH_CUDA)
    pytester.makepyfile(
        """
        import pytest

        made = []

        @pytest.fixture(scope="class")
        def model(graph_device):
            made.append(str(graph_device))
            return str(graph_device)

        class TestModel:
            def test_a(self, model): pass
            def test_b(self, model, graph_device):
                assert model == str(graph_device)

        def test_once_for_each_class_and_device():
            assert made == ["cpu", "cuda"]
        """
    )
    run().assert_outcomes(passed=5)


def test_getfixturevalue_of_graph_device_needs_one_device(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(
        """
        def test_x(request):
            assert request.getfixturevalue("graph_device").type == "cpu"
        """
    )
    run("--torchgraph-devices=cpu").assert_outcomes(passed=1)
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["graph_device has several devices here (cpu or cuda)*"])


@pytest.mark.slow("a run of pytest of its own")
def test_captures_use_the_device_only_in_tests_with_one(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makeconftest(WITH_CUDA)
    pytester.makepyfile(
        """
        import threading

        import pytest
        from pytest_torchgraph.context import CONTEXT

        @pytest.fixture(scope="module", autouse=True)
        def wide():
            assert CONTEXT.device is None

        @pytest.fixture
        def narrow():
            return CONTEXT.device

        class TestModel:
            def test_a(self, narrow, graph_device):
                assert CONTEXT.device == narrow == str(graph_device)
                seen = []
                thread = threading.Thread(target=lambda: seen.append(CONTEXT.device))
                thread.start()
                thread.join()
                assert seen == [str(graph_device)]

            def test_b(self, narrow):
                assert CONTEXT.device is narrow is None

        def test_c(graph_device):
            assert 0, f"failed on {CONTEXT.device}"

        def test_d():
            assert CONTEXT.device is None
        """
    )
    result = run()
    result.assert_outcomes(passed=4, failed=2)
    result.stdout.fnmatch_lines(["*failed on cpu*", "*failed on cuda*"])


# -- what is selected, and what is there -----------------------------------------------------------

STAND_IN = """
import os
import sys
from types import ModuleType, SimpleNamespace

class Device:
    def __init__(self, name):
        self.type, _, index = name.partition(":")
        self.index = int(index) if index else None

    def __str__(self):
        return self.type

torch = sys.modules["torch"] = ModuleType("torch")
torch.device, torch.__version__ = Device, "0"
torch.version = SimpleNamespace(cuda=None, hip=None)
torch.cuda = SimpleNamespace(is_available=lambda: "CUDA" in os.environ, device_count=lambda: 1)
"""
"""The part of torch that reports devices, without the seconds that importing torch takes."""

FORMS = """
import pytest

only = pytest.mark.torchgraph_devices

def test_plain(graph_device): pass

@only("cpu")
def test_cpu(graph_device): pass

@only("cuda")
def test_cuda(graph_device): pass

@only("cuda", "cpu")
def test_both(graph_device): pass

@only("meta")
def test_meta(graph_device): pass

@only("cpu", "cuda")
class TestClass:
    @only("cuda")
    def test_narrowed(self, graph_device): pass

@pytest.mark.parametrize("graph_device", ["cpu"], indirect=True)
def test_own(graph_device): pass

@pytest.mark.parametrize("n", [1, pytest.param(2, marks=only("cpu"))])
def test_param(graph_device, n): pass

@only("cuda")
class TestPartly:
    def test_without(self): pass
"""

TABLE = """
selected      |cuda   |plain     |cpu |cuda |both      |meta |narrowed|own |param
              |absent |cpu. cudas|cpu.|cudas|cpu. cudas|metas|cudas   |cpu.|cpu.. cudass
--cpu         |absent |cpu.      |cpu.|cudas|cpu.      |metas|cudas   |cpu.|cpu..
--cuda        |absent |cudaE     |cpus|cudaE|cudaE     |metas|cudaE   |cpu.|cudaEE
--cuda        |present|cuda.     |cpus|cuda.|cuda.     |metas|cuda.   |cpu.|cuda.s
--cpu,cuda    |absent |cpu. cudaE|cpu.|cudaE|cpu. cudaE|metas|cudaE   |cpu.|cpu.. cudaEE
--meta        |absent |meta.     |cpus|cudas|cudas cpus|meta.|cudas   |cpu.|meta.s
ini=cuda      |absent |cudas     |cpus|cudas|cudas     |metas|cudas   |cpu.|cudass
ini=meta --cpu|absent |cpu.      |cpu.|cudas|cpu.      |metas|cudas   |cpu.|cpu..
"""
"""The devices that each form of test runs on: `.` passed, `s` skipped, `E` error."""

HEAD, *ROWS = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip().splitlines()]


@pytest.mark.slow(
    "further cases; a few are in every run",
    unless=["--cpu-absent", "--cuda-present", "--meta-absent", "ini=cuda-absent"],
)
@pytest.mark.parametrize("row", ROWS, ids=[f"{row[0] or 'default'}-{row[1]}" for row in ROWS])
def test_selected_and_present_devices(pytester: pytest.Pytester, run: Run, row: list[str]) -> None:
    pytester.makeconftest(STAND_IN)
    pytester.makepyfile(test_forms=FORMS)
    options, ini = [], ["[pytest]", "torchgraph_isolation = off"]
    for word in row[0].split():
        if word.startswith("ini="):
            ini.append(f"torchgraph_devices = {word[4:]}")
        else:
            options.append(f"--torchgraph-devices={word[2:]}")
    pytester.makeini("\n".join(ini))
    environment = {"CUDA": "1"} if row[1] == "present" else {}
    result = run("-v", "-rs", "--strict-markers", *options, **environment)
    found: dict[str, dict[str, str]] = {}
    for line in result.outlines:
        case = re.match(r"\S+::test_(\w+)\[(\w+?)(?:-\d)?\] (PASSED|SKIPPED|ERROR)", line)
        if case:
            of = found.setdefault(case[1], {})
            of[case[2]] = of.get(case[2], "") + {"P": ".", "S": "s", "E": "E"}[case[3][0]]
    assert found == {
        name: dict(re.findall(r"(cpu|cuda|meta)([.sE]+)", cell))
        for name, cell in zip(HEAD[2:], row[2:], strict=True)
    }
    assert "test_forms.py::TestPartly::test_without PASSED" in result.stdout.str()
    skipped = [line for line in result.outlines if line.startswith("SKIPPED")]
    reasons = r"device 'cuda' is not available: |@pytest\.mark\.torchgraph_devices excludes "
    assert all(re.search(reasons, line) for line in skipped)


def test_marker_that_excludes_all_devices_gives_the_reason(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.torchgraph_devices("cuda", "xpu")
        def test_x(graph_device): pass
        """
    )
    result = run("-rs", "--torchgraph-devices=cpu,meta")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(
        ["SKIPPED*@pytest.mark.torchgraph_devices excludes all selected devices: cpu, meta"]
    )
    result = run("--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.torchgraph_devices(*names): graph_device gives *"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "names no device: use cpu, *"),
        ("['cpu']", "unknown device [[]'cpu']: use *"),
        ("names='cpu'", 'takes device names, as in torchgraph_devices("cpu", "cuda")'),
    ],
)
def test_invalid_device_marker_is_an_error_at_collection(
    pytester: pytest.Pytester, run: Run, arguments: str, message: str
) -> None:
    pytester.makepyfile(
        f"""
        import pytest

        @pytest.mark.torchgraph_devices({arguments})
        def test_x(graph_device): pass
        """
    )
    result = run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*::test_x: @pytest.mark.torchgraph_devices*{message}"])


def test_device_marker_without_the_fixture_is_an_error(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest

        only = pytest.mark.torchgraph_devices("cuda")

        @only
        def test_x(graph_capture): pass

        @only
        class TestThese:
            def test_y(self): pass
        """
    )
    result = run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*::test_x: @pytest.mark.torchgraph_devices has no effect, because the test does not *"]
    )
    result.stdout.no_fnmatch_line("*test_y*")


@pytest.mark.slow("a run of pytest of its own")
def test_graph_device_with_a_fixture_named_device(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest
        import torch

        @pytest.fixture(params=["left", "right"])
        def device(request):
            return request.param

        def test_x(device, graph_device, graph_capture):
            capture = graph_capture(torch.nn.Linear(2, 2), torch.ones(2, 2), device=graph_device)
            capture.assert_op_counts({"aten.addmm": 1})
            assert device in ("left", "right")
        """
    )
    result = run("-v", "--torchgraph-devices=cpu,meta")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["*::test_x[[]right-meta] PASSED*"])


# -- the snapshots of devices that are not there ---------------------------------------------------

STORED = """
import pytest
from graphs import Capture, graph

def test_step(graph_device, graph_snapshot):
    assert Capture(graph()) == graph_snapshot

@pytest.mark.torchgraph_devices("cuda")
def test_there_only(graph_device, graph_snapshot):
    assert Capture(graph()) == graph_snapshot
"""
CPU_FILE = "__snapshots__/test_net/test_step[cpu].tgraph"
CUDA_FILES = {
    "__snapshots__/test_net/test_step[cuda].tgraph",
    "__snapshots__/test_net/test_there_only[cuda].tgraph",
}


@pytest.fixture
def stored(pytester: pytest.Pytester, run: Run) -> Run:
    """A project whose graphs were stored on a machine with CUDA."""
    pytester.makeconftest(STAND_IN)
    pytester.makepyfile(test_net=STORED)
    pytester.makeini("[pytest]\ntorchgraph_isolation = off")
    run("--torchgraph-update", CUDA="1").assert_outcomes(passed=3)
    assert files(pytester).keys() == {*CUDA_FILES, CPU_FILE}
    return run


@pytest.mark.slow("further cases; a few are in every run", unless=["--torchgraph-prune"])
@pytest.mark.parametrize(
    "options",
    [
        ("--torchgraph-update",),
        ("--torchgraph-prune",),
        ("--torchgraph-devices=cpu", "--torchgraph-update"),
        ("--torchgraph-update", "-m", "not torchgraph_devices"),
        ("--torchgraph-update", "--torchgraph-prune", "-p", "xdist", "-n2"),
    ],
    ids=" ".join,
)
def test_files_of_an_absent_device_are_kept(
    pytester: pytest.Pytester, stored: Run, options: tuple[str, ...]
) -> None:
    before = files(pytester)
    update = "--torchgraph-update" in options
    result = stored(*options, OP="gelu" if update else "relu")
    assert result.parseoutcomes()["passed"] == 1
    after = files(pytester)
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    assert changed == ({CPU_FILE} if update else set())


@pytest.mark.slow("runs pytest several times")
def test_each_device_has_its_own_file_and_can_be_selected(stored: Run) -> None:
    stored().assert_outcomes(passed=1, skipped=2)
    stored("-k", "cuda").assert_outcomes(skipped=2, deselected=1)
    stored("-k", "cpu").assert_outcomes(passed=1, deselected=2)
    stored("-m", "torchgraph_devices").assert_outcomes(skipped=1, deselected=2)
    result = stored("-p", "xdist", "-n2", "-rs")
    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines(["SKIPPED*device 'cuda' is not available: *"])
    result = stored("-p", "xdist", "-n2", CUDA="1", OP="gelu")
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(["*test_there_only[[]cuda]*"])


# -- an accelerator by simulation ------------------------------------------------------------------

SIMULATED = """
import pytest
import torch
from torch import nn

def model():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

def test_placed(graph_device, graph_capture, graph_snapshot):
    target, x = model(), torch.ones(2, 4)
    for via in ("aot", "dispatch"):
        capture = graph_capture(target, x, via=via, device=graph_device)
        capture.assert_op_counts({"aten.addmm": {"cpu": 2, "meta": 2}})
        capture.assert_graph_count(forward={"cpu": 1, "meta": 1}, backward=1)
        capture.assert_no_syncs()
        capture.assert_no_transfers()
    assert x.device.type == target[0].weight.device.type == "cpu"
    assert capture.forward == graph_snapshot(detail="full")

def test_forgotten(graph_device, graph_capture):
    graph_capture(model(), torch.ones(2, 4))

def test_forgotten_by_a_watch(graph_device, graph_capture):
    with graph_capture.watch() as seen:
        torch.compile(model(), backend="aot_eager")(torch.ones(2, 4))
    seen.assert_no_graph_breaks()

def test_forgotten_by_a_steady_watch(graph_device, graph_capture):
    step = torch.compile(model(), backend="aot_eager")
    with graph_capture.watch() as seen:
        step(torch.ones(2, 4)), step(torch.ones(2, 4))
    seen.assert_no_recompiles()

@pytest.mark.torchgraph
def test_forgotten_in_a_marked_test(graph_device):
    torch.compile(model(), backend="aot_eager")(torch.ones(2, 4))

def test_forgotten_at_a_level(graph_device, graph_capture):
    with graph_capture.watch() as seen:
        torch.compile(model(), backend="aot_eager")(torch.ones(2, 4))
    seen.at("dynamo").assert_no_ops("torch.sin")

def test_forgotten_count(graph_device, graph_capture):
    capture = graph_capture(model(), torch.ones(2, 4), device=graph_device)
    capture.assert_op_counts({"aten.addmm": {"cpu": 2, "cuda": 2}})

def test_other_count(graph_device, graph_capture):
    capture = graph_capture(model(), torch.ones(2, 4), device=graph_device)
    capture.assert_op_counts({"aten.addmm": {"cpu": 2, "meta": 1}})

def test_values(graph_device, graph_capture):
    graph_capture(model(), torch.ones(2, 4), device=graph_device).assert_matches_eager()
"""


@pytest.mark.slow("runs pytest several times")
def test_accelerator_by_simulation(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_net=SIMULATED)
    result = run("--torchgraph-devices=cpu,meta", "--torchgraph-update", "-v")
    result.assert_outcomes(passed=10, failed=8)
    failed = [line.split("[")[0] for line in result.outlines if "[meta] FAILED" in line]
    assert len(failed) == 8
    nothing = "nothing on meta was compiled in this test"
    assert sum(nothing in line for line in result.outlines if line.startswith("E  ")) >= 3
    result.stdout.fnmatch_lines(
        [
            "*CaptureError: nothing on meta was captured in this test with graph_device=meta (only "
            "on cpu): pass device=graph_device, *",
            "*AssertionError: nothing on meta was compiled in this test with graph_device=meta "
            "(only on cpu): create model and inputs with device=graph_device",
            "*ValueError: missing count for device 'meta' (given: 'cpu', 'cuda')",
            "*AssertionError: op counts differ:",
            "*aten.addmm: expected 1, found 2",
            "*CaptureError: output is on the meta device, so it has no values to compare*",
        ]
    )
    stored = files(pytester)
    assert len(stored) == 2
    for name, content in stored.items():
        device = "meta" if "[meta]" in name else "cpu"
        assert f'on "{device}"'.encode() in content


@pytest.mark.slow("via dispatch each case is in every run")
def test_tensor_used_twice_has_one_copy() -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(2, 3, 8)
    assert capture(attention, x, x, x, device="cpu") == capture(attention, x, x, x)
    assert capture(attention, x, x, x, device="meta") == capture(attention, x, x, x)
    bound = functools.partial(attention.forward, x, key=x)
    assert capture(bound, value=x, device="cpu") == capture(bound, value=x)


def test_parameter_argument_is_the_copys() -> None:
    tied = nn.Linear(4, 4)
    seen = capture(nn.Sequential(tied), tied.weight, device="meta", via="dispatch")
    assert sorted(node.name for node in seen.forward.inputs) == ["0.bias", "input"]
    here = capture(nn.Sequential(tied), tied.weight, via="dispatch")
    assert seen.op_counts == here.op_counts


def test_counts_by_device_use_the_graphs_device() -> None:
    text = """torchgraph 1
detail full

forward @ aot {
  %x = input : f32[2, 4] stride [4, 1] on "cuda"
  %t = aten.t.default(%x) : f32[4, 2] stride [1, 4] on "cuda"
  %mm = aten.mm.default(%x, %t) : f32[2, 2] stride [2, 1] on "cuda"
  return %mm
}
"""
    graph = Graph.from_text(text)
    graph.assert_op_counts({"aten.mm": {"cpu": 2, "cuda": 1}})
    with pytest.raises(AssertionError, match="expected 2, found 1"):
        graph.assert_op_counts({"aten.mm": {"cpu": 1, "cuda": 2}})
    with pytest.raises(ValueError, match="missing count for device 'cuda'"):
        graph.assert_op_counts({"aten.mm": {"cpu": 1}})
