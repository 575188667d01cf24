"""How pictures look on a dark background: rules for the SVG, by the classes of its elements.

On a light background an SVG needs none: the colours are attributes, which every viewer knows. A
page that has a switch of its own puts `dark_rules` below its own selector.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ..layout.scene import css_classes
from ..look.change_marks import PAINT
from ..look.op_categories import FAMILIES, Paint

BACKGROUND = "#1B1D21"
TEXT = "#F2F2F2"
PALE_TEXT = "#B8BCC4"
LIGHTER = 0.25
"""How much white is in a border on a dark background."""
FULL = 0.42
"""How much of that border is in the fill."""
DARK: dict[Paint, Paint] = {
    FAMILIES["pointwise"]: Paint("#33C79B", "#0F7458"),
    FAMILIES["matmul"]: Paint("#4095C5", "#12456B"),
    FAMILIES["view"]: Paint("#8A8F98", "#2E3137"),
    FAMILIES["random"]: Paint("#F0E442", "#6E6A22"),
    FAMILIES["collective"]: Paint("#F2B6D8", "#7A2F5C"),
    FAMILIES["custom"]: Paint("#F2F2F2", "#000000"),
    FAMILIES["other"]: Paint("#B8BCC4", BACKGROUND),
    PAINT["added"]: Paint("#33C79B", "#0F7458"),
    PAINT["rewired"]: Paint("#4095C5", "#12456B"),
}
"""Where the rule of `dark` gives two that somebody could take for each other."""
_FILLED = ':is(path, polygon, ellipse):not([fill="none"])'
_DRAWN = ":is(path, polygon, polyline, ellipse)"
_OURS = re.compile(r'class="graph tg(?:-|&#45;)picture"')
_OPENING = re.compile(r"<svg\b[^>]*>")


def dark(paint: Paint) -> Paint:
    """The border and the fill that mean the same on a dark background."""
    known = DARK.get(paint)
    if known is not None:
        return known
    border = mixed(paint.border, "#FFFFFF", LIGHTER)
    return Paint(border, mixed(BACKGROUND, border, FULL))


def mixed(one: str, other: str, share: float) -> str:
    """A colour between two, with so much of the other one."""
    parts = ((int(one[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in parts)


def dark_rules(under: str = "") -> str:
    """CSS for a dark background, for the pictures inside of what the selector `under` matches."""
    return "\n".join(
        f"{', '.join(f'{under} .tg-picture {each}'.strip() for each in selectors)} {{ {body} }}"
        for selectors, body in _rules()
    )


def _rules() -> Iterator[tuple[list[str], str]]:
    """Selectors below the one of the picture, and what holds for them."""
    yield ["> polygon", "> g > a > polygon"], f"fill: {BACKGROUND};"
    yield ["text"], f"fill: {TEXT};"
    yield [".edge text", ".cluster text"], f"fill: {PALE_TEXT};"
    yield [f".edge {_DRAWN}"], f"stroke: {PALE_TEXT};"
    yield [".edge polygon"], f"fill: {PALE_TEXT};"
    yield [".cluster :is(path, polygon)"], "fill: none; stroke: #6A6F78;"
    yield [".cluster.tg-graph :is(path, polygon)"], "stroke: #D0D4DC;"
    yield [f".tg-group {_DRAWN}"], "stroke: #A8ADB6;"
    yield [f".tg-group {_FILLED}"], "fill: #2B2E34;"
    yield [f".tg-context {_FILLED}"], f"fill: {BACKGROUND}; stroke: #777C85;"
    yield [".tg-context text"], f"fill: {PALE_TEXT};"
    yield [f".tg-return {_FILLED}"], f"fill: {BACKGROUND}; stroke: {TEXT};"
    for kind, paint in {**FAMILIES, **PAINT}.items():
        border, fill = dark(paint)
        name = css_classes([kind])
        yield [f".node.{name} {_DRAWN}"], f"stroke: {border};"
        yield [f".node.{name} {_FILLED}"], f"fill: {fill};"
        if kind in PAINT:
            yield [f".node.{name}.tg-follows {_FILLED}"], f"fill: {BACKGROUND};"
            yield [f".edge.{name} {_DRAWN}"], f"stroke: {border};"
            yield [f".edge.{name} polygon"], f"fill: {border};"
    border, fill = dark(PAINT["removed"])
    yield [f".edge.tg-cut {_DRAWN}"], f"stroke: {border};"
    yield [".edge.tg-cut polygon"], f"fill: {border};"
    yield [f".tg-break {_FILLED}"], f"fill: {fill}; stroke: {border};"


def add_dark(path: Path) -> None:
    """Let a finished SVG of ours follow the viewer's choice of a dark background."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if not _OURS.search(text):
        return
    rules = f"\n<style>@media (prefers-color-scheme: dark) {{\n{dark_rules()}\n}}</style>"
    path.write_text(
        _OPENING.sub(lambda match: match[0] + rules, text, count=1), encoding="utf-8", newline=""
    )
