"""Results of an audit, made without running one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from pytest_torchgraph.audit import AuditOutcome, Cause, Entry, ReleaseSection, TestFacts
from pytest_torchgraph.audit.judge import BaselineComparison

Made = Callable[..., AuditOutcome]


@pytest.fixture(scope="session")
def made() -> Made:
    """Make an outcome of these tests. With `before`, it is a check against that baseline."""

    def made(
        facts: Mapping[str, TestFacts],
        before: Mapping[str, TestFacts] | None = None,
        **given: Any,
    ) -> AuditOutcome:
        values: dict[str, Any] = {
            "mode": "show" if before is None else "check",
            "file": "torchgraph-audit.json",
            "isolated": False,
            "tests": len(facts),
            "facts": facts,
            "settings": (),
            "passed": set(facts),
            "verdict": None,
            "broken": "",
            "said": (),
        }
        if before is not None:
            section = ReleaseSection({test: Entry.of(each) for test, each in before.items()})
            values["verdict"] = BaselineComparison(section, facts, set(facts)).verdict()
        return AuditOutcome(**{**values, **given})

    return made


@pytest.fixture(scope="session")
def compiling() -> Callable[..., TestFacts]:
    """Make the facts of a test that compiles one function, with causes."""

    def compiling(*causes: Cause, **given: Any) -> TestFacts:
        values: dict[str, Any] = {"calls": 1, "graphs": 1, "ops": 3, "seconds": 0.5}
        values |= {"compiles": True, "causes": causes, "frames": ("net.py:3 forward",)}
        return TestFacts(**{**values, **given})

    return compiling


@pytest.fixture(scope="session")
def broken_at() -> Callable[..., Cause]:
    """Make a graph break at a line."""

    def broken_at(line: int, code: str = "print(x)", file: str = "net.py") -> Cause:
        return Cause("break", file, "forward", "a builtin", code, line)

    return broken_at
