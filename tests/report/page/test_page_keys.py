"""The page used by the keyboard only, and on paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from report.page.pages import difference, one_test, settled, trained, view_box, written

TOP = """() => {
  const box = document.querySelector('.view').shadowRoot.querySelector('.chosen');
  const shape = box.querySelector('path, polygon, ellipse').getBBox();
  return Math.round(shape.y);
}"""
CAUSES = {
    "heading": "1 cause in 2 tests",
    "releases": [],
    "accept": "pytest --lf --torchgraph-update",
    "list": [
        {
            **{"sign": "~", "what": "aten.gelu -> aten.relu", "where": "layers.2", "places": 1},
            **{"costs": "", "sources": [], "before": "%a", "after": "%b"},
            "files": [f"test_a.py::test_{n}" for n in range(12)],
        }
    ],
}


@pytest.fixture(scope="module")
def tests(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    directory = tmp_path_factory.mktemp("keys")
    diff = difference(trained(removed=4), trained(changed=2, added=3), directory)
    message = "\n".join(f"line {n} of the message" for n in range(100))
    return [
        one_test("test_a.py::test_0", "failed", message=message, differences=[diff]),
        one_test("test_a.py::test_1"),
        one_test("test_a.py::test_2", "failed", message="E  assert 0"),
    ]


@pytest.fixture
def page(opened: Any, tmp_path: Path, tests: list[dict[str, Any]]) -> Any:
    return opened.open(written(tmp_path, *tests, causes=CAUSES))


def heading(page: Any) -> str:
    return str(settled(page).locator("main h2").first.inner_text())


def focused(page: Any) -> str:
    return str(settled(page).evaluate("document.activeElement.textContent"))


def test_keys_lead_through_tests_findings_and_causes(page: Any) -> None:
    page.keyboard.press("j")
    assert heading(page) == focused(page) == "failed test_a.py::test_0"
    page.keyboard.press("n")
    assert "added in layers.3" in focused(page)
    page.keyboard.press("n")
    page.keyboard.press("n")
    assert "removed in layers.4" in focused(page)  # the last one
    assert "dropout" in page.locator(".view .chosen").first.text_content()
    page.keyboard.press("p")
    assert "added in layers.3" in focused(page)
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert heading(page) == "failed test_a.py::test_2"
    page.keyboard.press("k")
    assert heading(page) == "passed test_a.py::test_1"
    page.keyboard.press("n")  # no finding is left
    page.keyboard.press("c")
    assert heading(page) == focused(page) == "1 cause in 2 tests"
    page.keyboard.press("a")  # no audit exists
    assert heading(page) == "1 cause in 2 tests"
    for test in (0, 2, 2):
        page.keyboard.press("f")
        assert heading(page) == f"failed test_a.py::test_{test}"
    page.keyboard.press("/")
    page.keyboard.type("test_1")
    assert page.locator("nav li").count() == 1


@pytest.mark.slow("a browser, for further keys, addresses and panes")
def test_keys_lead_through_the_findings_of_several_differences(
    opened: Any, tmp_path: Path, tests: list[dict[str, Any]]
) -> None:
    twice = {**tests[0], "differences": tests[0]["differences"] * 2}
    page = settled(opened.open(written(tmp_path, twice)))
    shown = page.locator('.findings [aria-current="true"]')
    signs = []
    for key in "nnnnnnppppp":
        page.keyboard.press(key)
        signs.append("".join(text[0] for text in shown.all_inner_texts()))
    assert signs == ["+~", "-~", "-~", "-+", "--", "--", "-+", "-~", "-~", "+~", "~~"]
    assert page.evaluate("location.hash").endswith("&finding=1")


@pytest.mark.slow("a browser, for further keys, addresses and panes")
def test_keys_lead_to_the_list_and_to_the_search(page: Any) -> None:
    page.keyboard.press("j")
    settled(page).keyboard.press("t")
    assert page.evaluate("document.activeElement.closest('nav') !== null")
    assert "test_0" in focused(page)
    page.keyboard.press("/")
    page.keyboard.type("tjkcnp?")  # keys have no effect in a field
    assert page.get_by_label("search the tests").input_value() == "tjkcnp?"
    assert heading(page) == "failed test_a.py::test_0"
    assert page.locator("dialog[open]").count() == 0
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement === document.body")


@pytest.mark.slow("runs pytest in a new process")
def test_help_lists_every_key(page: Any) -> None:
    page.keyboard.press("Control+j")  # the browser's own
    page.keyboard.press("Alt+j")
    assert heading(page) == "1 cause in 2 tests"
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    assert "next and previous test" in dialog.inner_text()
    keys_in_help = dialog.locator("kbd").all_text_contents()
    assert set(page.evaluate("Object.keys(ACTIONS)")) <= set(keys_in_help)
    page.keyboard.press("j")  # the page under the list does not move
    assert heading(page) == "1 cause in 2 tests"
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    page.get_by_role("button", name="keys").click()
    assert dialog.is_visible()


@pytest.mark.slow("a browser, for further keys, addresses and panes")
def test_keys_move_the_picture_that_has_the_focus(page: Any) -> None:
    page.keyboard.press("j")
    page.locator(".view").focus()
    page.keyboard.press("0")
    whole = view_box(page)
    page.keyboard.press("+")
    near = view_box(page)
    assert near[2] < whole[2]
    for key, axis, sign in (("Right", 0, 1), ("Down", 1, 1), ("Left", 0, -1), ("Up", 1, -1)):
        before = view_box(page)[axis]
        page.keyboard.press(f"Arrow{key}")
        assert (view_box(page)[axis] - before) * sign > 0
    page.keyboard.press("-")
    assert view_box(page)[2] == pytest.approx(whole[2])
    page.keyboard.press("b")
    assert page.locator(".view").count() == 2


def test_print_has_causes_and_failures(page: Any) -> None:
    page.evaluate(
        "window.print = () => { window.asked = document.querySelector('main').textContent; }"
    )
    page.get_by_role("button", name="print").click()
    page.wait_for_function("window.asked")
    assert "test_a.py::test_11" in page.evaluate("window.asked")  # folded on the screen
    page.emulate_media(media="print", color_scheme="dark")
    text = page.locator("main").inner_text()
    assert text.index("aten.gelu -> aten.relu") < text.index("failed test_a.py::test_0")
    assert "test_a.py::test_11" in text  # included although it needs a click on the screen
    for words in ("changed in layers.2", "added in layers.3", "line 99 of the message"):
        assert words in text
    assert "line 39 of" not in text
    assert "the last 60 of 100 lines" in text
    assert "test_1\n" not in text.partition("failed test_a.py::test_0")[2]
    seen = page.locator(
        "button:visible, input:visible, select:visible, nav:visible, header:visible"
    )
    assert seen.evaluate_all("all => all.filter((each) => !each.closest('.tests')).length") == 0
    paper = page.locator("main").evaluate("each => getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(255, 255, 255)"
    drawn = page.locator(".drawn")
    assert drawn.count() == 1
    svg = drawn.locator("svg")
    assert svg.bounding_box()["width"] <= page.locator("main").bounding_box()["width"]
    box = svg.locator("g.node path[fill]").first
    assert box.evaluate("each => getComputedStyle(each).fill") == "rgb(255, 255, 255)"


@pytest.mark.slow("runs pytest in a new process")
def test_print_has_an_address_and_a_limit(
    opened: Any, tmp_path: Path, tests: list[dict[str, Any]]
) -> None:
    more = [one_test(f"test_b.py::test_{n}", "failed", message="E") for n in range(60)]
    path = written(tmp_path, *more)
    opened.page.goto(f"{path.as_uri()}#print")
    page = opened.page
    page.locator(".printed").nth(49).wait_for()
    assert page.locator(".printed").count() == 50
    assert "10 more tests failed" in page.locator("main").inner_text()
    assert heading(page) == "60 failed tests"


@pytest.mark.slow("a browser, for further keys, addresses and panes")
def test_finding_keys_and_the_print_view_wait_for_the_loading_test(page: Any) -> None:
    """While a test is still loading, the keys must not use the findings of the previous test."""
    page.keyboard.press("j")
    settled(page)
    page.evaluate("() => { select(2); ACTIONS.n(); }")
    assert heading(page) == "failed test_a.py::test_2"
    assert page.evaluate("location.hash") == "#test=test_a.py::test_2"
    page.evaluate("() => { const asked = showPrint(); select(1); return asked; }")  # abandoned
    assert heading(page) == "passed test_a.py::test_1"
    assert page.evaluate("location.hash") == "#test=test_a.py::test_1"


@pytest.mark.slow("a browser, for further keys, addresses and panes")
def test_boxes_of_a_picture_are_chosen_by_keys(page: Any) -> None:
    page.keyboard.press("f")
    settled(page)
    page.locator(".view").first.focus()
    heading = page.locator(".picture .card strong")
    tops, names = [], []
    for key in ".....,":
        page.keyboard.press(key)
        names.append(heading.inner_text())
        tops.append(page.evaluate(TOP))
        assert page.locator(".view .chosen").count() == 1
    assert tops[:5] == sorted(tops[:5])
    assert len(set(names)) == 5
    assert names[5] == names[3]  # one step back
    for _ in range(60):
        page.keyboard.press(",")
    first = heading.inner_text()
    page.keyboard.press(",")
    assert heading.inner_text() == first
    page.keyboard.press("Escape")
    assert heading.count() == 0
