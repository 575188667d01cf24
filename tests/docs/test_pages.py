"""Each code block of the documentation works as the page says."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs.pages import DOCS, Command, File, missing, steps
from docs.rules import RULES_PAGE
from docs.rules import page as rules_page
from docs.signatures import PAGE, with_signatures
from projects import Run

import pytest_torchgraph
from pytest_torchgraph.settings.options import NAMES

PAGES = sorted(
    path.relative_to(DOCS).as_posix()
    for path in DOCS.rglob("*.md")
    if "```" in path.read_text(encoding="utf-8")
)
LINKED = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
README = DOCS.parent / "README.md"
NOT_RUN = ("pip", "git", "xdg-open", "python3")
"""Commands that change more than the project. They are never run."""


@pytest.mark.slow("each page runs pytest several times")
@pytest.mark.parametrize("page", PAGES)
def test_code_blocks_of_a_page_work(page: str, pytester: pytest.Pytester, run: Run) -> None:
    tests = pytester.path / f"test_{Path(page).stem}.py"
    is_run = True
    for step in steps((DOCS / page).read_text(encoding="utf-8")):
        match step:
            case File(name=None, text=text):
                with tests.open("a", encoding="utf-8") as file:
                    file.write(f"{text}\n\n")
                is_run = False
            case File(name=name, text=text):
                path = pytester.path / str(name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
                is_run = is_run and not path.name.startswith("test_")
            case Command(words=words, line=line):
                if words[0] in NOT_RUN:
                    continue
                lines = _run(run, words)
                wrong = missing(step.printed, lines)
                assert wrong is None, f"{page}:{line}: not printed: {wrong}\n" + "\n".join(lines)
                is_run = is_run or words[0] == "pytest"
    if not is_run:
        # Pages about stored graphs run pytest themselves.
        result = run("--torchgraph-update")
        assert result.ret == 0, result.stdout.str()


_COMMAND = "import sys; from pytest_torchgraph.cli import main; sys.exit(main())"


def _run(run: Run, words: tuple[str, ...]) -> list[str]:
    if words[0] == "pytest":
        return run(*words[1:], COLUMNS="80").outlines  # the width of a reader's terminal
    environment = dict(os.environ)
    if words[1:2] == ("python",):  # such as TORCH_TRACE=log python train.py
        name, _, value = words[0].partition("=")
        environment[name] = value
        words = words[1:]
    starts = {"pytest-torchgraph": ("-c", _COMMAND), "python": ()}
    assert words[0] in starts, f"what does {words[0]} do?"
    done = subprocess.run(
        [sys.executable, *starts[words[0]], *words[1:]],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=environment,
    )
    return (done.stdout + done.stderr).splitlines()


def test_pages_render_on_github() -> None:
    """Sphinx would complete a link without a text, and accepts a block's caption."""
    assert len(LINKED) > 20
    for page in LINKED:
        text = (DOCS / page).read_text(encoding="utf-8")
        assert "[](" not in text, page
        assert "{code-block}" not in text, page


def test_page_with_wrong_output_fails() -> None:
    assert missing(("a ... c", "...", "z"), ["a b c", "y", "z"]) is None
    assert missing(("z", "a"), ["a", "z"]) == "a"
    assert missing(("ab",), ["abc"]) == "ab"


def test_a_diff_block_edits_the_file_above_it() -> None:
    page = "```python\n# a.py\nx = 1\ny = 2\n```\n\n```diff\n{}@@ -2,2 +2,2 @@\n{}```\n"
    head = "--- a.py\n+++ a.py\n"
    _, edited = steps(page.format(head, "-x = 1\n+x = 3\n y = 2\n"))
    assert edited == File("a.py", "# a.py\nx = 3\ny = 2\n", line=7)
    with pytest.raises(ValueError, match="line 7: a diff whose old lines are not in the file once"):
        list(steps(page.format(head, "-x = 0\n+x = 3\n")))


def test_a_folded_block_is_the_file_in_its_summary() -> None:
    summary = "<summary><code>a.py</code></summary>"
    page = f"<details>\n{summary}\n\n```python\nx = 1\n```\n\n</details>\n"
    assert [*steps(page)] == [File("a.py", "x = 1\n", line=4)]
    assert [*steps("<!-- file: a.py\n-->\n")] == [File("a.py", "", line=1)]
    with pytest.raises(ValueError, match="line 1: a file that readers of the page do not see"):
        list(steps("<!-- file: a.py\nx = 1\n-->\n"))


