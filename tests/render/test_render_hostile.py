"""Hostile names: markup, DOT, escapes, paths, very long, right to left."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_torchgraph.graph import Graph, GraphBreak, Node, Ref, Source, TensorMeta, diff_graphs
from pytest_torchgraph.render import Drawing, difference, draw, drawing_of_breaks, whole

pytestmark = pytest.mark.usefixtures("in_this_process")

HOSTILE = {
    "script": "<script>alert(1)</script>",
    "svg": '"/><image href="http://example.org/x" onload="alert(1)"/>',
    "comment": "--><script>alert(1)</script><!--",
    "cdata": "]]><script>alert(1)</script>",
    "style": "</style><script>alert(1)</script>",
    "html label": "<<b>bold</b>>",
    "entity": "&lt;script&gt;&#60;script&#62;&nbsp;",
    "dot": '"]; evil [URL="javascript:alert(1)" label="',
    "dot escapes": r"\N \G \E \T \H \L \l \r \n \"",
    "backslash": "ends with \\",
    "ansi": "\x1b[31mred\x1b[0m \x1b]8;;http://example.org\x07link",
    "control": "a\x00b\x07c\x08d\x7fe\ufffef\uffffg\ud800h",
    "lines": "one\ntwo\r\nthree\u2028four",
    "path": "../../../etc/passwd",
    "windows path": "C:\\..\\con",
    "emoji": "layer \N{PILE OF POO}\N{ZERO WIDTH JOINER}\N{FIRE}",
    "right to left": "\u202egpj.exe\u202c \u05d0\u05d1\u05d2 \u0627\u0628\u062a",
    "combining": "e" + "\u0301" * 300,
    "long": "x" * 10_000,
    "dots": "." * 500,
    "empty": " ",
    "keyword": "graph",
}
ALLOWED = {"svg", "g", "title", "a", "path", "polygon", "polyline", "ellipse", "text", "style"}


def graph(text: str, layers: int = 3) -> Graph:
    """Return a graph in which every name chosen by a user is `text`."""
    meta = TensorMeta("float32", (2,))
    source = Source(text, 1, text, text)
    nodes = [
        Node(text, "placeholder", "input", result=meta, source=source),
        Node(f"{text}.w", "placeholder", "parameter", target=text, result=meta),
    ]
    for number in range(layers):
        operands = (Ref(nodes[-1].name if number else text), Ref(f"{text}.w"), text)
        kwargs = {text: (text, {text: text})}
        module = f"{text}.{number}"
        name = f"{text}/{number}"
        nodes.append(
            Node(name, "call_function", text, operands, kwargs, meta, module, source, text)
        )
    body = replace(Graph((nodes[0],), name=text), kind="forward")
    output = Node("output", "output", "output", (Ref(nodes[-1].name),))
    return Graph((*nodes, output), name=text, subgraphs=(body,), saved=(Ref(nodes[-1].name),))


def edited(one: Graph) -> Graph:
    """Return the graph with another op at the end."""
    nodes = list(one.nodes)
    nodes[-2] = replace(nodes[-2], op=nodes[-2].op + "2")
    return replace(one, nodes=tuple(nodes))


def of_breaks(text: str) -> Drawing:
    graph_break = GraphBreak(text, text, text, text, 1, text, text, (), text, "0/0")
    return drawing_of_breaks([graph(text), graph(text)], [graph_break], ["0/0", "1/0"])


PICTURES = {
    "whole": lambda text: whole.drawing(graph(text)),
    "folded": lambda text: whole.drawing(graph(text, 30), limit=5),
    "difference": lambda text: difference.drawing(
        diff_graphs((graph(text, 30),), (edited(graph(text, 30)),))
    ),
    "surplus": lambda text: difference.surplus_drawing([graph(text)], graph(text).nodes[2:3], text),
    "breaks": of_breaks,
}


def checked(picture: Drawing, folder: Path) -> ET.Element:
    """Return the SVG, after a check that it has only elements drawn by Graphviz, and no links."""
    drawing = draw(picture.digraph, folder / "g.svg")
    assert drawing.renderer is not None, drawing.note
    assert sorted(path.name for path in folder.iterdir()) == ["g.svg"]
    svg = ET.parse(folder / "g.svg").getroot()
    for element in svg.iter():
        name = element.tag.rpartition("}")[2]
        assert name in ALLOWED
        for key, value in element.attrib.items():
            key = key.rpartition("}")[2]
            assert not key.startswith("on")
            assert key not in ("href", "src", "style"), value
        if name == "style":
            assert (element.text or "").startswith("@media (prefers-color-scheme: dark)")
    return svg


def drawn(svg: ET.Element) -> list[str]:
    """Return the classes of all boxes and edges."""
    names = (element.get("class", "") for element in svg.iter())
    return sorted(name for name in names if name.startswith(("node", "edge")))


@pytest.mark.slow("further names; two are in every run", unless=["script-*", "svg-*"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [*zip(HOSTILE, cycle(PICTURES), strict=False), *(("svg", kind) for kind in PICTURES)],
)
def test_hostile_name_is_drawn_as_text(tmp_path, name, kind):
    text = HOSTILE[name]
    plain = checked(PICTURES[kind]("name"), tmp_path)
    (tmp_path / "g.svg").unlink()

    svg = checked(PICTURES[kind](text), tmp_path)

    if text.strip(". "):  # a module path of dots only is ignored
        assert drawn(svg) == drawn(plain), "boxes and edges differ from those of an ordinary name"
    shown = "".join(svg.itertext())
    assert not set(shown) & set("\x1b\x00\x07\x7f\u202e\u202c\u2028"), "a control character is left"
    assert max(len(e.text or "") for e in svg.iter() if e.tag.endswith("text")) <= 130


@pytest.mark.parametrize("kind", ["whole", "difference"])
@pytest.mark.parametrize(
    "text", ["<b>&amp;\\N</b>", r"\G \E \T \l \r \n", 'a"b; }', "ends with \\", "日本語 ∑"]
)
def test_name_with_markup_is_shown_literally(tmp_path, kind, text):
    assert text in "".join(checked(PICTURES[kind](text), tmp_path).itertext())


@settings(max_examples=40, deadline=None)
@given(text=st.text(min_size=1, max_size=60), kind=st.sampled_from(sorted(PICTURES)))
def test_any_name_gives_dot_that_graphviz_takes_and_xml(text, kind, tmp_path_factory):
    checked(PICTURES[kind](text), tmp_path_factory.mktemp("any"))
