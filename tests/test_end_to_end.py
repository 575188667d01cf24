"""From a real model to a stored graph, and to a failure that names the change."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest
from projects import Run, files, section

BERT = """
    import os
    import types
    import pytest
    import torch
    from transformers import BertConfig, BertModel

    @pytest.fixture
    def bert():
        torch.manual_seed(0)
        config = BertConfig(hidden_size=64, num_hidden_layers=12, num_attention_heads=4,
                            intermediate_size=128, vocab_size=100)
        model = BertModel(config).eval()
        edit = os.environ.get("EDIT")
        if edit == "activation":
            model.encoder.layer[7].intermediate.intermediate_act_fn = torch.nn.ReLU()
        if edit == "clone":
            def forward(self, hidden):
                return self.intermediate_act_fn(self.dense(hidden).clone())
            layer = model.encoder.layer[3].intermediate
            layer.forward = types.MethodType(forward, layer)
        return model

    def test_bert(bert, graph_capture, graph_snapshot):
        capture = graph_capture(bert, input_ids=torch.arange(32).reshape(2, 16))
        assert capture == graph_snapshot
"""

SMALL = """
    import pytest
    import torch
    from torch import nn

    MODELS = {
        "mlp": lambda: (nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8)), (4, 8)),
        "conv": lambda: (nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.SiLU()),
                         (2, 2, 8, 8)),
        "encoder": lambda: (nn.TransformerEncoderLayer(8, 2, 16, 0.1), (4, 2, 8)),
    }

    @pytest.mark.parametrize("via", ["aot", "dispatch"])
    @pytest.mark.parametrize("name", MODELS)
    def test_model(name, via, graph_capture, graph_snapshot):
        torch.manual_seed(0)
        model, shape = MODELS[name]()
        assert graph_capture(model, torch.randn(shape), via=via) == graph_snapshot(detail="full")
"""


@pytest.fixture(scope="module")
def stored_before() -> dict[str, bytes]:
    """A cache for the stored files of `bert`."""
    return {}


@pytest.fixture
def bert(pytester: pytest.Pytester, run: Run, stored_before: dict[str, bytes]) -> Path:
    """A stored 12-layer BERT."""
    pytester.makepyfile(test_bert=BERT)
    if not stored_before:
        run("--torchgraph-update").assert_outcomes(passed=1)
        stored_before.update(files(pytester))
    for name, content in stored_before.items():
        path = pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return pytester.path / "__snapshots__" / "test_bert" / "test_bert.tgraph"


@pytest.mark.slow("runs pytest several times")
def test_changed_activation_is_one_finding(bert: Path, run: Run, pytester: pytest.Pytester) -> None:
    result = run("-p", "cacheprovider", EDIT="activation")
    result.assert_outcomes(failed=1)
    lines = section(result)
    assert len(lines) <= 15
    assert lines[0].startswith("1 edit: aten.gelu -> aten.relu in encoder.layer.7.")
    text = "\n".join(lines)
    assert "aten.gelu.default" in text
    assert "aten.relu.default" in text
    assert "modeling_bert.py:" in text
    assert "follows in backward" in text
    assert "accept:  pytest test_bert.py::test_bert --torchgraph-update" in text
    (picture,) = [line.partition(":")[2].strip() for line in lines if line.startswith("picture:")]
    drawn = (pytester.path / picture).read_text()
    assert drawn.rstrip().endswith("</svg>")
    assert "encoder.layer.7" in drawn


@pytest.mark.slow("long models; short ones are in every run")
def test_inserted_clone_is_one_finding(bert: Path, run: Run) -> None:
    before = bert.read_text().splitlines()
    result = run(EDIT="clone")
    result.assert_outcomes(failed=1)
    lines = section(result)
    assert re.fullmatch(
        r"1 edit: aten\.clone added in encoder\.layer\.3\.intermediate"
        r" \(BertIntermediate, test_bert\.py:\d+\)",
        lines[0],
    )
    assert bert.read_text().splitlines() == before
    run("--torchgraph-update", EDIT="clone").assert_outcomes(passed=1)
    after = bert.read_text().splitlines()
    changed = [
        line
        for line in difflib.unified_diff(before, after, n=0, lineterm="")
        if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    assert 0 < len(changed) <= 35  # of 341: one of twelve folded layers
    run(EDIT="clone").assert_outcomes(passed=1)


@pytest.mark.slow("several changes at once are in every run")
def test_stored_files_have_the_same_bytes_in_any_run(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_small=SMALL)
    folder = pytester.path / "__snapshots__" / "test_small"

    def stored(*args: str, **environment: str) -> dict[str, bytes]:
        run("--torchgraph-update", *args, **environment).assert_outcomes(passed=6)
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        for path in folder.iterdir():
            path.unlink()
        return files

    tests = [
        f"test_small.py::test_model[{name}-{via}]"
        for name in ("mlp", "conv", "encoder")
        for via in ("aot", "dispatch")
    ]
    first = stored(PYTHONHASHSEED="1")
    assert len(first) == 6
    assert stored(*reversed(tests), PYTHONHASHSEED="2") == first
    assert stored("-p", "xdist", "-n", "2", PYTHONHASHSEED="3") == first


@pytest.mark.slow("runs pytest several times")
def test_source_lines_are_relative_to_the_rootdir(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]")
    folder = pytester.mkdir("below")
    (folder / "test_here.py").write_text(
        "import torch\n\n"
        "def test_here(graph_capture):\n"
        "    graph_capture(lambda x: x.sin(), torch.ones(2)).assert_no_ops('aten.sin')\n"
    )
    monkeypatch.chdir(folder)
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*below/test_here.py:4: *x.sin()*"])
