"""The text of a graph contains everything that its detail includes, and reads back unchanged."""

from __future__ import annotations

import pytest
from graph.build import graph, shown, written
from graph.strategies import checked, eager_graphs, graphs
from hypothesis import given
from hypothesis import strategies as st

from pytest_torchgraph.graph import (
    Atom,
    Device,
    Graph,
    Header,
    Node,
    Ref,
    Symbol,
    TensorMeta,
    format_document,
    parse_document,
)

SAMPLE = written(
    """
    body: inference {
      %p = input : f32[s0, 4]
      %q = aten.sin.default(%p) : f32[s0, 4]
      return [%q, None]
    }
    %size = input : `s0`
    %x = input : f32[s0, 4]
    %fc.weight = parameter : bf16[4, 4]
    %table = get_attr["encoder.table"] : i64[16]
    %act = torch.nn.ReLU["encoder.act"](%x) : f32[s0, 4]
    %v = Tensor.view(%act, [`s0*2`, -1], ...) : f32[`s0*2`, 2]
    %fc/lin = torch.nn.functional.linear(%v, %fc.weight, bias=None) : f32[`s0*2`, 4]
    %l/top = aten.topk.default(%fc/lin, 2, largest=True) : (f32[`s0*2`, 2], i64[`s0*2`, 2])
    %l/top#0 = operator.getitem(%l/top, 0) : f32[`s0*2`, 2]
    %cut = operator.getitem(%table, [slice(None, %size, None), {"k": -0.0, 1: nan}]) : i64[4]
    %r = aten.rand.default([2], dtype=torch.float16, device=device("cpu")) : f16[2] !random
    %w = aten.add_.Tensor(%x, 1e-05) : f32[s0, 4] !mutates %x
    %late = aten.cos.default(%x) : f32[s0, 4] after %w
    %sent = "c10d.all reduce"(complex(0.0, -inf), bytes("00ff"), &"a b") : int !communicates !opaque
    %"odd name" = higher_order.wrap(@body, %late, "é \\"%x\\"", "\\u2028") : ()
    return [
      %l/top#0,
      %"odd name",
      3,
      %cut,
    ]
    save %fc/lin
    save %late
    """
)
FULL = written(
    """
    %x = input : f32[s0, 4] stride [4, 1] on "cuda:1"
    %layer.0/a = aten.sin.default(%x) : f32[s0, 4] stride [`2*s0`, 1] on "cpu"
    %b = aten.cos.default(%layer.0/a) : f32[s0, 4] in "layer.1"
    %layer.0/c = aten.split.default(%b) : (f32[1] stride [] on "cpu", None) in ""
    return %layer.0/c
    """
).replace("torchgraph 4\n", "torchgraph 4\ndetail full\n")


@pytest.mark.slow("large graphs")
@pytest.mark.parametrize("detail", ["dataflow", "full"])
def test_round_trip_of_any_graph_prints_the_same_bytes(detail: str) -> None:
    @checked
    @given(graphs() | eager_graphs())
    def check(original: Graph) -> None:
        text = original.to_text(detail)
        again = Graph.from_text(text)
        assert shown(again, full=detail == "full") == shown(original, full=detail == "full")
        assert again == original
        assert again.to_text(detail) == text

    check()


@pytest.mark.slow("many random graphs")
@checked
@given(
    st.lists(graphs(0) | eager_graphs(), min_size=1, max_size=3),
    st.sampled_from(["aot", "inductor", ""]),
)
def test_round_trip_of_several_graphs_keeps_their_order(all_: list[Graph], via: str) -> None:
    text = format_document(all_, Header(via, "2.13.0"))
    document = parse_document(text)
    assert [shown(g, full=False) for g in document.graphs] == [shown(g, full=False) for g in all_]
    assert document.header == Header(via, "2.13.0")
    assert format_document(document.graphs, document.header) == text


@pytest.mark.slow("many random graphs")
@checked
@given(graphs() | eager_graphs())
def test_detail_ops_has_the_op_counts_of_the_graph(g: Graph) -> None:
    read = parse_document(g.to_text("ops"))
    ((name, counts),) = read.counts
    assert (name, counts) == (g.name, dict(g.op_counts))
    # A file of version 4 leaves out a run count of 1.
    assert read.runs == {g.name: g.runs if g.eager or g.counted else 1}


def test_every_kind_of_line_reads_back_unchanged() -> None:
    assert Graph.from_text(SAMPLE).to_text(fold=False) == SAMPLE
    assert Graph.from_text(FULL).to_text("full", fold=False) == FULL


