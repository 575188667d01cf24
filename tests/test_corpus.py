"""The page of the corpus says why models are refused: compared with the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import corpus.models.border
import corpus.models.hand  # noqa: F401
from corpus import measure, table
from pytest_torchgraph import CaptureError, capture

PAGE = (Path(__file__).parents[1] / "docs" / "measured" / "corpus.md").read_text()
REASONS = dict(re.findall(r"^(\d+)\. (.*)", PAGE, re.MULTILINE))
ROWS = re.findall(r"^\| (\w+) \| by hand \| ([^|]*) \| ([^|]*) \|", PAGE, re.MULTILINE)
CASES = {
    f"{name}-{via}": cell
    for name, *cells in ROWS
    for via, cell in zip(measure.VIAS, cells, strict=True)
    if "(unlike eager)" not in cell and not cell.startswith("torch")
}
QUICK = ["cond_in_graph-dispatch", "part_compiled_already-dispatch", "masked_select-dispatch"]


@pytest.mark.parametrize("case", QUICK)
def test_page_of_the_corpus_says_what_is_refused(case: str) -> None:
    """The reason may depend on the release of torch, and then only the refusal is compared."""
    name, via = case.rsplit("-", 1)
    model = measure.made(name)
    why = ""
    try:
        with model.context():
            capture(model.target, *model.args, via=via, loss_fn=model.loss_fn, **model.kwargs)
    except CaptureError as error:
        why = table.reason({"refused": str(error)})
    reason = re.search(r"(?:refused|REFUSED) \((\d+)\)", CASES[case])
    assert bool(why) == bool(reason)
    if reason is not None:
        assert why.split()[:4] == REASONS[reason[1]].split()[:4]
