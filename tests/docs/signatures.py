"""The signatures in `docs/reference/python.md`. `python tests/docs/signatures.py` updates them.

GitHub does not run autodoc, so the page itself has them.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path

import pytest_torchgraph

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python.md"
WITH_METHODS = (
    "GraphTestCase", "GraphCapture", "Capture", "Restart", "Ranks", "Graph", "GraphDiff",
    "RunDiff",
)  # fmt: skip
"""Classes whose methods users call."""
INTERNAL = frozenset(
    {"finish_for_rank", "need_all_ops", "record", "run", "subTest", "torchgraph_isolate"}
)
"""Methods without an underscore that other modules of the package call, or unittest."""
WIDTH = 116
_BLOCK = re.compile(r"```text\n.*?```\n\n(?=```\{eval-rst\})", re.S)


def signature(name: str, function: object) -> str:
    """Return a name with its arguments and defaults, without annotations."""
    found = inspect.signature(function)  # type: ignore[arg-type]
    parameters = [p.replace(annotation=p.empty) for p in found.parameters.values()]
    if "." in name or inspect.isclass(function):
        parameters = [p for p in parameters if p.name != "self"]
    text = str(found.replace(parameters=parameters, return_annotation=found.empty))
    return "\n".join(textwrap.wrap(f"{name}{text}", WIDTH, subsequent_indent="    "))


def signatures(name: str) -> list[str]:
    """Return the signature of a function or mechanism, or those of the methods of a class."""
    value = getattr(pytest_torchgraph, name)
    if name not in WITH_METHODS:
        return [signature(name, value)]
    methods = (
        (method, inspect.getattr_static(value, method))
        for method in dir(value)
        if method == "__call__" or not (method.startswith("_") or method in INTERNAL)
    )
    return [
        signature(
            "graph_capture" if method == "__call__" else f"{name}.{method}", getattr(value, method)
        )
        for method, function in methods
        # From Python 3.13 on, `isroutine` is true of a `cached_property`.
        if callable(getattr(value, method))
        if inspect.isroutine(function) or isinstance(function, classmethod | staticmethod)
        if getattr(value, method).__module__.startswith("pytest_torchgraph")
    ]


def with_signatures(text: str) -> str:
    """Return the page with a block of signatures before the directives of each section."""
    sections = re.split(r"^(?=## )", _BLOCK.sub("", text), flags=re.M)
    for number, section in enumerate(sections):
        title = section.partition("\n")[0]
        if title in ("## Functions", "## Captures", "## Graphs", "## Differences", "## Mechanisms"):
            names = re.findall(r":: pytest_torchgraph\.(\w+)", section)
            if title in ("## Captures", "## Graphs", "## Differences"):
                names = [name for name in names if name in WITH_METHODS]
            lines = "\n".join(line for name in names for line in signatures(name))
            block = f"```text\n{lines}\n```\n\n```{{eval-rst}}"
            sections[number] = section.replace("```{eval-rst}", block, 1)
    return "".join(sections)


if __name__ == "__main__":
    PAGE.write_text(with_signatures(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
