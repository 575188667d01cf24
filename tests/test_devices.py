"""`graph_device`: which tests run on what, and what an absent device does."""

from __future__ import annotations

import pytest
from projects import Run

from pytest_torchgraph import devices

WITHOUT_CUDA = """
import pytest

@pytest.fixture(autouse=True, scope="session")
def without_cuda():
    import torch
    torch.cuda.is_available = lambda: False
"""

WITH_CUDA = WITHOUT_CUDA.replace("False", "True")


def test_ids_are_the_names_of_the_devices(pytester: pytest.Pytester, run: Run) -> None:
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
        "test_ids_are_the_names_of_the_devices.py::test_x[cpu-float]",
        "test_ids_are_the_names_of_the_devices.py::test_x[cpu-half]",
        "test_ids_are_the_names_of_the_devices.py::test_x[cuda-float]",
        "test_ids_are_the_names_of_the_devices.py::test_x[cuda-half]",
        "test_ids_are_the_names_of_the_devices.py::test_y",
    ]


def test_an_absent_device_is_a_skip_that_says_which_and_why(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makeconftest(WITHOUT_CUDA)
    pytester.makepyfile(
        """
        import torch

        def test_x(graph_device):
            assert graph_device == torch.device("cpu")
        """
    )
    result = run("-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(
        ["SKIPPED*device 'cuda' is absent: torch.cuda.is_available() is False: torch * is built *"]
    )


@pytest.mark.parametrize("where", ["--torchgraph-devices=cpu,cuda", "--torchgraph-devices=cuda"])
def test_an_absent_device_asked_for_on_the_command_line_is_an_error(
    pytester: pytest.Pytester, run: Run, where: str
) -> None:
    pytester.makeconftest(WITHOUT_CUDA)
    pytester.makepyfile("def test_x(graph_device): pass")
    result = run(where)
    result.assert_outcomes(passed=where.count("cpu"), errors=1)
    result.stdout.fnmatch_lines(
        [
            "device 'cuda', asked for with --torchgraph-devices, is absent: "
            "torch.cuda.is_available() is False: *"
        ]
    )


def test_a_device_named_in_the_ini_file_only_is_skipped_where_it_is_absent(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makeini("[pytest]\ntorchgraph_devices = cuda")
    pytester.makeconftest(WITHOUT_CUDA)
    pytester.makepyfile("def test_x(graph_device): pass")
    run().assert_outcomes(skipped=1)
    run("--torchgraph-devices=cpu").assert_outcomes(passed=1)


def test_a_present_device_is_given_as_a_torch_device(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeconftest(WITH_CUDA)
    pytester.makepyfile(
        """
        import torch

        def test_x(graph_device):
            assert isinstance(graph_device, torch.device)
            print("on", graph_device)
        """
    )
    result = run("-s")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*on cpu", "*on cuda"])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("gpu", "unknown device 'gpu': choose from cpu, cuda, *"),
        ("cpu,cuda:0", "unknown device 'cuda:0': choose from * (without an index)"),
        (" , ", "names no device: choose from cpu, *"),
    ],
)
def test_an_unknown_device_is_a_usage_error_before_anything_runs(
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


def test_a_test_may_parametrize_the_fixture_itself(pytester: pytest.Pytester, run: Run) -> None:
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


def test_a_project_may_redefine_the_fixture(pytester: pytest.Pytester, run: Run) -> None:
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


def test_a_fixture_and_a_class_can_use_it_too(pytester: pytest.Pytester, run: Run) -> None:
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


def test_asking_for_it_by_name_needs_one_device(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        def test_x(request):
            assert request.getfixturevalue("graph_device").type == "cpu"
        """
    )
    run("--torchgraph-devices=cpu").assert_outcomes(passed=1)
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["graph_device can be cpu or cuda here: name it among the arguments of the test*"]
    )


def test_captures_are_told_the_device_only_during_tests_that_use_one(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makeconftest(WITH_CUDA)
    pytester.makepyfile(
        """
        import threading

        import pytest
        from pytest_torchgraph.devices import expected_device

        @pytest.fixture(scope="module", autouse=True)
        def wide():
            assert expected_device() is None

        @pytest.fixture
        def narrow():
            return expected_device()

        class TestModel:
            def test_a(self, narrow, graph_device):
                assert expected_device() == narrow == str(graph_device)
                seen = []
                thread = threading.Thread(target=lambda: seen.append(expected_device()))
                thread.start()
                thread.join()
                assert seen == [str(graph_device)]

            def test_b(self, narrow):
                assert expected_device() is narrow is None

        def test_c(graph_device):
            assert 0, f"failed on {expected_device()}"

        def test_d():
            assert expected_device() is None
        """
    )
    result = run()
    result.assert_outcomes(passed=4, failed=2)
    result.stdout.fnmatch_lines(["*failed on cpu*", "*failed on cuda*"])


def test_devices_are_selected_in_workers_too(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeconftest(WITHOUT_CUDA)
    pytester.makepyfile("def test_x(graph_device): pass")
    result = run("-p", "xdist", "-n2", "--torchgraph-devices=cuda")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["device 'cuda', asked for with --torchgraph-devices, *"])
