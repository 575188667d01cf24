"""Tests begin with a fresh compiler, and its settings are restored after them."""

from __future__ import annotations

import contextlib
import getpass
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
import torch._functorch.config
import torch._inductor.config
import torch.compiler
import torch.fx.experimental._config as fx_config
from projects import Run
from torch._dynamo.callback import callback_handler, on_compile_end, on_compile_start
from torch._dynamo.compiled_autograd import AutogradCompilerInstance
from torch_releases import skip_before

from pytest_torchgraph import torch_private, watch
from pytest_torchgraph.isolation import isolated
from pytest_torchgraph.torch_private import matmul_precision

dynamo, inductor = torch._dynamo.config, torch._inductor.config
functorch: Any = torch._functorch.config
counters = torch._dynamo.utils.counters


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def compiled_double(backend: str = "eager") -> Callable[[torch.Tensor], torch.Tensor]:
    return torch.compile(double, backend=backend)


def append(config: Any, name: str) -> None:
    getattr(config, name).append("aten.mm")


def put(config: Any, name: str) -> None:
    getattr(config, name)["a pass"] = {}


def add(config: Any, name: str) -> None:
    getattr(config, name).add(print)


def turned(config: Any, name: str) -> None:
    setattr(config, name, not getattr(config, name))


def patched(config: Any, name: str) -> None:
    config.patch({name: 3}).__enter__()


def assigned(config: Any, name: str) -> None:
    setattr(config, name, 3)


def deleted(config: Any, name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, name, 3)
    delattr(config, name)  # as the undo of pytest 9.2 does


CHANGES = {
    "an alias of it": (assigned, dynamo, "cache_size_limit"),
    "a set of Dynamo": (add, dynamo, "reorderable_logging_functions"),
    "a deprecated switch of Dynamo": (turned, dynamo, "inline_inbuilt_nn_modules"),
    "a switch that torch.compiler keeps": (turned, inductor, "force_disable_caches"),
    "a number below inductor.cpp": (assigned, inductor, "cpp.threads"),
    "a dict of inductor": (put, inductor, "post_grad_fusion_options"),
    "a list of inductor": (append, inductor, "custom_should_partition_ops"),
    "a switch of functorch": (turned, functorch, "donated_buffer"),
    "a switch of torch.fx": (turned, fx_config, "use_duck_shape"),
    "a number that monkeypatch deletes": (deleted, dynamo, "recompile_limit"),
    "a patch that is never undone": (patched, dynamo, "accumulated_recompile_limit"),
}


def state(config: Any, name: str) -> tuple[Any, bytes]:
    value = getattr(config, name, None)
    return (type(value)(value) if hasattr(value, "__iter__") else value), config.get_hash()


@pytest.mark.slow(
    "further cases; a few are in every run",
    unless=[
        "a deprecated switch of Dynamo",
        "a list of inductor",
        "a number below inductor.cpp",
        "a switch of torch.fx",
        "an alias of it",
        "a switch that torch.compiler keeps",
    ],
)
@pytest.mark.filterwarnings("ignore:.* is deprecated:FutureWarning")
@pytest.mark.parametrize("change", CHANGES)
def test_isolation_restores_a_config(change: str) -> None:
    do, config, name = CHANGES[change]
    before = state(config, name)
    with contextlib.suppress(ZeroDivisionError), isolated():
        do(config, name)
        assert state(config, name) != before  # otherwise this test could not fail
        raise ZeroDivisionError
    assert state(config, name) == before


def test_isolation_keeps_settings_of_wider_fixtures() -> None:
    functions: set[Any] = {len}
    with dynamo.patch(recompile_limit=5, reorderable_logging_functions=functions):
        with isolated():
            assert dynamo.recompile_limit == 5
            assert dynamo.reorderable_logging_functions == {len}
            dynamo.recompile_limit = 6
            dynamo.reorderable_logging_functions.add(print)
        assert dynamo.recompile_limit == 5
        assert dynamo.reorderable_logging_functions == {len}


def test_isolation_of_an_uncopyable_config_value() -> None:
    class Alone:
        def __deepcopy__(self, memo: object) -> Alone:
            raise TypeError("there can be only one")

    with inductor.patch(post_grad_fusion_options={"a pass": {"by": Alone()}}):
        with isolated():
            inductor.post_grad_fusion_options["another"] = {}
        assert list(inductor.post_grad_fusion_options) == ["a pass"]