def test_unknown_block_is_an_error() -> None:
    with pytest.raises(ValueError, match="line 1: a block of pyhton"):
        list(steps("```pyhton\nx\n```\n"))
    with pytest.raises(ValueError, match="line 1: a console block begins with a command"):
        list(steps("```console\npytest\n```\n"))


def test_the_first_page_has_the_release_that_the_pages_describe() -> None:
    line = f"These pages describe release {pytest_torchgraph.__version__} and the changes that"
    assert line in (DOCS / "index.md").read_text(encoding="utf-8")


def test_readme_and_the_page_for_agents_stay_short() -> None:
    readme = re.sub(r"^```.*?^```$", "", README.read_text(encoding="utf-8"), flags=re.M | re.S)
    assert 300 < len(readme.split()) <= 800
    agents = (DOCS / "coding_agents.md").read_text(encoding="utf-8").splitlines()
    assert 30 < len(agents) <= 60


def test_readme_shows_the_failure_in_its_picture() -> None:
    places = re.findall(r"modeling_bert\.py:\d+", README.read_text(encoding="utf-8"))
    picture = (DOCS / "failure.svg").read_text(encoding="utf-8")
    assert len({*places}) == 1
    assert places[0] in picture


def test_every_link_of_the_readme_leads_to_a_file() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README.read_text(encoding="utf-8"))
    assert len(links) > 20
    assert [link for link in links if not (README.parent / link).exists()] == []


def test_the_reference_has_every_public_name() -> None:
    text = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    named = re.findall(r":: pytest_torchgraph\.(\w+)", text)
    assert sorted(named) == pytest_torchgraph.__all__


def test_reference_has_the_signatures_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_signatures(text) == text, "run python tests/docs/signatures.py"
    assert "\nCapture.assert_no_ops(" in text
    assert with_signatures(text.replace("assert_no_ops(*ops", "assert_no_ops(ops")) == text


def test_reference_describes_every_public_name() -> None:
    text = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    for section in re.split(r"^## ", text, flags=re.M)[1:]:  # a reader of Markdown sees the table
        rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.M)
        names = re.findall(r":: pytest_torchgraph\.(\w+)", section)
        assert rows == [(name, first_line(name)) for name in names]


def first_line(name: str) -> str:
    text = inspect.getdoc(getattr(pytest_torchgraph, name))
    assert text is not None
    return text.partition("\n")[0]


def test_the_reference_has_every_option_and_argument(pytestconfig: pytest.Config) -> None:
    """The ini options of limits share one row, as `torchgraph_max_graphs`, `_within`."""
    options = (DOCS / "reference" / "options.md").read_text(encoding="utf-8")
    flags = [
        flag
        for group in pytestconfig._parser._groups
        for option in group.options
        for flag in option.names()
        if flag.startswith("--torchgraph")
    ]
    ini = [name for name in pytestconfig._parser._inidict if name.startswith("torchgraph_")]
    assert len(flags) > 5
    assert len(ini) > 10
    for name in flags + ini:
        assert f"`{name}" in options or f"`{name.removeprefix('torchgraph')}`" in options, name
    marker = (DOCS / "reference" / "marker.md").read_text(encoding="utf-8")
    assert [f"| `{name}` |" in marker for name in NAMES] == [True] * len(NAMES)


def test_the_reference_has_every_assertion() -> None:
    text = (DOCS / "reference" / "assertions.md").read_text(encoding="utf-8")
    both = (*dir(pytest_torchgraph.Capture), *dir(pytest_torchgraph.Ranks))
    methods = sorted({name for name in both if name.startswith("assert_")})
    assert len(methods) > 20
    assert [name for name in methods if f"`{name}(" not in text] == []


def test_the_reference_has_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    from pytest_torchgraph.cli import main

    text = (DOCS / "reference" / "command_line.md").read_text(encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["--help"])
    commands = re.findall(r"^    (\w+)  ", capsys.readouterr().out, re.M)
    assert len(commands) > 3
    assert [name for name in commands if f"| `{name} " not in text] == []


def test_rules_are_documented_as_they_are() -> None:
    """`PYTHONPATH=tests:. python tests/docs/rules.py` updates the page."""
    assert RULES_PAGE.read_text(encoding="utf-8") == rules_page()
