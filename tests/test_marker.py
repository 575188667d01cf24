"""`@pytest.mark.torchgraph` and its ini twins: checks on all compilations of a test."""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from importlib.metadata import version

import pytest
from packaging.version import Version
from projects import Run

from pytest_torchgraph.settings.limits import Limits
from pytest_torchgraph.settings.options import NAMES, SIGNATURE

NET = '''
"""The code that the tests inside the tests compile."""
import torch


def double(x):
    return x * 2


def broken(x):
    x = x + 1
    print("hi")
    return x * 2


def twice_broken(x):
    x = x + 1
    print("hi")
    x = x * 3
    torch._dynamo.graph_break()
    return x * 2


def run(function, *sizes, **how):
    compiled = torch.compile(function, backend="eager", **how)
    for size in sizes or (3,):
        compiled(torch.ones(size))
'''

HEADING = re.compile(r"_{3,} (?:ERROR at \w+ of |ERROR collecting )?(.+?) _{3,}\Z")


def failures(result: pytest.RunResult) -> dict[str, str]:
    """Return the text of each failed test, by name, without its output."""
    messages: dict[str, list[str]] = {}
    name = ""
    for line in result.outlines:
        match = HEADING.match(line)
        if match:
            name = match[1]
        elif line.startswith(("===", "---")):
            name = ""
        elif name:
            messages.setdefault(name, []).append(line)
    return {name: "\n".join(lines) for name, lines in messages.items()}


@pytest.fixture
def net(pytester: pytest.Pytester, run: Run) -> Run:
    pytester.makepyfile(net=NET)
    return run


