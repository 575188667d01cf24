"""Another order, other workers, other lines: an unchanged suite has no regression."""

from __future__ import annotations

import pytest
from projects import Run
from sample_suite import FILES

FILE = "torchgraph-audit.json"
ISOLATED = ("-o", "torchgraph_audit_isolation=on")
WORKERS = ("-p", "xdist", "-n", "2")
NESTED = "\ntorch._dynamo.config.nested_graph_breaks = True\n"


def shuffled(seed: int) -> tuple[str, ...]:
    return "-p", "pytest_randomly", f"--randomly-seed={seed}"


WAYS: dict[str, tuple[str, ...]] = {
    "serial": (),
    "workers": WORKERS,
    "random": shuffled(1),
    "random in workers": (*WORKERS, *shuffled(4)),
    "isolated": ISOLATED,
    "isolated, random": (*ISOLATED, *shuffled(5)),
}
SMALLER = {"some": ("-k", "net or traced"), "one file": ("test_shared.py",)}
EDITED = {
    "37 lines": {name: "# a line\n" * 37 + text for name, text in FILES.items()},
    "nested": {**FILES, "conftest.py": FILES["conftest.py"] + NESTED},
}


PAIRS = [
    ("serial", "random"),
    ("serial", "workers"),
    ("serial", "isolated, random"),
    ("serial", "some"),
    ("workers", "random in workers"),
    ("random", "one file"),
    ("isolated", "serial"),
    ("isolated", "37 lines"),
    ("workers", "nested"),
]
"""The way to record the baseline, and the way to run the compared suite."""


@pytest.fixture(scope="module")
def baselines() -> dict[str, bytes]:
    """A cache of the recorded baselines, by the way to record them."""
    return {}


@pytest.mark.slow("several changes at once are in every run")
@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_unchanged_suite_has_no_regression(
    pytester: pytest.Pytester, run: Run, baselines: dict[str, bytes], before: str, after: str
) -> None:
    for name, text in FILES.items():
        (pytester.path / name).write_text(text)
    path = pytester.path / FILE
    if before not in baselines:
        assert run(*WAYS[before], "--torchgraph-audit=record").ret == 0
        baselines[before] = path.read_bytes()
    path.write_bytes(baselines[before])
    for name, text in EDITED.get(after, {}).items():
        (pytester.path / name).write_text(text)
    result = run(*{**WAYS, **SMALLER}.get(after, ()), "--torchgraph-audit=check")
    printed = result.stdout.str()
    assert result.ret == 0, printed
    assert f"nothing is worse than {FILE}" in printed
    assert "better than" not in printed
