"""The code blocks of a documentation page, as a project that can be run.

A page is read from top to bottom:

- a block that begins with a file name in a comment is that file; a later block replaces it;
- any other Python block is appended to the page's own test file;
- a console block has commands, each after `$ `, and their output;
- a diff block that begins with `--- NAME` and `+++ NAME` edits that file;
- a block in a `<details>` with a file name in its `<summary>` is that file;
- a comment `<!-- file: NAME -->` empties that file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt

DOCS = Path(__file__).parents[2] / "docs"

_EMPTIED = re.compile(r"<!-- file: (?P<name>\S+)\n-->")
_FOLDED = re.compile(r"<details>\n<summary><code>(?P<name>\S+)</code></summary>")
_EDIT = re.compile(r"--- (?P<name>\S+)\n\+\+\+ (?P=name)\n(?=@@ )")
_NAMED = re.compile(r"# (?P<name>[\w./]+\.(?:py|ini|toml|yml))\n")


@dataclass(frozen=True)
class File:
    """A file that the page writes. `name` is None for the end of the page's test file."""

    name: str | None
    text: str
    line: int


@dataclass(frozen=True)
class Command:
    """A command, and the output lines that the page shows."""

    words: tuple[str, ...]
    printed: tuple[str, ...]
    line: int


def steps(text: str) -> Iterator[File | Command]:
    """Yield the files and commands of a page, in order.

    Raises:
        ValueError: for a block of unknown type.
    """
    written: dict[str, str] = {}
    folded = ""
    for token in MarkdownIt().parse(text):
        line = token.map[0] + 1 if token.map else 0
        if token.type == "html_block":
            if emptied := _EMPTIED.match(token.content):
                written[emptied["name"]] = ""
                yield File(emptied["name"], "", line)
            elif "<!-- file" in token.content:
                raise ValueError(f"line {line}: a file that readers of the page do not see")
            elif named := _FOLDED.match(token.content):
                folded = named["name"]
        if token.type != "fence":
            continue
        language = token.info.strip()
        if folded:
            written[folded] = token.content
            yield File(folded, token.content, line)
            folded = ""
        elif language == "console":
            yield from _commands(token.content, line)
        elif named := _NAMED.match(token.content):
            written[named["name"]] = token.content
            yield File(named["name"], token.content, line)
        elif edit := _EDIT.match(token.content):
            name = edit["name"]
            written[name] = _edited(written.get(name, ""), token.content[edit.end() :], line)
            yield File(name, written[name], line)
        elif language == "python":
            yield File(None, token.content, line)
        elif language not in ("text", "diff", "bash", "yaml") and not language.startswith("{"):
            raise ValueError(f"line {line}: a block of {language or 'nothing'}")


def _commands(content: str, line: int) -> Iterator[Command]:
    lines = content.splitlines()
    starts = [at for at, text in enumerate(lines) if text.startswith("$ ")]
    if any(text.strip() for text in lines[: starts[0] if starts else None]):
        raise ValueError(f"line {line}: a console block begins with a command, `$ ...`")
    for start, end in pairwise([*starts, len(lines)]):
        printed = tuple(text for text in lines[start + 1 : end] if text.strip())
        yield Command(tuple(shlex.split(lines[start][2:])), printed, line + 1 + start)


def _edited(text: str, hunks: str, line: int) -> str:
    for hunk in re.split(r"^@@ .*\n", hunks, flags=re.M)[1:]:
        lines = hunk.splitlines(keepends=True)
        old = "".join(diffed[1:] for diffed in lines if diffed[0] in " -")
        if text.count(old) != 1:
            raise ValueError(f"line {line}: a diff whose old lines are not in the file once")
        text = text.replace(old, "".join(diffed[1:] for diffed in lines if diffed[0] in " +"))
    return text


def missing(printed: tuple[str, ...], output: list[str]) -> str | None:
    """Return the first line of the page that the command did not print in this order, or None.

    A `...` in a line matches any text, and a line `...` matches any lines.
    """
    at = 0
    for wanted in printed:
        if wanted.strip() == "...":
            continue
        pattern = re.compile(".*".join(map(re.escape, wanted.rstrip().split("..."))) + r"\s*\Z")
        found = next((n for n in range(at, len(output)) if pattern.match(output[n])), None)
        if found is None:
            return wanted
        at = found + 1
    return None