def test_isolation_restores_the_stance() -> None:
    with isolated():
        torch.compiler.set_stance("force_eager")
        assert torch_private.stance() == "force_eager"
    assert torch_private.stance() == "default"
    with torch.compiler.set_stance("eager_on_recompile"):
        with isolated():
            assert torch_private.stance() == "eager_on_recompile"
            torch.compiler.set_stance("default")
        assert torch_private.stance() == "eager_on_recompile"


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger("torch._dynamo")
    level = found.level
    yield found
    found.setLevel(level)
    torch._logging.set_logs()


def test_isolation_restores_logs(logger: logging.Logger) -> None:
    known = torch_private.get("log_state")
    before = logger.level
    with isolated():
        torch._logging.set_logs(dynamo=logging.DEBUG, recompiles=True)
        assert logger.level == logging.DEBUG
        assert known.artifact_names
    assert logger.level == before
    assert not known.artifact_names
    torch._logging.set_logs(dynamo=logging.INFO)
    with isolated():
        torch._logging.set_logs(graph_breaks=True)
        assert logger.level != logging.INFO
    assert logger.level == logging.INFO


def test_isolation_restores_the_level_of_a_torch_logger(logger: logging.Logger) -> None:
    logger.setLevel(logging.ERROR)
    with isolated():
        logger.setLevel(logging.CRITICAL)
    assert logger.level == logging.ERROR


def test_isolation_keeps_other_loggers() -> None:
    with isolated():
        logging.getLogger("torchvision").setLevel(logging.CRITICAL)
    assert logging.getLogger("torchvision").level == logging.CRITICAL


def precisions() -> list[object]:
    places: list[Any] = [torch.backends, torch.backends.cuda.matmul, torch.backends.mkldnn.matmul]
    places += [torch.backends.cudnn, torch.backends.cudnn.conv, torch.backends.mkldnn]
    matmul: Any = torch.backends.cuda.matmul
    try:
        cudnn = torch.backends.cudnn.allow_tf32
    except RuntimeError:  # fp32_precision differs between convolutions and recurrent networks
        cudnn = None
    flags = [matmul.allow_fp16_accumulation, matmul.allow_fp16_reduced_precision_reduction]
    flags += [matmul.allow_bf16_reduced_precision_reduction, cudnn]
    return [matmul_precision(), *flags, *(place.fp32_precision for place in places)]


def precise(place: Any, value: Any, name: str = "fp32_precision") -> Callable[[], None]:
    return lambda: setattr(place, name, value)


PRECISIONS: dict[str, Callable[[], None]] = {
    "the general one": lambda: torch.set_float32_matmul_precision("high"),
    "that of all backends": precise(torch.backends, "tf32"),
    "that of CUDA's matmul": precise(torch.backends.cuda.matmul, "tf32"),
    "that of oneDNN's matmul": precise(torch.backends.mkldnn.matmul, "bf16"),
    "tf32 in CUDA's matmul": precise(torch.backends.cuda.matmul, True, "allow_tf32"),
    "tf32 in cuDNN": precise(torch.backends.cudnn, False, "allow_tf32"),
    "that of cuDNN's convolutions": precise(torch.backends.cudnn.conv, "ieee"),
    "sums in half precision": precise(
        torch.backends.cuda.matmul, False, "allow_fp16_reduced_precision_reduction"
    ),
    "sums in bfloat16": precise(
        torch.backends.cuda.matmul, False, "allow_bf16_reduced_precision_reduction"
    ),
    "products in half precision": precise(
        torch.backends.cuda.matmul, True, "allow_fp16_accumulation"
    ),
}


@pytest.mark.slow(
    "further cases; a few are in every run",
    unless=[
        "None-sums in half precision",
        "None-tf32 in cuDNN",
        "None-that of all backends",
        "None-the general one",
        "that of oneDNN's matmul-that of cuDNN's convolutions",
        "that of all backends-the general one",
    ],
)
@pytest.mark.parametrize(
    ("outside", "inside"),
    [
        *((None, inside) for inside in PRECISIONS),
        ("that of oneDNN's matmul", "that of cuDNN's convolutions"),
        ("that of all backends", "the general one"),
    ],
)
def test_isolation_restores_matmul_precision(outside: str | None, inside: str) -> None:
    with isolated():  # restores both settings for the following tests
        if outside is not None:
            PRECISIONS[outside]()
        before = precisions()
        with isolated():
            torch.set_float32_matmul_precision("high")
            PRECISIONS[inside]()
            assert precisions() != before
        assert precisions() == before


def test_isolation_starts_with_empty_caches_and_counters() -> None:
    run = compiled_double()
    run(torch.ones(3))
    with isolated():
        assert not counters
        run(torch.ones(3))
        assert counters["stats"]["unique_graphs"] == 1


