"""Facts of a test in addition to its compilations: calls of torch.compile, and settings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import pytest_torchgraph
from pytest_torchgraph.audit import Entry, ReleaseSection, SuiteWatch, TestFacts
from pytest_torchgraph.audit.judge import BaselineComparison
from pytest_torchgraph.audit.read import NEVER_CALLED, facts_of_test
from pytest_torchgraph.convert import is_own_file
from pytest_torchgraph.torch_private import configs_restored

Test = Callable[[], object]
Facts = Callable[[Test], TestFacts]


@pytest.fixture
def suite() -> Iterator[SuiteWatch]:
    torch._dynamo.reset()
    watched = SuiteWatch()
    yield watched
    watched.close()
    assert watched.broken is None


@pytest.fixture
def facts(suite: SuiteWatch) -> Facts:
    def run(test: Test) -> TestFacts:
        suite.begin()
        test()
        seen = suite.end("test")
        return TestFacts() if seen is None else facts_of_test(seen)

    return run


@pytest.fixture
def config() -> Iterator[Any]:
    """Dynamo's configuration, restored after the test."""
    with configs_restored():
        yield torch._dynamo.config


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def line_of(test: Test, plus: int = 1) -> int:
    return test.__code__.co_firstlineno + plus  # type: ignore[attr-defined, no-any-return]


# -- calls of torch.compile -----------------------------------------------------------------------


def test_compiled_but_uncalled_function_is_reported_with_its_line(facts: Facts) -> None:
    def test() -> None:
        torch.compile(double, backend="eager")
        double(torch.ones(3))

    recorded = facts(test)
    (cause,) = recorded.causes
    assert (cause.kind, cause.function, cause.text) == ("nothing", "test", NEVER_CALLED)
    assert cause.file.endswith("test_audit_seen.py")
    assert cause.line == line_of(test)
    assert recorded.uses_compile
    assert not recorded.compiles


def test_function_compiled_and_run_in_a_capture_is_called(facts: Facts) -> None:
    def test() -> None:
        step = torch.compile(double, backend="eager")
        pytest_torchgraph.capture(step, torch.ones(3))

    assert facts(test).causes == ()


@pytest.mark.parametrize(
    "compile_it",
    [
        lambda: torch.nn.Linear(3, 3).compile(backend="eager"),
        lambda: torch.compile(backend="eager")(double),
        lambda: torch.compiler.compile(double, backend="eager"),
        lambda: torch.compile(torch.nn.Linear(3, 3), backend="eager"),
        lambda: torch._dynamo.optimize("eager")(double),
    ],
)
def test_each_way_to_compile_counts(facts: Facts, compile_it: Test) -> None:
    (cause,) = facts(compile_it).causes
    assert (cause.text, cause.line) == (NEVER_CALLED, line_of(compile_it, 0))


def test_function_called_in_the_same_test_is_not_a_cause(facts: Facts) -> None:
    inner = torch.compile(double, backend="eager")
    assert facts(lambda: torch.compile(lambda x: inner(x) + 1, backend="eager")(torch.ones(3)))
    recorded = facts(lambda: torch.compile(double, backend="eager")(torch.ones(3)))
    assert (recorded.causes, recorded.compiles) == ((), True)


def test_torchs_own_compile_calls_are_not_attributed_to_the_test(facts: Facts) -> None:
    def test() -> None:
        torch.export.export(torch.nn.Linear(3, 3), (torch.ones(2, 3),))

    assert not facts(test).uses_compile


