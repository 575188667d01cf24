"""Results of an audit, made without running one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_torchgraph.audit import AuditOutcome, Cause, Entry, ReleaseSection, TestFacts
from pytest_torchgraph.audit.judge import BaselineComparison


def made(
    facts: Mapping[str, TestFacts], before: Mapping[str, TestFacts] | None = None, **given: Any
) -> AuditOutcome:
    """Make an outcome of these tests. With `before`, it is a check against that baseline."""
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


def compiling(*causes: Cause, **given: Any) -> TestFacts:
    """Make the facts of a test that compiles one function, with causes."""
    values: dict[str, Any] = {"calls": 1, "graphs": 1, "ops": 3, "seconds": 0.5}
    values |= {"compiles": True, "causes": causes, "frames": ("net.py:3 forward",)}
    return TestFacts(**{**values, **given})


def broken_at(line: int, code: str = "print(x)", file: str = "net.py") -> Cause:
    """Make a graph break at a line."""
    return Cause("break", file, "forward", "a builtin", code, line)