def test_isolation_restores_outer_counters() -> None:
    with isolated():
        counters["stats"]["of another test"] = 7
        with isolated():
            compiled_double()(torch.ones(3))
            assert counters["stats"]["unique_graphs"] == 1
        assert counters == {"stats": {"of another test": 7}}


def test_isolation_forgets_a_failed_compiled_autograd_capture() -> None:
    def step(x: torch.Tensor) -> None:
        (x * 2).sum().backward()

    def compile_ids() -> set[str]:
        with watch() as watched:
            compiled_double()(torch.ones(3))
        return set(watched.executions)

    with isolated():
        expected = compile_ids()
    with isolated(), dynamo.patch(compiled_autograd=True):
        run = torch.compile(step, backend="eager")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(AutogradCompilerInstance, "wrap_fake", lambda *args: 1 / 0)
            with pytest.raises(NotImplementedError) as kept:
                run(torch.ones(3, requires_grad=True))
            assert compile_ids() != expected
    with isolated():
        assert compile_ids() == expected
    del kept


def test_isolation_keeps_user_callbacks() -> None:
    seen: list[str] = []
    start = on_compile_start(lambda args: seen.append("start"))
    end = on_compile_end(lambda args: seen.append("end"))
    try:
        with isolated():
            compiled_double()(torch.ones(3))
            assert seen == ["start", "end"]
        with isolated():
            compiled_double()(torch.ones(3))
        assert seen == ["start", "end"] * 2
    finally:
        callback_handler.remove_start_callback(start)
        callback_handler.remove_end_callback(end)


CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CACHES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("unset")
def test_cache_directories_are_unchanged_without_xdist() -> None:
    with isolated():
        assert not any(name in os.environ for name in CACHES)


@pytest.mark.usefixtures("unset")
def test_xdist_worker_has_its_own_cache_directories() -> None:
    with isolated("gw1"):
        places = [Path(os.environ[name]) for name in CACHES]
        assert [place.name for place in places] == ["gw1", "gw1"]
        assert places[0].parent == Path(tempfile.gettempdir(), f"torchinductor_{getpass.getuser()}")
        assert places[1].is_relative_to(places[0].parent)
        assert len(set(places)) == 2
        os.environ["TRITON_CACHE_DIR"] = "elsewhere"
    assert not any(name in os.environ for name in CACHES)


def test_worker_cache_directories_are_below_the_users(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "of inductor"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "of triton"))
    with isolated("gw1"):
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "of inductor" / "gw1")
        assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path / "of triton" / "gw1")
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "of inductor")
    assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path / "of triton")


@pytest.mark.usefixtures("unset")
def test_worker_keeps_other_variables_set_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "a test (setup)")
    with isolated("gw1"):
        monkeypatch.setenv("PYTEST_CURRENT_TEST", "a test (teardown)")
        monkeypatch.setenv("OF_A_FIXTURE_OF_THE_SESSION", "1")
    assert os.environ["PYTEST_CURRENT_TEST"] == "a test (teardown)"
    assert os.environ["OF_A_FIXTURE_OF_THE_SESSION"] == "1"


@pytest.mark.usefixtures("unset")
def test_cache_directories_of_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_before("2.13", "torch has no cache directory for such a user")

    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr(getpass, "getuser", nobody)
    with isolated("gw1"):
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"].endswith("gw1")


# -- the fixture -----------------------------------------------------------------------------------

SETTINGS = '''
"""Everything that a test can set about compilation, changed and read."""
import logging
import torch
import torch._dynamo
import torch._functorch.config as functorch
import torch._inductor.config as inductor
import torch.fx.experimental._config as fx

dynamo = torch._dynamo.config


def change():
    dynamo.recompile_limit = 3
    dynamo.compiled_autograd = True
    dynamo.reorderable_logging_functions.add(print)
    inductor.max_autotune = True
    inductor.post_grad_fusion_options["a"] = {}
    functorch.donated_buffer = not functorch.donated_buffer
    fx.use_duck_shape = False
    torch.compiler.set_stance("force_eager")
    torch._logging.set_logs(recompiles=True)
    logging.getLogger("torch.fx").setLevel(logging.CRITICAL)
    torch.set_float32_matmul_precision("medium")


def state():
    return (
        dynamo.recompile_limit, dynamo.compiled_autograd, set(dynamo.reorderable_logging_functions),
        inductor.max_autotune, dict(inductor.post_grad_fusion_options), functorch.donated_buffer,
        fx.use_duck_shape, torch._dynamo.eval_frame._stance.stance,
        set(torch._logging._internal.log_state.artifact_names),
        logging.getLogger("torch.fx").level, torch.get_float32_matmul_precision(),
    )


BEFORE = state()


def all_changed():
    return all(one != other for one, other in zip(state(), BEFORE))
'''