def test_parsed_nodes_have_the_values_of_their_lines() -> None:
    g = Graph.from_text(SAMPLE)
    kinds = {node.name: node.kind for node in g.nodes}
    assert kinds["fc.weight"] == "placeholder"
    assert kinds["table"] == "get_attr"
    assert kinds["act"] == "call_module"
    assert kinds["v"] == "call_method"
    assert kinds["r"] == "call_function"
    assert kinds["output"] == "output"
    assert g["act"].target == "encoder.act"
    assert g["fc/lin"].module == "fc"
    assert g["fc/lin"].result == TensorMeta("float32", (Symbol("s0*2"), 4))
    assert g["r"].kwargs == {"dtype": Atom("torch.float16"), "device": Device("cpu")}
    assert g["late"].after == (Ref("w"),)
    assert g["odd name"].args[2:] == ('é "%x"', "\u2028")
    assert g["odd name"].result == ()
    assert g.saved == (Ref("fc/lin"), Ref("late"))
    assert [node.name for node in g.outputs] == ["l/top#0", "odd name", "cut"]
    assert [node.name for node in g.inputs] == ["size", "x", "fc.weight"]
    assert g.subgraphs[0]["q"].op == "aten.sin.default"
    assert g.subgraphs[0].level == g.level == "aot"


def test_full_detail_keeps_strides_devices_and_module_paths() -> None:
    g = Graph.from_text(FULL)
    assert g["x"].result == TensorMeta("float32", (Symbol("s0"), 4), (4, 1), "cuda:1")
    assert g["layer.0/a"].result.stride == (Symbol("2*s0"), 1)
    assert [node.module for node in g.nodes] == ["", "layer.0", "layer.1", "", ""]
    assert g["layer.0/c"].result == (TensorMeta("float32", (1,), (), "cpu"), None)


def test_dataflow_detail_has_neither_strides_nor_devices() -> None:
    text = Graph.from_text(FULL).to_text()
    assert "stride" not in text
    assert "cuda" not in text
    assert " in " not in text


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_windows_line_ends_make_no_difference(newline: str) -> None:
    assert Graph.from_text(SAMPLE.replace("\n", newline)).to_text(fold=False) == SAMPLE


def test_node_with_any_strings_is_one_line() -> None:
    breaks = "a\nb\r\nc\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029d"
    node = Node(breaks, "call_function", breaks, (breaks, {breaks: breaks}), {breaks: breaks})
    g = Graph((node, Node("output", "output", "output", (Ref(breaks),))), breaks)
    text = g.to_text()
    assert len(text.splitlines()) == len(text.split("\n")) - 1 == 6
    again = Graph.from_text(text)
    (call, output), name = again.nodes, "a?b??c????????d"
    # A name is one line that is safe to print. A value is printed quoted, so it is kept.
    assert (call.name, call.op, again.name, [*call.kwargs]) == (name, name, name, [name])
    assert (call.args, call.kwargs[name], output.args) == (node.args, breaks, (Ref(name),))


def test_reading_a_text_evaluates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = "__import__('os').system('false')"
    text = written(
        f"""
        %x = "{payload}"("{payload}", &"{payload}", `{payload}`, os.system)
        return %x
        """
    )
    called: list[object] = []
    with monkeypatch.context() as patch:
        for name in ("builtins.eval", "builtins.exec", "builtins.compile", "os.system"):
            patch.setattr(name, lambda *args, **kwargs: called.append(args))
        g = Graph.from_text(text)
    assert not called
    assert g["x"].op == payload
    assert g["x"].args == (payload, Atom(payload), Symbol(payload), Atom("os.system"))


def test_title_omits_what_header_and_name_imply() -> None:
    g = graph("return %x", "main: inference @ export")
    assert g.to_text().splitlines()[2] == "main: inference @ export {"
    in_export = format_document([g.renamed("inference")], Header("export"))
    assert in_export.splitlines()[1:4] == ["via export", "", "inference {"]


def test_unsupported_value_in_a_graph_is_a_type_error() -> None:
    g = Graph((Node("output", "output", "output", (object(),)),))
    with pytest.raises(TypeError, match="a Graph cannot contain"):
        g.to_text()


def test_to_table_has_the_columns_of_fx() -> None:
    lines = graph("%a = aten.add.Tensor(%x, 1, alpha=2) : f32[2, 3]\nreturn %a").to_table()
    head, rule, *rows = lines.splitlines()
    assert head.split() == ["opcode", "name", "target", "args", "kwargs"]
    assert set(rule) == {"-", " "}
    assert rows[2].split() == "call_function a aten.add.Tensor (x, 1) {alpha: 2}".split()
    assert [row.split()[0] for row in rows] == [
        *("placeholder", "placeholder", "call_function", "output")
    ]