def test_decorator_in_an_imported_module_is_not_attributed_to_the_test(
    facts: Facts, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(f"{tmp_path}/decorated.py", "w") as file:
        file.write("import torch\n@torch.compile(backend='eager')\ndef f(x):\n    return x.sin()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not facts(lambda: __import__("decorated")).uses_compile
    sys.modules.pop("decorated")


def test_code_of_a_wider_fixture_is_the_tests_only_if_it_runs(
    suite: SuiteWatch, facts: Facts
) -> None:
    def test(*args: torch.Tensor) -> None:
        with suite.wider_fixture("test"):
            compiled = torch.compile(double, backend="eager")
            for arg in args:
                compiled(arg)

    recorded = facts(test)
    assert not recorded.uses_compile
    assert not recorded.shared
    recorded = facts(lambda: test(torch.ones(3)))
    assert recorded.shared
    assert recorded.graphs == 1


def test_suite_watch_restores_torchs_class() -> None:
    context = torch._dynamo.eval_frame.OptimizeContext
    before = context.__init__
    suite = SuiteWatch()
    suite.begin()
    assert context.__init__ is not before
    suite.close()
    assert context.__init__ is before


def test_call_after_a_graph_break_does_not_compile_the_plugin(suite: SuiteWatch) -> None:
    def breaking(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        torch.compile(double, backend="eager")
        return x.sin()

    suite.begin()
    torch.compile(breaking, backend="eager")(torch.ones(3))
    seen = suite.end("test")
    assert seen is not None
    assert seen.record.compiled
    assert not [
        compilation.file for compilation in seen.record.compiled if is_own_file(compilation.file)
    ]


# -- nested graph breaks --------------------------------------------------------------------------


def broken(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos()


def calls_it_twice(x: torch.Tensor) -> torch.Tensor:
    return broken(x + 1) * broken(x * 2)


def test_nested_graph_breaks_setting_is_not_a_regression(facts: Facts, config: Any) -> None:
    def both(setting: bool) -> TestFacts:
        torch._dynamo.reset()
        config.nested_graph_breaks = setting
        return facts(lambda: torch.compile(calls_it_twice, backend="eager")(torch.ones(3)))

    off, on = both(False), both(True)
    assert (off.nested, on.nested) == (False, True)
    assert off.ops != on.ops
    for before, after in ((off, on), (on, off)):
        verdict = BaselineComparison(
            ReleaseSection({"test": Entry.of(before)}), {"test": after}, {"test"}
        ).verdict()
        assert (verdict.worse, verdict.better) == ([], [])


# -- settings -------------------------------------------------------------------------------------


def test_unrestored_setting_is_named(suite: SuiteWatch, facts: Facts, config: Any) -> None:
    assert not torch._dynamo.config.suppress_errors
    facts(lambda: setattr(config, "suppress_errors", True))
    facts(lambda: setattr(config, "suppress_errors", True))
    (left,) = suite.settings_left()
    assert left == ("torch._dynamo.config.suppress_errors", "False", "True", "test")
    facts(lambda: setattr(config, "suppress_errors", False))
    assert suite.settings_left() == []


@pytest.mark.slow("compiles with inductor; another setting is in every run")
@pytest.mark.filterwarnings("ignore:::torch")
def test_restored_setting_is_not_named(suite: SuiteWatch, facts: Facts) -> None:
    def test() -> None:
        with torch._dynamo.config.patch(suppress_errors=True):
            torch.compile(double, backend="inductor")(torch.ones(3))

    facts(test)
    assert suite.settings_left() == []


def test_adding_to_a_collection_is_a_change_and_reading_is_not(
    suite: SuiteWatch, facts: Facts, config: Any
) -> None:
    name = "reorderable_logging_functions"
    facts(lambda: getattr(config, name))
    assert suite.settings_left() == []
    facts(lambda: getattr(config, name).add(print))
    assert [setting.name for setting in suite.settings_left()] == [f"torch._dynamo.config.{name}"]


def test_setting_of_a_wider_fixture_is_not_attributed_to_the_test(
    suite: SuiteWatch, facts: Facts, config: Any
) -> None:
    def first() -> None:
        with suite.wider_fixture("test"):
            config.suppress_errors = True

    facts(first)
    assert suite.settings_left() == []
    facts(lambda: setattr(config, "suppress_errors", False))  # by the teardown of the fixture
    assert suite.settings_left() == []


def test_deleted_setting_is_named(suite: SuiteWatch, facts: Facts, config: Any) -> None:
    facts(lambda: delattr(config, "suppress_errors"))
    assert [tuple(setting) for setting in suite.settings_left()] == [
        ("torch._dynamo.config.suppress_errors", "False", "gone", "test")
    ]
