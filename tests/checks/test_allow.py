"""`allow=` accepts no match that begins or ends inside a name or a number."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from pytest_torchgraph import Capture, capture, watch
from pytest_torchgraph.settings import paths


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """Capture a function in a file, with a host sync in lines 12 and 120."""
    path = tmp_path_factory.mktemp("allow") / "model.py"
    source = ["def target(x):", *["    x = x + 0"] * 119, "    return x"]
    for line in (12, 120):
        source[line - 1] = "    x = x * x.sum().item()"
    path.write_text("\n".join(source))
    namespace: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    return capture(namespace["target"], torch.ones(2), via="dispatch")


@pytest.mark.parametrize(
    ("allow", "refused"),
    [
        (r"model\.py:12", ["120"]),
        ("py:1", ["12", "120"]),
        ("odel.py", ["12", "120"]),
        (r"model\.py:1[0-9]?", ["120"]),
        (r"(?i)MODEL\.PY:12", ["120"]),
        (r"(?x) model \. py  # the file", []),
        (r"(?i)(?x) MODEL \. PY  # the file", []),
        (r"(?i)(?x) ODEL \. PY  # the file", ["12", "120"]),
        ("data|model", []),
        ("tem|ite", ["12", "120"]),
        ("item", []),
        ("target", []),
    ],
)
def test_sync_is_allowed_by_whole_names_and_numbers(
    seen: Capture, allow: str, refused: list[str]
) -> None:
    if not refused:
        seen.assert_no_syncs(allow=allow)
        return
    with pytest.raises(AssertionError, match="host syncs") as error:
        seen.assert_no_syncs(allow=allow)
    assert sorted({*re.findall(r"model\.py:(\d+)", str(error.value))}) == refused


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


def test_graph_break_is_allowed_by_whole_words() -> None:
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