@pytest.mark.slow("runs pytest several times")
def test_marker_is_registered_and_documented(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.torchgraph(min_graphs=0)
        def test_x(): pass
        """
    )
    run("--strict-markers", "-W", "error").assert_outcomes(passed=1)
    run("--markers").stdout.fnmatch_lines(
        [
            "@pytest.mark.torchgraph(min_graphs=1, max_graphs=None, max_graph_breaks=0, "
            "max_recompiles=0, within=None, allow=()): watch what the test compiles, *"
        ]
    )


@pytest.mark.slow("runs pytest several times")
def test_each_argument_passes_and_fails(net: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_net="""
        import pytest
        from net import *

        mark = pytest.mark.torchgraph

        @mark
        class TestPass:
            def test_plain(self): run(double, 3, 3)
            @mark(min_graphs=2)
            def test_two(self): run(double), run(lambda x: x + 1)
            @mark(min_graphs=0)
            def test_none(self): pass
            @mark(max_graphs=1)
            def test_one(self): run(double)
            @mark(max_graph_breaks=1)
            def test_a_break(self): run(broken)
            @mark(max_graph_breaks=None)
            def test_breaks(self): run(twice_broken)
            @mark(max_recompiles=1)
            def test_a_recompile(self): run(double, 3, 4, 5)
            @mark(max_recompiles=None)
            def test_recompiles(self): run(double, 3, 4, 5, 6, dynamic=False)
            @mark(allow="builtin operator")
            def test_allowed(self): run(broken)
            @mark(allow=["^Failed to trace builtin", "graph_break"])
            def test_both_allowed(self): run(twice_broken)
            @mark(within="test_net.py")
            def test_elsewhere(self): run(lambda x: broken(x) + 1)
            @mark(within=["json", "test_net.py"], max_recompiles=0)
            def test_recompiled_elsewhere(self): run(double, 3, 4), run(lambda x: x + 1)

        @mark
        class TestFail:
            def test_nothing(self): double(torch.ones(3))
            @mark(min_graphs=2)
            def test_one_of_two(self): run(double)
            @mark(max_graphs=1)
            def test_two_of_one(self): run(double), run(lambda x: x + 1)
            def test_a_break(self): run(broken)
            @mark(max_graph_breaks=1)
            def test_two_breaks(self): run(twice_broken)
            def test_a_recompile(self): run(double, 3, 4)
            @mark(max_recompiles=1)
            def test_two_recompiles(self): run(double, 3, 4, 5, dynamic=False)
            @mark(allow="graph_break")
            def test_another_allowed(self): run(twice_broken)
            @mark(within="net")
            def test_here(self): run(broken, 3, 4)
            @mark(max_graph_breaks=None, max_recompiles=None)
            def test_limit(self): run(double, *range(2, 15), dynamic=False)
            @mark(max_graphs=1)
            def test_everything(self): run(twice_broken, 3, 4)
            @mark(within="json")
            def test_nowhere(self): run(double)
            @mark(within="json", max_graph_breaks=None)
            def test_nowhere_without_a_limit(self): run(double)
        """
    )
    result = net()
    result.assert_outcomes(passed=12, failed=13)
    messages = {name.removeprefix("TestFail."): text for name, text in failures(result).items()}
    expected = {
        "test_nothing": [
            "no graph was compiled:",
            "  no compiled function or module was called inside the watch. *",
            "required by @pytest.mark.torchgraph()",
        ],
        "test_one_of_two": [
            "graphs: expected at least 2, found 1",
            "required by @pytest.mark.torchgraph(min_graphs=2)",
        ],
        "test_two_of_one": [
            "graphs: expected at most 1, found 2:",
            "  forward_0: forward, 1 ops, from net.py:* in double: return x * 2",
            "  forward_1: forward, 1 ops, from test_net.py:* in <lambda>: *",
        ],
        "test_a_break": [
            "graph breaks: expected 0, found 1",
            '  1. net.py:11 in broken: print("hi")',
            "     Failed to trace builtin operator",
            "     from test_net.py:* in test_a_break: *",
        ],
        "test_two_breaks": [
            "graph breaks: expected at most 1, found 2",
            '  1. net.py:17 in twice_broken: print("hi")',
            "  2. net.py:19 in twice_broken: torch._dynamo.graph_break()",
        ],
        "test_a_recompile": [
            "recompilations: expected 0, found 1",
            "  0/1 double (net.py:5): argument x: size of dim 0 was 3, is 4; the size became *",
        ],
        "test_two_recompiles": [
            "recompilations: expected at most 1, found 2",
            "  0/1 *",
            "  0/2 *",
        ],
        "test_another_allowed": [
            "graph breaks: expected 0, found 1 (and 1 that allow= permits)",
            "  1. *",
        ],
        "test_here": ["graph breaks: expected 0, found 1", "recompilations: expected 0, found *"],
        "test_limit": ["recompile limit reached, so later calls to double run eagerly (*"],
        "test_everything": [
            "graphs: expected at most 1, found *",
            "graph breaks: expected 0, found 2",
            "recompilations: expected 0, found *",
            "required by @pytest.mark.torchgraph(max_graphs=1)",
        ],
        "test_nowhere": [
            "no code within=('json',) was compiled. Compiled code is in: net.py",
            "required by @pytest.mark.torchgraph(within='json')",
        ],
        "test_nowhere_without_a_limit": ["no code within=('json',) was compiled. Compiled *"],
    }
    assert messages.keys() == expected.keys()
    for name, lines in expected.items():
        pytest.LineMatcher(messages[name].splitlines()).fnmatch_lines(lines)
        assert "Traceback" not in messages[name]
    result.stdout.fnmatch_lines(["FAILED *test_a_break - Failed: graph breaks*"])


@pytest.mark.slow("runs pytest several times")
def test_closest_marker_applies_for_each_argument(net: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_net="""
        import pytest, unittest
        from net import *

        mark = pytest.mark.torchgraph
        pytestmark = mark(max_graphs=1)

        def test_module():
            run(double)
        def test_module_fails():
            run(double), run(lambda x: x + 1)
        @mark(max_graph_breaks=1)
        def test_of_both_fails():
            run(broken)  # two graphs

        @mark(max_graphs=2)
        class TestClass:
            def test_class(self): run(double), run(lambda x: x + 1)
            def test_class_fails(self): run(broken)
            @mark(max_graph_breaks=1)
            def test_method(self): run(broken)

        @mark(max_graph_breaks=1)
        class TestInherits(TestClass):
            def test_class_fails(self): run(broken)

        @mark(max_graphs=1)
        class TestOverrides(TestClass):
            test_method = test_class_fails = None
            def test_class(self): run(double)
            def test_overrides_fails(self): run(double), run(lambda x: x + 1)

        @mark(max_graph_breaks=1, max_graphs=2)
        @pytest.mark.parametrize(
            "function", [broken, pytest.param(broken, marks=mark(max_graph_breaks=0))],
            ids=["as_function", "parameter_fails"],
        )
        def test_parameter(function): run(function)

        @mark(max_graphs=2)
        class Unit(unittest.TestCase):
            def test_fails(self): run(broken)
            @mark(max_graph_breaks=1)
            def test_allowed(self): run(broken)
        """
    )
    result = net()
    assert sorted(failures(result)) == [
        "TestClass.test_class_fails",
        "TestOverrides.test_overrides_fails",
        "Unit.test_fails",
        "test_module_fails",
        "test_of_both_fails",
        "test_parameter[parameter_fails]",
    ]
    result.assert_outcomes(passed=9, failed=6)
    message = failures(result)["test_of_both_fails"]
    assert message.startswith("graphs: expected at most 1, found 2:\n  forward_0: ")
    assert message.endswith("required by @pytest.mark.torchgraph(max_graph_breaks=1, max_graphs=1)")


@pytest.mark.slow("runs pytest several times")
def test_marker_keeps_other_outcomes(net: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_net="""
        import pytest, unittest
        from net import *

        pytestmark = pytest.mark.torchgraph

        def test_own():
            run(broken)
            assert 0, "its own"

        def test_skip():
            run(broken)
            pytest.skip("later")

        def test_xfail():
            run(broken)
            pytest.xfail("known")

        @pytest.mark.xfail(strict=True)
        def test_expected():
            run(broken)

        @pytest.mark.xfail(strict=True)
        def test_unexpected():
            run(double)

        @pytest.mark.skip
        def test_never():
            pass

        class Unit(unittest.TestCase):
            def test_own(self):
                run(broken)
                self.fail("its own, too")
            def test_error(self):
                raise RuntimeError("raised")
            def test_skip(self):
                self.skipTest("later")
            @unittest.expectedFailure
            def test_expected(self):
                run(broken)
                self.fail("as expected")
            def test_nothing(self):
                pass
        """
    )
    result = net()
    result.assert_outcomes(failed=5, skipped=3, xfailed=3)
    messages = failures(result)
    assert sorted(messages) == [
        "Unit.test_error",
        "Unit.test_nothing",
        "Unit.test_own",
        "test_own",
        "test_unexpected",
    ]
    assert "AssertionError: its own" in messages["test_own"]
    assert "AssertionError: its own, too" in messages["Unit.test_own"]
    assert "RuntimeError: raised" in messages["Unit.test_error"]
    assert "XPASS(strict)" in messages["test_unexpected"]
    assert messages["Unit.test_nothing"].startswith("no graph was compiled:")
    owns = ["test_own", "Unit.test_own", "Unit.test_error"]
    assert not any("required by" in messages[name] for name in owns)


# -- the ini file ----------------------------------------------------------------------------------


@pytest.mark.slow("runs pytest in a new process")
@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n2")], ids=["one", "n2"])
def test_ini_limits_that_checked_nothing_are_reported(
    net: Run, pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    pytester.makeini(
        "[pytest]\ntorchgraph_max_graph_breaks = 0\ntorchgraph_max_recompiles = none\n"
    )
    pytester.makepyfile(
        test_net="""
        from net import *

        def test_eager(): broken(torch.ones(3))
        def test_nothing(): pass
        def test_double(): run(double)
        """
    )
    said = (
        "no compiled code ran in 2 tests: torchgraph_max_graph_breaks=0 in the ini file "
        "checked nothing. Call a compiled function in a test, or remove the limits"
    )
    words = (*workers, "--deselect", "test_net.py::test_double")
    result = net(*words)
    result.assert_outcomes(passed=2)
    assert said in result.outlines
    one = net(*workers, "-k", "eager")
    assert any(line.startswith("no compiled code ran in 1 test: ") for line in one.outlines)
    for silent in (net(*workers), net(*words, "-o", "torchgraph_max_graph_breaks=none")):
        assert "no compiled code ran" not in silent.stdout.str()


@pytest.mark.slow(
    "further cases; a few are in every run",
    unless=["max_graphs = 'many'-must be a number or none, got 'many'"],
)
@pytest.mark.parametrize(
    ("toml", "why"),
    [
        ("allow = ['a list', 'of several']", ""),
        ("max_graphs = 'many'", "must be a number or none, got 'many'"),
    ],
)
def test_invalid_ini_limit_is_a_usage_error(
    net: Run, pytester: pytest.Pytester, toml: str, why: str
) -> None:
    pytester.makefile(".toml", pyproject=f"[tool.pytest.ini_options]\ntorchgraph_{toml}\n")
    pytester.makepyfile(test_net="def test_x(): pass")
    result = net("--collect-only")
    assert result.ret == (pytest.ExitCode.USAGE_ERROR if why else pytest.ExitCode.OK)
    if why:
        name = toml.partition(" ")[0]
        result.stderr.fnmatch_lines([f"ERROR: torchgraph_{name} in the ini file: {why}"])


@pytest.mark.slow("runs pytest several times")
def test_within_of_a_marker_is_relative_to_the_root(net: Run, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\n")
    pytester.mkdir("sub")
    pytester.makepyfile(
        test_net="""
        import os, pytest
        from net import *

        @pytest.mark.torchgraph(within="net.py")
        def test_here(monkeypatch, tmp_path):
            os.chdir(tmp_path)
            run(broken)
        """
    )
    result = net("--rootdir", pytester.path, pytester.path / "test_net.py")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["graph breaks: expected 0, found 1"])
    result.stdout.fnmatch_lines(["required by @pytest.mark.torchgraph(within='net.py')"])
    pytester.makeini("[pytest]\npythonpath = .\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(pytester.path / "sub")
        result = net("..")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["graph breaks: expected 0, found 1"])


# -- limits and the records that they need ---------------------------------------------------------

ONE_EACH = """
import pytest
from net import *

def test_nothing(): pass
def test_graphs(): run(double), run(lambda x: x + 1)
def test_breaks(): run(broken)
def test_recompiles(): run(double, 3, 4)
def test_limit(): run(double, *range(2, 15), dynamic=False)
"""
GRAPHS = ["breaks", "graphs", "limit", "recompiles"]

# Every limit requires that all code ran compiled, which is not the case after the recompile limit.
ALONE = {
    "max_graphs = 1": (GRAPHS, "torchgraph_max_graphs=1"),
    "max_graph_breaks = 0": (["breaks", "limit"], "torchgraph_max_graph_breaks=0"),
    "max_recompiles = 0": (["limit", "recompiles"], "torchgraph_max_recompiles=0"),
    "max_recompiles = 90": (["limit"], "torchgraph_max_recompiles=90"),
    "max_recompiles = None": ([], ""),
    "allow = a break": ([], ""),
    "max_graph_breaks = 0\ntorchgraph_within = json": (["limit"], "torchgraph_max_graph_breaks=0"),
    "max_graph_breaks = 0\ntorchgraph_allow = builtin": (
        ["limit"],
        "torchgraph_max_graph_breaks=0",
    ),
}


def asked(text: str) -> str:
    """Return the origin of a limit as a failure names it. A picture may be named after it."""
    (line,) = re.findall(r"^required by (.+)$", text, re.MULTILINE)
    return str(line)


@pytest.mark.slow("runs pytest several times")
@pytest.mark.parametrize("ini", ALONE)
def test_ini_file_limits_only_what_it_names(net: Run, pytester: pytest.Pytester, ini: str) -> None:
    failed, asked_by = ALONE[ini]
    pytester.makeini(f"[pytest]\ntorchgraph_{ini}\n")
    pytester.makepyfile(test_net=ONE_EACH)
    result = net()
    messages = failures(result)
    assert sorted(messages) == [f"test_{name}" for name in failed]
    assert [asked(text) for text in messages.values()] == [asked_by] * len(failed)
    result.assert_outcomes(passed=5 - len(failed), failed=len(failed))


MARKED = """
import pytest
from net import *

mark = pytest.mark.torchgraph

@mark
def test_defaults_nothing(): pass
@mark
def test_defaults_breaks(): run(broken)
@mark
def test_defaults_recompiles(): run(double, 3, 4)
@mark(max_graphs=None)
def test_no_graphs_limit(): run(double), run(lambda x: x + 1)
@mark(max_graphs=1)
def test_own_graphs(): run(double), run(lambda x: x + 1)
@mark(max_graph_breaks=None)
def test_no_breaks_limit(): run(broken)
@mark(max_recompiles=None)
def test_no_recompiles_limit(): run(double, 3, 4)
@mark
def test_both(): run(twice_broken, 3, 4)
"""
MARK = "@pytest.mark.torchgraph()"
OWN = "@pytest.mark.torchgraph(max_graphs=1)"

TOGETHER: dict[str, dict[str, str]] = {
    "": {
        "defaults_nothing": MARK,
        "defaults_breaks": MARK,
        "defaults_recompiles": MARK,
        "own_graphs": OWN,
        "both": MARK,
    },
    "max_recompiles = 0": {
        "defaults_nothing": MARK,
        "defaults_breaks": MARK,
        "defaults_recompiles": "torchgraph_max_recompiles=0",
        "own_graphs": OWN,
        "both": f"{MARK} and torchgraph_max_recompiles=0",
    },
    "max_graph_breaks = None\ntorchgraph_max_recompiles = None\ntorchgraph_max_graphs = 1": {
        "defaults_nothing": MARK,
        "defaults_breaks": "torchgraph_max_graphs=1",
        "defaults_recompiles": "torchgraph_max_graphs=1",
        "own_graphs": OWN,
        "no_breaks_limit": "torchgraph_max_graphs=1",
        "no_recompiles_limit": "torchgraph_max_graphs=1",
        "both": "torchgraph_max_graphs=1",
    },
}


@pytest.mark.slow("two settings are in every run")
@pytest.mark.parametrize("ini", TOGETHER, ids=lambda ini: ini or "no ini")
def test_marker_combines_its_arguments_with_defaults_and_ini_limits(
    net: Run, pytester: pytest.Pytester, ini: str
) -> None:
    pytester.makeini(f"[pytest]\ntorchgraph_{ini}\n" if ini else "[pytest]\n")
    pytester.makepyfile(test_net=MARKED)
    messages = failures(net())
    assert {name.removeprefix("test_"): asked(text) for name, text in messages.items()} == TOGETHER[
        ini
    ]


# -- arguments that mean nothing -------------------------------------------------------------------

WRONG = {
    "3": "takes keyword arguments only, got (3,): write torchgraph(min_graphs=1, *)",
    "max_breaks=1": "has no argument 'max_breaks' (did you mean 'max_graph_breaks'?): "
    "write torchgraph(min_graphs=1, *)",
    "reset=True": "has no argument 'reset': write torchgraph(min_graphs=1, *)",
    "max_graphs='1'": "max_graphs='1' must be an int of at least 0, or None",
    "max_recompiles=True": "max_recompiles=True must be an int of at least 0, or None",
    "max_graph_breaks=-1": "max_graph_breaks=-1 must be an int of at least 0, or None",
    "max_graph_breaks=1.0": "max_graph_breaks=1.0 must be an int of at least 0, or None",
    "min_graphs=None": "min_graphs=None must be an int of at least 0",
    "allow='('": "allow='(' is not a valid regular expression: *",
    "allow=''": "allow='' matches everything, so nothing would be checked",
    "allow='.*'": "allow='.[*]' matches everything, so nothing would be checked",
    "allow=3": "allow=3 must be a str with a regular expression, or a sequence of regular "
    "expressions",
    "allow=[3]": "allow=[[]3[]] must be a str with a regular expression, or a sequence of regular "
    "expressions",
    "within='jsno'": "within='jsno' is neither an existing path nor an importable package",
    "within=[]": "within=[[][]] is empty: give a path or a package",
    "within=''": "within='' is empty: give a path or a package",
    "within=['json', 'jsno']": "within='jsno' is neither an existing path nor *",
    "min_graphs=2, max_graphs=1": "max_graphs=1 is less than min_graphs=2",
    "min_graphs=0, max_graph_breaks=None, max_recompiles=None": "(min_graphs=0, "
    "max_graph_breaks=None, max_recompiles=None) checks nothing: give a limit, as in *",
}


def test_wrong_marker_arguments_are_errors_of_their_tests(
    pytester: pytest.Pytester, run: Run
) -> None:
    wrong = [
        f"""
        @pytest.mark.torchgraph({arguments})
        def test_{number:02}(): raise SystemError("it ran")
        """
        for number, arguments in enumerate(WRONG)
    ]
    pytester.makepyfile(
        test_wrong="import pytest, unittest\n"
        + "".join(map(textwrap.dedent, wrong))
        + textwrap.dedent(
            """
            @pytest.mark.torchgraph(max_graphs=-1)
            class Unit(unittest.TestCase):
                def test_case(self): raise SystemError("it ran")

            def test_right(): pass
            """
        )
    )
    result = run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, errors=len(WRONG) + 1)
    expected = [*WRONG.values(), "max_graphs=-1 must be an int of at least 0, or None"]
    tests = [*(f"test_{number:02}" for number in range(len(WRONG))), "Unit::test_case"]
    for test, why in zip(tests, expected, strict=True):
        about = "" if " is less than " in why else "@pytest.mark.torchgraph*"
        result.stdout.fnmatch_lines([f"test_wrong.py::{test}: {about}{why}"])
    assert "INTERNALERROR" not in result.stdout.str()
    assert "marker.py" not in result.stdout.str()
    assert "During handling" not in result.stdout.str()


@pytest.mark.slow("runs pytest several times")
def test_markers_added_later_are_checked(net: Run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        def pytest_collection_modifyitems(items):
            for item in items:
                if "late" in item.name:
                    item.add_marker(pytest.mark.torchgraph)
                if "wrong" in item.name:
                    item.add_marker(pytest.mark.torchgraph(3))
        """
    )
    pytester.makepyfile(
        test_net="""
        import pytest
        from net import *

        @pytest.fixture
        def checked(request): request.applymarker(pytest.mark.torchgraph(max_graph_breaks=1))

        def test_late(): pass
        def test_by_fixture(checked): run(twice_broken)
        def test_wrong(): pass
        """
    )
    result = net()
    result.assert_outcomes(failed=2, errors=1)
    messages = failures(result)
    assert messages["test_late"].startswith("no graph was compiled:")
    assert messages["test_by_fixture"].startswith("graph breaks: expected at most 1, found 2")
    assert (
        "test_wrong: @pytest.mark.torchgraph takes keyword arguments only" in messages["test_wrong"]
    )
    assert "marker.py" not in messages["test_wrong"]


