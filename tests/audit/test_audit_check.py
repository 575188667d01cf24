"""`--torchgraph-audit=record` and `=check` on a suite that does not use the plugin."""

from __future__ import annotations

import json

import pytest
from projects import Run

SUITE = """
    import torch


    def net(x):
        return (x.sin() * 2).cos()


    def test_net():
        torch.compile(net, backend="eager", dynamic=False)(torch.ones(3))


    def test_fails():
        torch.compile(net, backend="eager")(torch.ones(4))
        assert False


    def test_eager():
        net(torch.ones(3))
"""
FILE = "torchgraph-audit.json"
PASSING = ("-k", "not fails")


@pytest.fixture(scope="module")
def kept() -> dict[str, bytes]:
    """A cache for the suite's recorded baseline."""
    return {}


@pytest.fixture
def suite(pytester: pytest.Pytester, run: Run, kept: dict[str, bytes]) -> Run:
    pytester.makepyfile(test_net=SUITE)
    path = pytester.path / FILE
    if not kept:
        result = run(*PASSING, "--torchgraph-audit=record")
        assert result.ret == 0
        result.stdout.fnmatch_lines([f"recorded  {FILE}: 1 test with torch *"])
        kept[FILE] = path.read_bytes()
    path.write_bytes(kept[FILE])
    return run


def edit(pytester: pytest.Pytester, old: str, new: str) -> None:
    path = pytester.path / "test_net.py"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.slow("runs pytest several times")
def test_audit_regression_fails_the_run_and_no_test(pytester: pytest.Pytester, suite: Run) -> None:
    same = suite(*PASSING, "--torchgraph-audit=check")
    assert same.ret == 0
    same.stdout.fnmatch_lines([f"nothing is worse than {FILE} (1 test and 1 function compared)"])

    edit(pytester, "return (x.sin() * 2).cos()", "print(1)\n    return (x.sin() * 2).cos()")
    worse = suite(*PASSING, "--torchgraph-audit=check", "--color=yes")
    assert f"\x1b[31mworse than {FILE}:\x1b[0m" in worse.stdout.str()
    worse = suite(*PASSING, "--torchgraph-audit=check")
    assert worse.ret == 1
    worse.assert_outcomes(passed=2, deselected=1)
    worse.stdout.fnmatch_lines(
        [
            f"worse than {FILE}:",
            "   1 test  graph break at test_net.py:5 in net: print(1)*",
            "this fails the run. To accept it: pytest --torchgraph-audit=record",
        ]
    )
    suite(*PASSING, "--torchgraph-audit=record")
    assert suite(*PASSING, "--torchgraph-audit=check").ret == 0


def test_recording_twice_gives_the_same_bytes(pytester: pytest.Pytester, suite: Run) -> None:
    path = pytester.path / FILE
    before = path.read_bytes()
    result = suite(*PASSING, "--torchgraph-audit=record")
    result.stdout.fnmatch_lines([f"unchanged  {FILE}: 1 test with torch *"])
    assert path.read_bytes() == before
    assert [*json.loads(before)["torch"].values()] == [
        {
            "functions": {"test_net.py | net": {"ops": [3], "backends": ["eager"]}, "end": 0},
            "tests": {
                "test_net.py::test_net": {
                    "graphs": 1,
                    "ops": 3,
                    "backends": ["eager"],
                    "calls": ["test_net.py | net"],
                },
                "end": 0,
            },
        }
    ]


@pytest.mark.slow("two runs of pytest")
def test_audit_keeps_the_line_of_a_failing_test(pytester: pytest.Pytester, suite: Run) -> None:
    before = (pytester.path / FILE).read_bytes()
    result = suite("--torchgraph-audit=record")
    assert result.ret == 1
    assert (pytester.path / FILE).read_bytes() == before
    result = suite("-x", "--torchgraph-audit=check")
    result.stdout.fnmatch_lines([f"{FILE}: not checked: the run stopped early"])


NOTHING = f"nothing was compared with {FILE}: none of its tests passed here (1 test)"


def test_audit_check_that_compares_nothing_fails(pytester: pytest.Pytester, suite: Run) -> None:
    pytester.makepyfile(test_net="def test_other(): pass")
    result = suite("--torchgraph-audit=check")
    assert result.ret == 1
    remedy = f"*delete {FILE}, then: pytest --torchgraph-audit=record"
    result.stdout.fnmatch_lines([NOTHING, remedy])
    (pytester.path / FILE).unlink()
    assert suite("--torchgraph-audit=record").ret == 0
    assert suite("--torchgraph-audit=check").ret == 0


def test_audit_check_of_a_shard_without_baseline_tests_passes(
    pytester: pytest.Pytester, suite: Run
) -> None:
    pytester.makepyfile(test_more="def test_more(): pass")
    for chosen in (("-k", "eager"), ("test_more.py",)):
        result = suite(*chosen, "--torchgraph-audit=check")
        assert result.ret == 0
        result.stdout.fnmatch_lines([NOTHING])
        result.stdout.no_fnmatch_line("*this fails the run*")


INFINITE = """{"torchgraph-audit": 2,
"torch": {"2.13": {"functions": {}, "tests": {"t": {"graphs": Infinity}}}}}"""


@pytest.mark.parametrize(
    ("mode", "text", "message"),
    [
        ("check", "{}", ": not a baseline written by --torchgraph-audit"),
        ("record", INFINITE, ": *Infinity is out of"),
        (
            "check",
            '{"torchgraph-audit": 2, "torch": {"1.2": {"functions": {}, "tests": {}}}}',
            " has no entries for torch *, only for 1.2. *--torchgraph-audit=record",
        ),
    ],
    ids=["check", "record", "another release"],
)
def test_audit_with_a_malformed_baseline_or_of_another_release_is_a_usage_error(
    pytester: pytest.Pytester, run: Run, mode: str, text: str, message: str
) -> None:
    pytester.makepyfile("def test_one(): pass")
    (pytester.path / FILE).write_text(text)
    result = run(f"--torchgraph-audit={mode}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{FILE}{message}*"])
    assert (pytester.path / FILE).read_text() == text


def test_audit_check_without_a_baseline_is_a_usage_error(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile("def test_one(): pass")
    pytester.makeini("[pytest]\ntorchgraph_audit_file = ci/audit.json")
    result = run("--torchgraph-audit=check")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*audit.json: no baseline exists. To create it: pytest *=record*"])
    assert run("--torchgraph-audit=record").ret == 0
    assert (pytester.path / "ci" / "audit.json").is_file()


def test_collect_only_is_not_audited(pytester: pytest.Pytester, suite: Run) -> None:
    before = (pytester.path / FILE).read_bytes()
    for mode in ("check", "record"):
        options = ("--collect-only", f"--torchgraph-audit={mode}", "--torchgraph-json=run.json")
        result = suite(*options)
        assert result.ret == 0
        result.stdout.no_fnmatch_line("*torchgraph audit*")
    assert (pytester.path / FILE).read_bytes() == before
    assert not (pytester.path / "run.json").exists()
