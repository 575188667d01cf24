"""CSS rules for SVGs on a dark background, based on the classes of the elements.

A light background needs no rules, because the colours are attributes, which every viewer supports.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..layout import css_classes
from ..look import CATEGORY_PAINTS, CHANGE_PAINTS, HEAT_PAINTS, Paint

BACKGROUND = "#1B1D21"
TEXT = "#F2F2F2"
PALE_TEXT = "#B8BCC4"
"""Colour of edges, and of the text of edges, clusters and unchanged boxes."""
LIGHTER = 0.25
"""Share of white mixed into a border on a dark background."""
FULL = 0.42
"""Share of the border's colour mixed into the fill."""
DARK: dict[Paint, Paint] = {
    CATEGORY_PAINTS["pointwise"]: Paint("#33C79B", "#0F7458"),
    CATEGORY_PAINTS["matmul"]: Paint("#4095C5", "#12456B"),
    CATEGORY_PAINTS["view"]: Paint("#8A8F98", "#2E3137"),
    CATEGORY_PAINTS["random"]: Paint("#F0E442", "#6E6A22"),
    CATEGORY_PAINTS["collective"]: Paint("#F2B6D8", "#7A2F5C"),
    CATEGORY_PAINTS["custom"]: Paint("#F2F2F2", "#000000"),
    CATEGORY_PAINTS["other"]: Paint("#B8BCC4", BACKGROUND),
    CHANGE_PAINTS["added"]: Paint("#33C79B", "#0F7458"),
    CHANGE_PAINTS["rewired"]: Paint("#4095C5", "#12456B"),
    HEAT_PAINTS["most"]: Paint("#B9ADEA", "#7060BA"),
    HEAT_PAINTS["more"]: Paint("#B9ADEA", "#5F4FA3"),
    HEAT_PAINTS["medium"]: Paint("#B9ADEA", "#4C3F82"),
    HEAT_PAINTS["less"]: Paint("#B9ADEA", "#3A3160"),
    HEAT_PAINTS["least"]: Paint("#B9ADEA", "#2A2540"),
    HEAT_PAINTS["none"]: Paint("#8A8F98", BACKGROUND),
    HEAT_PAINTS["unknown"]: Paint("#8A8F98", BACKGROUND),
}
"""Dark paints for paints that the formula in `dark` would make hard to distinguish."""
_FILLED = ':is(path, polygon, ellipse):not([fill="none"])'
_DRAWN = ":is(path, polygon, polyline, ellipse)"
_OUR_GRAPH = re.compile(r'class="graph tg(?:-|&#45;)picture"')
_SVG_TAG = re.compile(r"<svg\b[^>]*>")


def dark(paint: Paint) -> Paint:
    """Return the colours of a paint on a dark background."""
    dark_paint = DARK.get(paint)
    if dark_paint is not None:
        return dark_paint
    border = mix_colours(paint.border, "#FFFFFF", LIGHTER)
    return Paint(border, mix_colours(BACKGROUND, border, FULL))


def mix_colours(first: str, second: str, share: float) -> str:
    """Mix two `#RRGGBB` colours. `share` is the share of `second`, from 0 to 1."""
    parts = ((int(first[i : i + 2], 16), int(second[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in parts)


def dark_rules() -> str:
    """Return CSS rules for a dark background."""
    return "\n".join(
        f"{', '.join(f'.tg-picture {selector}' for selector in selectors)} {{ {body} }}"
        for selectors, body in _rules()
    )


def _rules() -> Iterator[tuple[list[str], str]]:
    """Yield lists of selectors relative to a drawing, each with its declarations."""
    yield ["> polygon", "> g > a > polygon"], f"fill: {BACKGROUND};"
    yield ["text"], f"fill: {TEXT};"
    yield [".edge text", ".cluster text"], f"fill: {PALE_TEXT};"
    yield [f".edge {_DRAWN}"], f"stroke: {PALE_TEXT};"
    yield [".edge polygon"], f"fill: {PALE_TEXT};"
    yield [".cluster :is(path, polygon)"], "fill: none; stroke: #6A6F78;"
    yield [".cluster.tg-graph :is(path, polygon)"], "stroke: #D0D4DC;"
    yield [".cluster.tg-eager :is(path, polygon)"], "fill: #2A2415; stroke: #E3B341;"
    yield [f".tg-group {_DRAWN}"], "stroke: #A8ADB6;"
    yield [f".tg-group {_FILLED}"], "fill: #2B2E34;"
    yield [f".tg-context {_FILLED}"], f"fill: {BACKGROUND}; stroke: #777C85;"
    yield [".tg-context text"], f"fill: {PALE_TEXT};"
    yield [f".tg-return {_FILLED}"], f"fill: {BACKGROUND}; stroke: {TEXT};"
    for kind, paint in {**CATEGORY_PAINTS, **CHANGE_PAINTS}.items():
        border, fill = dark(paint)
        name = css_classes([kind])
        yield [f".node.{name} {_DRAWN}"], f"stroke: {border};"
        yield [f".node.{name} {_FILLED}"], f"fill: {fill};"
        if kind in CHANGE_PAINTS:
            yield [f".node.{name}.tg-follows {_FILLED}"], f"fill: {BACKGROUND};"
            yield [f".edge.{name} {_DRAWN}"], f"stroke: {border};"
            yield [f".edge.{name} polygon"], f"fill: {border};"
    for step, paint in HEAT_PAINTS.items():
        border, fill = dark(paint)
        name = css_classes([f"heat-{step}"])
        yield [f".node.{name} {_DRAWN}"], f"stroke: {border};"
        yield [f".node.{name} {_FILLED}"], f"fill: {fill};"
    border, fill = dark(CHANGE_PAINTS["removed"])
    yield [f".edge.tg-cut {_DRAWN}"], f"stroke: {border};"
    yield [".edge.tg-cut polygon"], f"fill: {border};"
    yield [f".tg-break {_FILLED}"], f"fill: {fill}; stroke: {border};"


def with_dark(svg: bytes) -> bytes:
    """Add `dark_rules` to an SVG, for viewers that prefer a dark background.

    An SVG that this package did not draw stays unchanged.
    """
    text = svg.decode("utf-8", "replace")
    if not _OUR_GRAPH.search(text):
        return svg
    rules = f"\n<style>@media (prefers-color-scheme: dark) {{\n{dark_rules()}\n}}</style>"
    return _SVG_TAG.sub(lambda match: match[0] + rules, text, count=1).encode()
