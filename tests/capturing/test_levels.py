"""`capture.at(level)` is the same run, seen at another level."""

from __future__ import annotations

import pytest
import torch
from capturing.models import example

from pytest_torchgraph import CaptureError, capture, load, watch


def test_another_level_is_of_the_same_run() -> None:
    layer = torch.nn.Linear(4, 4)
    seen = capture(layer, example(3, 4), via="compiled_autograd")
    other = seen.at("aot")
    assert other.output is seen.output
    other.assert_matches_eager()
    assert other.executions == seen.executions
    assert repr(other).startswith("<Capture via compiled_autograd: ")


def test_what_has_no_output_says_why(tmp_path: object) -> None:
    with watch() as seen:
        torch.compile(torch.nn.Linear(4, 4), backend="aot_eager")(example(3, 4))
    for each in (seen, seen.at("dynamo")):
        with pytest.raises(CaptureError, match="this capture was made by watch\\(\\): it has"):
            _ = each.output
    path = f"{tmp_path}/stored.tgraph"
    with open(path, "w") as file:
        file.write(seen.to_text())
    with pytest.raises(CaptureError, match="this capture was loaded from a file: it has"):
        _ = load(path).output
