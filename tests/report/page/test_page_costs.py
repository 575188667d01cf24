"""The costs of captures on the page."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch  # noqa: F401  # provides the formulas, and the page does not import it
from report.page.captured import Captured
from report.page.pages import one_test, written

from pytest_torchgraph import Graph
from pytest_torchgraph.report.page import collect

BLOCK = """\
  %h.{n}.up.weight = parameter : f32[8, 32]
  %h.{n}.up/mm = aten.mm.default(%x, %h.{n}.up.weight) : f32[2, 32]
  %h.{n}.act/{act} = aten.{act}.default(%h.{n}.up/mm) : f32[2, 32]
"""
MM = 2 * 2 * 8 * 32


def forward(blocks: int, act: str = "gelu", level: str = "aot") -> Graph:
    """Return parallel blocks. Each saves an `exp` for backward."""
    lines = [f"torchgraph 1\n\nforward @ {level} {{\n  %x = input : f32[2, 8]\n"]
    lines += [BLOCK.format(n=n, act=act if n == 3 else "gelu") for n in range(blocks)]
    lines.append(f"  return %h.{blocks - 1}.up/mm\n")
    lines.append("  save %h.3.act/exp\n" if act == "exp" else "")
    return Graph.from_text("".join([*lines, "}\n"]))


BACKWARD = Graph.from_text(
    "torchgraph 1\n\nbackward @ aot {\n  %x = input : f32[2, 8]\n  %w = parameter : f32[8, 32]\n"
    "  %h.0.up/mm.1 = aten.mm.default(%x, %w) : f32[2, 32]\n  return %h.0.up/mm.1\n}\n"
)


def cost_of(graphs: list[Graph]) -> dict[str, Any] | None:
    return collect.cost_data(graphs, Captured(*graphs).by_module)


def test_page_costs_of_a_capture_have_modules_in_both_directions() -> None:
    data = collect.capture_data(Captured(forward(6), BACKWARD))  # type: ignore[arg-type]
    table = data["cost"]
    assert table["about"] == f"{7 * MM / 1000:.1f} kFLOP, 0 B saved for backward"
    assert table["titles"] == ["forward FLOPs", "backward FLOPs", "FLOPs", "saved bytes"]
    assert table["rows"][:3] == [
        ["", 0, 6 * MM, MM, 7 * MM, 0],
        ["h", 1, 6 * MM, MM, 7 * MM, 0],
        ["h.0.up", 2, MM, MM, 2 * MM, 0],
    ]
    assert table["more"] == 0


def test_page_costs_of_a_large_graph_are_limited() -> None:
    table = cost_of([forward(20)])
    assert table is not None
    assert [row[0] for row in table["rows"]] == ["", "h", *(f"h.{n}.up" for n in range(20))]
    table = cost_of([forward(40)])
    assert table is not None
    assert [row[:3] for row in table["rows"]] == [["", 0, 40 * MM], ["h", 1, 40 * MM]]
    assert table["more"] == 40


def test_page_costs_name_uncounted_ops() -> None:
    custom = Graph.from_text(forward(2).to_text().replace("aten.gelu", "my.gelu"))
    table = cost_of([custom])
    assert table is not None
    assert table["about"].startswith(f"{2 * MM / 1000:.1f} kFLOP plus uncounted ops, 0 B")
    assert table["note"] == "not counted, because torch has no formula: my.gelu.default"


def test_page_without_known_costs_has_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cost_of([]) is None
    assert cost_of([forward(2, level="dynamo")]) is None
    exported = cost_of([forward(2, level="export")])
    assert exported is not None
    assert exported["titles"] == ["FLOPs"]
    dynamic = forward(2).to_text().replace("f32[2", "f32[s0")
    assert cost_of([Graph.from_text(dynamic)]) is None
    monkeypatch.delitem(sys.modules, "torch")
    assert cost_of([forward(2)]) is None
    assert "torch" not in sys.modules


@pytest.mark.slow("a browser, for further keys, addresses and panes", unless=["light-600"])
@pytest.mark.parametrize(("scheme", "width"), [("light", 600), ("dark", 1280)])
def test_page_cost_tables_are_readable(
    opened: Any, tmp_path: Path, width: int, scheme: str
) -> None:
    captured = collect.capture_data(Captured(forward(6), BACKWARD))  # type: ignore[arg-type]
    test = one_test("test_a", captures=[captured])
    opened.page.set_viewport_size({"width": width, "height": 900})
    opened.page.emulate_media(color_scheme=scheme)
    page = opened.open(written(tmp_path, test))

    own = page.locator("details.cost")
    own.locator("summary").click()
    head = [text.lower() for text in own.locator("thead th").all_inner_texts()]
    assert head == ["module", "forward flops", "backward flops", "flops", "saved bytes"]
    figures = own.locator("tbody tr").first.locator("td").all_inner_texts()
    assert figures == [f"{number:,}" for number in (6 * MM, MM, 7 * MM, 0)]
    assert page.evaluate("document.documentElement.scrollWidth") == width
    blocks = page.locator("details.blocks")
    blocks.locator("summary").click()
    assert blocks.locator("td").all_inner_texts() == ["6", "h.{0 … 5}"]
    colour = "getComputedStyle(document.querySelector('details.cost td')).color"
    light = sum(int(part) for part in re.findall(r"\d+", page.evaluate(colour))[:3])
    assert (light > 3 * 128) == (scheme == "dark")


def test_page_data_has_block_kinds() -> None:
    data = collect.capture_data(Captured(forward(6, "relu"), BACKWARD))  # type: ignore[arg-type]
    assert data["blocks"] == [
        {"glob": "h.*", "count": 2, "kinds": [[5, "h.{0 … 2, 4, 5}"], [1, "h.3"]]}
    ]
    alone = Graph.from_text(
        "torchgraph 1\n\nforward @ aot {\n  %x = input : f32[2]\n"
        "  %0/relu = aten.relu.default(%x) : f32[2]\n"
        "  %1/exp = aten.exp.default(%0/relu) : f32[2]\n  return %1/exp\n}\n"
    )
    assert collect.capture_data(Captured(alone))["blocks"] == []  # type: ignore[arg-type]