# -- never vacuous ---------------------------------------------------------------------------------

WAYS = '''
"""The ways of compiling nothing, each as what is done before and what the test does."""
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

ONES = torch.ones(3, 4)


def double(x):
    return x * 2


class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(4, 4)

    def forward(self, x):
        return self.lstm(x)[0]


def routed(x):
    out = x
    for expert in range(2):
        rows = (x.sum(1) > expert).nonzero()
        out = out + x[rows].sum()
    return out


def calls_disabled(x):
    return torch.compiler.disable(double)(x)


def failing(graph, inputs):
    raise ValueError("this backend fails")


def compiled(function=double, **how):
    return torch.compile(function, **{"backend": "eager", **how})


@pytest.fixture
def cached():
    run = compiled()
    run(ONES)
    return run


@pytest.fixture
def at_limit():
    run = compiled(dynamic=False)
    for size in range(2, 15):
        run(torch.ones(size))
    return run


@pytest.fixture
def marked_skipped():
    run = compiled()
    with FlopCounterMode(display=False):
        run(ONES)
    return run


pytestmark = pytest.mark.torchgraph


def test_nothing_called(): pass
def test_only_decorated(): compiled()
def test_lstm(): compiled(Tagger())(torch.ones(2, 3, 4))
def test_nonzero_loop(): compiled(routed)(ONES)
def test_mode():
    with FlopCounterMode(display=False):
        compiled()(ONES)
def test_disabled_inside(): compiled(calls_disabled)(ONES)
def test_stance():
    with torch.compiler.set_stance("force_eager"):
        compiled()(ONES)
def test_config(monkeypatch):
    monkeypatch.setattr(torch._dynamo.config, "disable", True)
    compiled()(ONES)
def test_limit_before(at_limit): at_limit(torch.ones(50))
def test_suppressed():
    torch._dynamo.config.suppress_errors = True
    compiled(backend=failing)(ONES)
def test_no_tensor(): compiled(lambda n: n + 1)(3)
def test_cached(cached): cached(ONES)
def test_marked_skipped(marked_skipped): marked_skipped(ONES)
def test_of_torch():
    linear = torch.nn.Linear(4, 4)
    linear.compile(backend="eager")
    linear(ONES)


@pytest.mark.torchgraph(min_graphs=0)
class TestNoneNeeded:
    def test_nothing_called(self): pass
    def test_cached(self, cached): cached(ONES)
    def test_mode(self):
        with FlopCounterMode(display=False):
            compiled()(ONES)
    def test_suppressed(self):
        torch._dynamo.config.suppress_errors = True
        compiled(backend=failing)(ONES)
    def test_one_of_two(self):
        compiled()(ONES)
        with FlopCounterMode(display=False):
            compiled()(ONES)
'''

