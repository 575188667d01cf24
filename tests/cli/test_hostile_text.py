"""Text of a stranger's files reaches the terminal and Markdown without commands or markup."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli.conftest import Run

from pytest_torchgraph.cli import main

EVIL = r"\u001b]0;t\u0007\u202e\u009b31m\n::error::x ##[add-mask]y <img src=x> [a](http://b.c) `|*"
"""A JSON string with escape sequences, a change of direction, workflow commands and markup."""
BASE = """torchgraph 4
via aot, torch 2.13.0

{graph} {{
  %x = input : f32[2, 4]
  {name} = {op}(%x) : f32[{size}]{module}
  return {name}
}}
"""
PLAIN = {"graph": "forward", "op": "aten.relu.default", "size": "2, 4", "module": "", "name": "%a"}
HOSTILE = {
    "op": {"op": f'"{EVIL}"'},
    "module": {"op": "aten.gelu.default", "module": f' in "{EVIL}"'},
    "name": {"op": "aten.gelu.default", "name": f'%"{EVIL}"'},
    "graph": {"op": "aten.gelu.default", "graph": f'"{EVIL}": forward'},
    "symbol": {"size": "`s0\u202e\x9b31m\x1b <img src=x>`"},
    "kwarg": {"op": f'aten.relu.default("{EVIL}"="{EVIL}", v="{EVIL}")#'},
}
FORMS = (
    *(("show", "{}"), ("show", "{}", "--ops"), ("show", "{}", "--table"), ("show", "{}", "--cost")),
    *(("show", "{}", "--flat"), ("show", "{}", "--collectives"), ("show", "{}", "--graph=no")),
    *(("diff", "base.tgraph", "{}"), ("diff", "base.tgraph", "{}", "--all")),
    *(("diff", "base.tgraph", "{}", f"--format={form}") for form in ("markdown", "json")),
)


def check(text: str) -> None:
    """Check that a text has no command for a terminal or a CI system."""
    for line in text.split("\n"):
        assert line.isprintable()
        assert not re.match(r" *::", line)
        assert not re.search(r"##\w*\[", line)


def check_markdown(text: str) -> None:
    """Check that no markup of `EVIL` is left outside code, where Markdown would parse it."""
    check(text)
    for line in text.split("\n"):
        outside = re.sub(r"`[^`]*`", "", line)
        assert "<img" not in outside
        assert "](http" not in outside


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("base.tgraph").write_text(BASE.format(**PLAIN))
    for kind, values in HOSTILE.items():
        text = BASE.format(**{**PLAIN, **values}).replace("#(%x)", "")
        Path(f"{kind}.tgraph").write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_names_send_no_command(
    kind: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in FORMS:
        assert main([word.format(f"{kind}.tgraph") for word in words]) in (0, 1, 2)
        out, err = capsys.readouterr()
        assert out + err
        check(out + err)
        if words[-1].endswith("markdown"):
            check_markdown(out)


def test_hostile_names_are_one_line(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["show", "op.tgraph", "--ops"])
    assert capsys.readouterr().out.count("\n") == 2
    main(["diff", "base.tgraph", "module.tgraph"])
    heading = capsys.readouterr().out.split("\n")[0]
    assert "?[31m" not in heading
    assert "??31m?::error" in heading


def test_hostile_file_names_send_no_command(
    files: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = Path("old"), Path("new")
    for side in (old, new):
        side.mkdir()
        (side / "a.tgraph").write_text(BASE.format(**PLAIN))
    evil = "bad\x1b[31m\n::error::<img src=x>.tgraph"
    (new / evil).write_text(Path("op.tgraph").read_text())
    for form in ("text", "markdown", "json"):
        out = run("diff", "old", "new", f"--format={form}", code=1)
        check_markdown(out) if form == "markdown" else check(out)
        assert form == "json" or "bad?[31m?::error" in out
    assert main(["show", str(new / evil), "--graph=no"]) == 2
    check(capsys.readouterr().err)
    assert main(["show", evil]) == 2
    check(capsys.readouterr().err)
    with pytest.raises(SystemExit):
        main(["show", "a.tgraph", evil])
    check(capsys.readouterr().err)


def test_file_names_that_print_equal_are_all_listed(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for side in ("old", "new"):
        Path(side).mkdir()
    for name in ("a\x01", "a\x02", "a?"):
        Path("new", f"{name}.tgraph").write_text(BASE.format(**PLAIN))
    main(["diff", "old", "new"])
    assert capsys.readouterr().out.endswith("+ added: ??a?.tgraph, ?a?.tgraph, a?.tgraph\n")


def test_headings_of_markdown_have_no_markup(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = BASE.format(**{**PLAIN, "op": '"<img src=x>.[a](http://b.c).x"'})
    Path("op.tgraph").write_text(text)
    Path("counts.tgraph").write_text(
        "torchgraph 4\nvia aot, torch <img/src=x>, detail ops\n\nforward {\n  1 a\n}\n"
    )
    for file in ("op", "counts"):
        main(["diff", "base.tgraph", f"{file}.tgraph", "--format=markdown"])
        check_markdown(capsys.readouterr().out)


HUGE = f"{2**63 - 1}, " * 63 + str(2**63 - 1)
"""The sizes of the largest tensor that the format has."""
HUGE_TEXT = f"""torchgraph 4
via dispatch, torch 2.13.0

inference {{
  %x = input : f32[{HUGE}]
  %m = aten.mm.default(%x, %x) : f32[{HUGE}]
  %c = aten.convolution.default(%x, %x, None, [1], [0], [1], False, [0], 1) : f32[{HUGE}]
  %d = aten.bmm.default(%x) : nonsense[4]
  return %m
  save %m
}}
"""


@pytest.mark.parametrize("word", ["--cost", "--table", "--ops", "--flat", "--collectives"])
def test_show_of_the_largest_sizes(word: str, files: Path, run: Run) -> None:
    Path("huge.tgraph").write_text(HUGE_TEXT)
    out = run("show", "huge.tgraph", word, code=0)
    if word == "--cost":
        assert "no formula: the arguments of %c (aten.convolution.default: " in out
        assert "the arguments of %d (aten.bmm.default: " in out
        assert "?" in run("show", "huge.tgraph", word, "--table", code=0)


@pytest.mark.parametrize("form", ["text", "json"])
def test_diff_of_the_largest_sizes(form: str, files: Path, run: Run) -> None:
    Path("huge.tgraph").write_text(HUGE_TEXT)
    Path("small.tgraph").write_text(HUGE_TEXT.replace(HUGE, "2, 2").replace("  save %m\n", ""))
    out = run("diff", "small.tgraph", "huge.tgraph", f"--format={form}", code=1)
    assert form == "json" or "> 1,000,000.0 EB" in out


@pytest.mark.parametrize("heat", ["flops", "saved_bytes"])
def test_picture_of_the_largest_sizes(heat: str, files: Path) -> None:
    Path("huge.tgraph").write_text(HUGE_TEXT)
    assert main(["render", "huge.tgraph", "o.dot", f"--heat={heat}"]) == 0
