"""`--junitxml` in an audit: properties for the compilations of each test."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from projects import Run

SUITE = """
    import pytest
    import torch


    def helper(x):
        y = x.sin()
        print("<é>\\x07")
        return y.cos()


    @pytest.fixture
    def careless():
        yield
        raise RuntimeError("in the teardown")


    def test_break(record_property):
        record_property("own", "first")
        torch.compile(helper, backend="eager")(torch.ones(3))


    def test_fails(careless):
        torch.compile(lambda x: helper(x), backend="eager")(torch.ones(3))
        assert False


    def test_eager():
        assert torch.ones(3).sin().sum() > 0
"""


def properties(element: ElementTree.Element) -> dict[str, str]:
    property_list = element.find("properties")
    return (
        {}
        if property_list is None
        else {entry.attrib["name"]: entry.attrib["value"] for entry in property_list}
    )


def suite_of(pytester: pytest.Pytester) -> ElementTree.Element:
    root = ElementTree.fromstring((pytester.path / "junit.xml").read_text("utf-8"))
    (suite,) = root.iter("testsuite")
    return suite


@pytest.mark.slow("several changes at once are in every run")
@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n2")], ids=["alone", "n2"])
def test_tests_that_use_torch_compile_have_properties(
    pytester: pytest.Pytester, run: Run, workers: tuple[str, ...]
) -> None:
    pytester.makepyfile(test_net=SUITE)
    run("--junitxml=junit.xml", "--torchgraph-audit=show", *workers)
    suite = suite_of(pytester)
    totals = properties(suite)
    assert float(totals["torchgraph_compile_seconds"]) > 0
    assert (totals["torchgraph_tests"], totals["torchgraph_using"]) == ("3", "2")
    cases: dict[str, list[dict[str, str]]] = {}
    for case in suite.iter("testcase"):
        cases.setdefault(case.attrib["name"], []).append(properties(case))
    (broken,) = cases["test_break"]
    assert next(iter(broken)) == "own"
    assert (broken["torchgraph_graphs"], broken["torchgraph_graph_breaks"]) == ("2", "1")
    cause = r'graph break at test_net\.py:7 in helper: print\("<é>\\x07"\)'
    assert re.fullmatch(cause, broken["torchgraph_cause"])
    # pytest ends the case of the failed call before the teardown.
    failed, in_teardown = cases["test_fails"]
    assert failed == {}
    assert int(in_teardown["torchgraph_graph_breaks"]) >= 1
    assert cases["test_eager"] == [{}]


def test_junit_without_an_audit_or_compiled_code_is_unchanged(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile("def test_one(): pass")

    def written(*options: str) -> str:
        assert run("--junitxml=junit.xml", *options).ret == 0
        text = (pytester.path / "junit.xml").read_text("utf-8")
        return re.sub(r'(time|timestamp)="[^"]*"', "", text)

    plain = written()
    assert "torchgraph" not in plain
    assert written("--torchgraph-audit=show") == plain
    assert written("--torchgraph-json=run.json") == plain


@pytest.mark.slow("a run of pytest of its own")
def test_report_without_junit_has_no_properties(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_net=SUITE)
    pytester.makeconftest(
        """
        def pytest_runtest_logreport(report):
            for name, _ in report.user_properties:
                print("property", name)
        """
    )
    result = run("-s", "-k", "test_break", "--torchgraph-audit=show")
    assert "torchgraph_" not in result.stdout.str()
    result.stdout.fnmatch_lines(["*property own*"])


@pytest.mark.slow("runs pytest several times")
def test_junit_of_a_check_counts_regressions(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_net=SUITE)
    only = ("-k", "test_break", "--junitxml=junit.xml")
    assert run(*only, "--torchgraph-audit=record").ret == 0
    path = pytester.path / "test_net.py"
    path.write_text(path.read_text("utf-8").replace("y.cos()", "print(y)"), "utf-8")
    assert run(*only, "--torchgraph-audit=check").ret == 1
    totals = properties(suite_of(pytester))
    assert int(totals["torchgraph_worse"]) >= 1
    assert totals["torchgraph_better"] == "0"