TESTS = """
import pytest
import torch
import unittest
import settings

def leak():
    settings.change()
    assert settings.all_changed()

def test_fixture(graph_capture): leak()
def test_after_fixture(): assert settings.state() == settings.BEFORE

@pytest.mark.torchgraph(min_graphs=0)
def test_marker(): leak()
def test_after_marker(): assert settings.state() == settings.BEFORE

def test_fails(graph_capture):
    leak()
    assert 0, "on purpose"
def test_after_fails(): assert settings.state() == settings.BEFORE

@pytest.mark.torchgraph(min_graphs=0)
class TestUnit(unittest.TestCase):
    def setUp(self): leak()
    def test_1(self): assert settings.all_changed()
    def test_2(self): assert settings.all_changed()
def test_after_unit(): assert settings.state() == settings.BEFORE

@pytest.fixture(scope="module")
def mine():
    settings.dynamo.recompile_limit = 5
    yield
    settings.dynamo.recompile_limit = 8

class TestWider:
    def test_found(self, mine, graph_capture):
        assert settings.dynamo.recompile_limit == 5
        leak()
    def test_kept(self, mine): assert settings.dynamo.recompile_limit == 5
"""

LEAKS = """
def test_leaks(): leak()
def test_after_leaks(): assert settings.all_changed()
"""


@pytest.fixture
def settings_project(pytester: pytest.Pytester, run: Run) -> Run:
    pytester.makepyfile(settings=SETTINGS)
    pytester.makepyfile(test_it=TESTS + LEAKS)
    return run


def test_isolation_applies_only_to_tests_that_use_the_plugin(
    settings_project: Run,
) -> None:
    result = settings_project()
    result.assert_outcomes(passed=12, failed=1)
    result.stdout.fnmatch_lines(["FAILED *::test_fails - AssertionError: on purpose*"])


def test_isolation_can_be_switched_off(pytester: pytest.Pytester, settings_project: Run) -> None:
    pytester.makeini("[pytest]\ntorchgraph_isolation = Off\n")
    result = settings_project("-k", "test_fixture or after_fixture")
    result.assert_outcomes(passed=1, failed=1, deselected=11)
    result.stdout.fnmatch_lines(["FAILED *::test_after_fixture - *"])


def test_invalid_isolation_value_is_a_usage_error(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeini("[pytest]\ntorchgraph_isolation = maybe\n")
    result = run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: torchgraph_isolation: must be on or off, got 'maybe'"])


LIMIT = """
import pytest
import torch

@torch.compile(backend="eager", dynamic=False)
def double(x):
    return x * 2

def sizes(first):
    for size in range(first, first + 6):
        double(torch.ones(size))

def test_first(graph_capture):
    with graph_capture.watch() as watched:
        sizes(2)
    watched.assert_graph_count(total=6)

@pytest.mark.torchgraph(max_recompiles=5, min_graphs=6)
def test_second():
    sizes(20)
"""


@pytest.mark.slow("runs pytest several times")
def test_isolated_tests_do_not_share_the_recompile_limit(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(LIMIT)
    run().assert_outcomes(passed=2)


def test_isolation_of_tests_with_ini_limits(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeini("[pytest]\ntorchgraph_max_recompiles = 0\n")
    pytester.makepyfile(
        """
        import torch

        @torch.compile(backend="eager")
        def double(x):
            return x * 2

        def test_three(): double(torch.ones(3))
        def test_four(): double(torch.ones(4))
        """
    )
    run().assert_outcomes(passed=2)


@pytest.mark.slow("several changes at once are in every run")
def test_each_xdist_worker_compiles_into_its_own_directories(
    pytester: pytest.Pytester, run: Run, tmp_path: Path
) -> None:
    pytester.makepyfile(
        """
        import os, pytest

        @pytest.mark.parametrize("n", range(8))
        def test_uses(n, graph_capture, worker_id):
            assert os.environ["TORCHINDUCTOR_CACHE_DIR"].endswith(os.path.join("base", worker_id))
            assert os.environ["TRITON_CACHE_DIR"].endswith(os.path.join("triton", worker_id))

        def test_does_not():
            assert os.environ["TORCHINDUCTOR_CACHE_DIR"].endswith("base")
            assert "TRITON_CACHE_DIR" not in os.environ
        """
    )
    base = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "base")}
    run("-p", "xdist", "-n", "2", **base).assert_outcomes(passed=9)
