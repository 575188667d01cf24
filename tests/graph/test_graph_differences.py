"""What is said of a difference, in examples: graphs before and after as one patch, and the words.

`PYTHONPATH=tests:. python tests/graph/test_graph_differences.py` writes the words of all examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch  # noqa: F401 (the names of arguments are in the schemas of its ops)

from pytest_torchgraph.graph import Graph, diff_graphs, equal_programs, parse_text

FILES = {file.stem: file for file in sorted((Path(__file__).parent / "differences").iterdir())}


def examples(topic: str) -> dict[str, str]:
    """Return the examples of a file by their titles."""
    found = FILES[topic].read_text(encoding="utf-8").strip("\n").split("\n\n== ")
    return dict(each.removeprefix("== ").split("\n", 1) for each in found)


def said(example: str) -> str:
    """Return the example with what is said now."""
    patch = example.partition("\n-- said")[0]
    old, new = (
        [line[1:] for line in patch.split("\n") if line[:1] not in (other, "#")] for other in "+-"
    )
    before, after = (
        parse_text("\n".join(["torchgraph 4\n", *side, ""])).graphs for side in (old, new)
    )
    words = f"{patch}\n-- said\n{in_words(before, after)}"
    return f"{words}\n-- undone\n{in_words(after, before)}" if "\n-- undone\n" in example else words


def in_words(before: Sequence[Graph], after: Sequence[Graph]) -> str:
    diff = diff_graphs(before, after)
    same = equal_programs(before, after)
    assert bool(diff) != same
    if len(before) == len(after) == 1:
        assert (before[0] == after[0]) == (after[0] == before[0]) == same
        assert hash(before[0]) == hash(after[0]) or not same
    return "\n".join(dict.fromkeys([diff.heading(), diff.to_text(None)]))


@pytest.mark.parametrize(
    ("topic", "title"), [(topic, title) for topic in FILES for title in examples(topic)]
)
def test_difference_is_said_as_in_the_example(topic: str, title: str) -> None:
    example = examples(topic)[title]
    assert said(example) == example


if __name__ == "__main__":
    for topic, file in FILES.items():
        texts = (f"== {title}\n{said(text)}" for title, text in examples(topic).items())
        file.write_text("\n\n".join(texts) + "\n", encoding="utf-8")
