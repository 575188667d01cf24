"""`allow=` accepts no match that begins or ends inside a name or a number."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_torchgraph import Capture, capture, watch
from pytest_torchgraph.settings import paths


def reading_at(path: Path, *lines: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function in a file, with a host sync on each of these lines."""
    source = ["def target(x):"] + ["    x = x + 0"] * (max(lines) - 1) + ["    return x"]
    for line in lines:
        source[line - 1] = "    x = x * x.sum().item()"
    path.write_text("\n".join(source))
    namespace: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    target: Callable[[torch.Tensor], torch.Tensor] = namespace["target"]
    return target


def syncs_of(path: Path, *lines: int) -> Capture:
    return capture(reading_at(path, *lines), torch.ones(2), via="dispatch")


@pytest.mark.parametrize(
    ("allow", "line", "allowed"),
    [
        (r"model\.py:12", 12, True),
        ("model.py:12", 12, True),
        (r"model\.py:12", 120, False),
        ("model.py:12", 120, False),
        ("py:1", 12, False),
        ("odel.py", 12, False),
        (r"model\.py:1[0-9]?", 120, False),
        (r"model\.py:1\d+", 120, True),
        (r"(?i)MODEL\.PY:12", 12, True),
        (r"(?i)MODEL\.PY:12", 120, False),
        (r"(?x) model \. py  # the file", 12, True),
        (r"(?i)(?x) MODEL \. PY  # the file", 12, True),
        (r"(?i)(?x) ODEL \. PY  # the file", 12, False),
        ("data|model", 12, True),
        ("tem|ite", 12, False),
        ("item", 12, True),
        ("ite", 12, False),
        ("target", 12, True),
        ("arget", 12, False),
    ],
)
def test_sync_is_allowed_by_whole_names_and_numbers(
    tmp_path: Path, allow: str, line: int, allowed: bool
) -> None:
    seen = syncs_of(tmp_path / "model.py", line)
    assert [sync.line for sync in seen.syncs] == [line]
    if allowed:
        seen.assert_no_syncs(allow=allow)
    else:
        with pytest.raises(AssertionError, match="host syncs"):
            seen.assert_no_syncs(allow=allow)


def test_file_name_inside_another_is_no_match(tmp_path: Path) -> None:
    seen = syncs_of(tmp_path / "data.py", 3)
    with pytest.raises(AssertionError, match=re.escape("data.py:3")):
        seen.assert_no_syncs(allow="a.py")


def test_decimal_number_is_matched_as_a_whole() -> None:
    allows, patterns = paths.allows, paths.patterns
    text = "copies 1.25 of 4 tensors"
    assert [
        allows(patterns(allow), text) for allow in ("1", "25", "1.", ".25", "1.25", "4", r"1\.\d+")
    ] == [False, False, False, False, True, True, True]


def broken(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos()


@pytest.mark.parametrize("via", ["watch", "capture"])
def test_graph_break_is_allowed_by_whole_words(via: str) -> None:
    if via == "watch":
        with watch() as seen:
            torch.compile(broken, backend="eager")(torch.ones(2))
    else:
        seen = capture(broken, torch.ones(2), via="dynamo")
    kind = seen.breaks[0].kind
    for allow in (kind, kind.split()[0]):
        seen.assert_no_graph_breaks(allow=allow)
    for allow in (kind[1:], kind.split()[0][:3], kind.partition("graph_break")[0] + "graph"):
        with pytest.raises(AssertionError, match="graph breaks"):
            seen.assert_no_graph_breaks(allow=allow)


def test_eager_call_is_allowed_by_whole_words() -> None:
    with watch() as seen:
        torch.compile(lambda x: x.cos() * 2, backend="eager")(torch.ones(2))
        with torch.compiler.set_stance("force_eager"):
            torch.compile(lambda x: x.sin() * 2, backend="eager")(torch.ones(2))
    seen.assert_no_graph_breaks(allow="stance: ")
    for allow in ("stan", "tance: "):
        with pytest.raises(AssertionError, match="ran eagerly"):
            seen.assert_no_graph_breaks(allow=allow)


def test_marker_refuses_a_part_of_a_word(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest, torch

        def broken(x):
            torch._dynamo.graph_break()
            return x.cos()

        @pytest.mark.torchgraph(max_graph_breaks=0, allow="graph_break")
        def test_whole():
            torch.compile(broken, backend="eager")(torch.ones(2))

        @pytest.mark.torchgraph(max_graph_breaks=0, allow="graph_bre")
        def test_part():
            torch.compile(broken, backend="eager")(torch.ones(2))
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:randomly", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
