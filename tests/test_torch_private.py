"""The seam to torch's moving parts."""

from __future__ import annotations

import logging
import re

import pytest
import torch
from packaging.version import Version
from torch._logging import trace_structured

from pytest_torchgraph import TorchGraphError, torch_private


def test_this_torch_has_every_private_name() -> None:
    """But for those that came later and that something else stands in for (`has`)."""
    assert len(torch_private.NAMES) > 10
    running = Version(torch.__version__.partition("+")[0])
    later = {name for name, known in torch_private.NAMES.items() if Version(known.since) > running}
    assert set(torch_private.probe()) == later
    assert later <= {"skip_reason"}


def test_a_missing_name_says_what_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = torch_private.Private("torch._dynamo.utils:gone", "2.0", "capture by aot")
    monkeypatch.setitem(torch_private.NAMES, "counters", gone)
    with pytest.raises(TorchGraphError, match=r"has no torch\._dynamo\.utils\.gone .*unavailable"):
        torch_private.get("counters")
    assert "counters" in torch_private.probe()


def test_private_names_are_used_through_the_seam_alone() -> None:
    from pathlib import Path

    seam = Path(torch_private.__file__).parent
    package = seam.parent
    private = re.compile(r"torch\.(_C|_dynamo|_functorch|_inductor|_logging)\b|functorch\.")
    found = [
        f"{path.name}:{number}: {line.strip()}"
        for path in package.rglob("*.py")
        if path.parent != seam
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if private.search(line) and '"' not in line and "`" not in line
    ]
    assert found == []


def test_records_of_the_trace_that_nobody_wants_are_not_made() -> None:
    made: list[str] = []
    seen: list[str] = []

    def payload(name: str) -> str:
        made.append(name)
        return name

    def write(name: str) -> None:
        trace_structured("artifact", lambda: {"name": name}, payload_fn=lambda: payload(name))
        trace_structured(name, payload_fn=lambda: payload(name))

    logger = logging.getLogger("torch.__trace")
    before = logger.handlers
    try:
        logger.handlers = []
        with torch_private.structured_trace(lambda _, text: seen.append(text), {"wanted"}):
            write("wanted")
            write("other")
            assert (made, seen) == (["wanted"] * 2, ["wanted"] * 2)
            logger.addHandler(logging.NullHandler())  # now somebody may want it
            write("other")
            assert (made[2:], seen[2:]) == (["other"] * 2, [])
            with torch_private.structured_trace(lambda _, text: seen.append(text)):
                write("another")
            assert seen[2:] == ["another"] * 2
        assert type(logger.handlers) is list
        assert [type(handler) for handler in logger.handlers] == [logging.NullHandler]
    finally:
        logger.handlers = before