CAUSES = {
    "nothing_called": "no compiled function or module was called",
    "only_decorated": "no compiled function or module was called",
    "lstm": "RNN, GRU, or LSTM",
    "nonzero_loop": "Dynamic shape operator",
    "mode": "FlopCounterMode is active",
    "disabled_inside": "Skip calling `torch.compiler.disable()`d function",
    "stance": "torch.compiler.set_stance('force_eager') is active",
    "config": "torch.compile is disabled by torch._dynamo.config.disable",
    "limit_before": "the recompile limit was reached before",
    "suppressed": "this backend fails",
    "no_tensor": "<lambda>",
    "cached": "served from Dynamo's cache",
    "marked_skipped": "marked as skipped earlier in this process",
    "of_torch": "Dynamo does not compile a module of torch by itself",
}


@pytest.mark.slow("runs pytest several times")
def test_marked_test_without_compilation_fails_with_the_cause(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(test_ways=WAYS)
    result = run()
    messages = failures(result)
    causes = dict(CAUSES)
    if Version(version("torch").partition("+")[0]) >= Version("2.15"):
        del causes["marked_skipped"], causes["of_torch"]  # both compile in this release
    assert {name for name in messages if "." not in name} == {f"test_{name}" for name in causes}
    for name, cause in causes.items():
        text = messages[f"test_{name}"]
        assert text.startswith("no graph was compiled:"), text
        assert cause in text, text
    assert {name.partition(".")[2] for name in messages if "." in name} == {
        "test_cached",  # its graphs and breaks are from before the watch
        "test_mode",
        "test_suppressed",
        "test_one_of_two",
    }
    result.assert_outcomes(passed=1 + len(CAUSES) - len(causes), failed=len(causes) + 4)
    assert "these calls ran eagerly" in messages["TestNoneNeeded.test_one_of_two"]


# -- together with the rest ------------------------------------------------------------------------


@pytest.mark.slow("via dispatch each case is in every run")
def test_captures_and_fixtures_of_a_marked_test_are_not_checked(
    net: Run, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        test_net="""
        import pytest
        from net import *
        from pytest_torchgraph import CaptureError

        pytestmark = pytest.mark.torchgraph(max_graphs=1)

        @pytest.mark.parametrize("via", ["aot", "dynamo", "inductor", "compiled_autograd"])
        def test_captures(graph_capture, via):
            x = torch.ones(3, requires_grad=True)
            run(double)
            if via == "compiled_autograd":
                assert graph_capture(double, x, via=via).backward.nodes
            else:
                assert graph_capture(broken, x, via=via).breaks

        @pytest.fixture
        def others():
            run(broken)
            yield
            run(twice_broken, 3, 4)

        def test_compilations_of_fixtures(others):
            run(double)

        def test_captures_alone(graph_capture):
            graph_capture(double, torch.ones(3))

        def test_watches(graph_capture):
            with graph_capture.watch() as watched:
                run(double)
            watched.assert_graph_count(total=1)

        def test_captures_in_a_watch(graph_capture):
            run(double)
            with graph_capture.watch():
                with pytest.raises(CaptureError, match="capture before or after the watch"):
                    graph_capture(double, torch.ones(3))
        """
    )
    result = net()
    assert list(failures(result)) == ["test_captures_alone"]
    result.assert_outcomes(passed=7, failed=1)


@pytest.mark.slow("runs pytest in a new process")
def test_rewritten_assert_is_named_as_the_cause(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest, torch

        @torch.compile(backend="eager")
        def checked(x):
            assert x.sum() > -1e9
            return x + 1

        @pytest.mark.torchgraph
        def test_checked():
            checked(torch.ones(3))
        """
    )
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "  1. *.py:5 in checked: assert x.sum() > -1e9",
            "     hint: pytest rewrote this assert, *run with --assert=plain",
        ]
    )
    run("--assert=plain").assert_outcomes(passed=1)


@pytest.mark.slow("the same without workers is in every run")
def test_marker_under_xdist_gives_the_same_messages(net: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_net="""
        import pytest
        from net import *

        @pytest.mark.torchgraph
        @pytest.mark.parametrize("function", [double, broken])
        def test_x(function): run(function)
        """
    )
    alone, spread = net(), net("-p", "xdist", "-n", "2")
    for result in (alone, spread):
        result.assert_outcomes(passed=1, failed=1)
    [one], [other] = (failures(result).values() for result in (alone, spread))
    assert one.startswith("graph breaks: expected 0, found 1")
    assert other.endswith(one)


@pytest.mark.slow("runs pytest several times")
def test_failure_report_omits_torchs_trace(net: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_net="""
        import pytest
        from net import *

        @pytest.mark.torchgraph
        def test_x():
            import logging
            logging.getLogger("mine").warning("a line of the user's")
            run(broken)
        """
    )
    result = net("--log-level=DEBUG")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["WARNING  mine:test_net.py:* a line of the user's"])
    assert "torch.__trace" not in result.stdout.str()


def test_marker_does_not_import_torch_for_unrun_tests(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import sys, pytest

        @pytest.mark.torchgraph(within="json", allow="x")
        def test_marked(): pass

        def test_plain():
            assert "torch" not in sys.modules
            assert "pytest_torchgraph.api.watch" not in sys.modules
        """
    )
    run("-k", "plain").assert_outcomes(passed=1, deselected=1)


def test_marker_arguments_equal_the_limits() -> None:
    fields = [field.name for field in dataclasses.fields(Limits) if field.compare]
    assert list(NAMES) == fields
    declared = inspect.signature(Limits)
    for name in fields:
        assert f"{name}={declared.parameters[name].default}" in SIGNATURE
