"""Addresses: each view has one, and opening it shows the same view."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from report.page.captured import Captured
from report.page.pages import difference, network, one_test, settled, trained, written

from pytest_torchgraph.report.page import collect

ODD = "test_a.py::test_step[a&b=c#d é/100%]"
CAUSE = {
    **{"sign": "~", "what": "aten.gelu -> aten.relu", "where": "layers.2", "places": 1},
    **{"costs": "", "sources": [], "before": "%a", "after": "%b", "files": [ODD]},
}


@pytest.fixture(scope="module")
def tests(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    directory = tmp_path_factory.mktemp("links")
    diff = difference(trained(removed=4), trained(changed=2, added=3), directory)
    captures = [
        collect.capture_data(Captured(network(n)))  # type: ignore[arg-type]
        for n in (1, 2)
    ]
    return [
        one_test("test_a.py::test_first", captures=captures),
        one_test(ODD, "failed", message="E  assert", differences=[diff]),
    ]


@pytest.fixture
def open_at(opened: Any, tmp_path: Path, tests: list[dict[str, Any]]) -> Callable[[str], Any]:
    causes = {"heading": "1 cause", "releases": [], "accept": "pytest", "list": [CAUSE]}
    path = written(tmp_path, *tests, causes=causes)

    def open_at(hash_: str = "") -> Any:
        opened.page.goto("about:blank")
        opened.page.goto(path.as_uri() + hash_)
        return settled(opened.page)

    return open_at


def heading(page: Any) -> str:
    return str(settled(page).locator("main h2").first.inner_text())


def hash_of(page: Any) -> str:
    return unquote(settled(page).evaluate("location.hash"))


def copied(page: Any, link: Any) -> str:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    link.focus()
    link.click()
    link.and_(page.get_by_text("copied")).wait_for()
    return str(page.evaluate("navigator.clipboard.readText()"))


def test_address_of_a_test_is_its_id(open_at: Any) -> None:
    page = open_at()
    page.locator("nav li button").nth(1).click()
    assert heading(page) == f"failed {ODD}"
    assert hash_of(page) == f"#test={ODD}"
    assert "&" not in page.evaluate("location.hash")  # only the test id, encoded
    url = copied(page, page.locator("main .where .link"))
    assert url == page.url
    page = open_at(url[url.index("#") :])
    assert heading(page) == f"failed {ODD}"


@pytest.mark.slow("a browser, for further keys, addresses and panes")
def test_finding_has_an_address_and_a_link(open_at: Any) -> None:
    page = open_at()
    page.locator("nav li button").nth(1).click()
    page.locator(".findings li button:has(.sign)").nth(2).click()
    assert hash_of(page) == f"#test={ODD}&finding=3"
    url = copied(page, page.locator(".findings .link").nth(1))
    assert unquote(url).endswith("&finding=2")
    page = open_at(url[url.index("#") :])
    assert "added in layers.3" in page.locator('.findings [aria-current="true"]').inner_text()
    assert "clone" in page.locator(".view .chosen").first.text_content()


@pytest.mark.slow("runs pytest in a new process")
def test_removed_node_of_a_second_picture_has_an_address(
    opened: Any, tmp_path: Path, tests: list[dict[str, Any]]
) -> None:
    failed = {**tests[1], "id": "test_a", "differences": tests[1]["differences"] * 2}
    path = written(tmp_path, failed)
    page = settled(opened.open(path))
    page.locator("summary", has_text="All").nth(1).click()
    page.get_by_role("button", name="layers.4/dropout", exact=True).click()
    wanted = "#test=test_a&picture=2&node=layers.4/dropout&graph=forward&old=1"
    assert hash_of(page) == wanted
    page.goto("about:blank")
    page.goto(path.as_uri() + wanted)
    settled(page)
    second = page.locator(".picture").nth(1)
    assert second.locator(".card strong").inner_text() == "layers.4/dropout"
    assert "dropout" in second.locator(".chosen").text_content()
    assert not page.locator(".picture .card").first.is_visible()


@pytest.mark.slow("runs pytest in a new process")
def test_cause_has_an_address(open_at: Any) -> None:
    page = open_at("#causes")
    assert heading(page) == "1 cause"
    url = copied(page, page.locator(".cause .link"))
    page = open_at(url[url.index("#") :])
    assert heading(page) == "1 cause"
    cause = page.locator(".cause")
    assert cause.evaluate("each => document.activeElement === each")


@pytest.mark.slow("a browser, for further keys, addresses and panes")
def test_browser_goes_back_and_forward(open_at: Any) -> None:
    page = open_at()
    assert heading(page) == "1 cause"
    page.locator("nav li button").nth(1).click()
    page.locator(".findings li button:has(.sign)").nth(1).click()
    page.locator("nav li button").nth(0).click()
    page.go_back()
    assert heading(page) == f"failed {ODD}"
    assert "added in" in page.locator('.findings [aria-current="true"]').inner_text()
    assert hash_of(page).endswith("&finding=2")
    page.go_back()
    assert hash_of(page) == f"#test={ODD}"
    page.go_back()
    assert heading(page) == "1 cause"
    page.go_forward()
    assert heading(page) == f"failed {ODD}"


MISSING = [
    ("#test=test_b.py::test_gone", "The test test_b.py::test_gone is not in this page"),
    (f"#test={quote(ODD)}&finding=9", "Finding 9 is not in this test: 3 findings"),
    ("#test=test_a.py::test_first&capture=7", "Capture 7 is not in this page"),
    ("#audit", "This page has no audit"),
    ("#%E0%A4%A", "This page has no %E0%A4%A"),
]


@pytest.mark.slow("a browser, for further keys, addresses and panes")
def test_link_to_a_missing_target_is_reported(open_at: Any) -> None:
    for hash_, said in MISSING:
        page = open_at(hash_)
        alert = page.get_by_role("alert")
        assert said in alert.inner_text(), hash_
        assert heading(page)  # a view is shown anyway
        page.locator("nav li button").first.click()
        settled(page)
        assert alert.count() == 0, hash_


@pytest.mark.slow("runs pytest in a new process")
def test_browser_back_closes_node_details(open_at: Any) -> None:
    page = open_at()
    page.locator("nav li button").nth(1).click()
    page.locator(".view .chosen text").first.click()
    assert page.locator(".picture .card").is_visible()
    page.go_back()
    assert hash_of(page) == f"#test={ODD}"
    assert not page.locator(".picture .card").is_visible()
    page.go_forward()
    assert page.locator(".picture .card strong").inner_text() == "layers.2/relu"


CHOOSE = """(hash) => {
  const found = follow(hash);
  document.querySelector('nav li button').click();
  return found;
}"""


@pytest.mark.slow("a browser, for further keys, addresses and panes")
def test_link_is_followed_in_a_loading_test_unless_another_is_selected(open_at: Any) -> None:
    page = open_at()
    page.evaluate("(hash) => { select(1); return follow(hash); }", f"#test={quote(ODD)}&finding=2")
    assert page.get_by_role("alert").count() == 0
    assert "added in" in page.locator('.findings [aria-current="true"]').inner_text()
    page = open_at()
    page.evaluate(CHOOSE, f"#test={quote(ODD)}&finding=2")
    assert heading(page) == "passed test_a.py::test_first"
    assert hash_of(page) == "#test=test_a.py::test_first"
    assert page.get_by_role("alert").count() == 0


def listed(page: Any) -> list[str]:
    return [str(text) for text in page.locator("nav li .name").all_inner_texts()]


@pytest.mark.slow("a browser, for further keys, addresses and panes")
def test_list_filters_are_in_the_address(open_at: Any) -> None:
    page = open_at()
    page.get_by_role("button", name="1 passed").click()
    page.locator("header input").fill(" Step  100%")
    assert hash_of(page) == "#causes&search=step 100%&hide=passed"
    page.locator("nav li button").first.click()
    url = copied(page, page.locator("main .where .link"))
    assert hash_of(page) == f"#test={ODD}&search=step 100%&hide=passed"

    page = open_at(url[url.index("#") :])
    assert heading(page) == f"failed {ODD}"
    assert listed(page) == [ODD]
    assert page.locator("header input").input_value() == "step 100%"
    chip = page.get_by_role("button", name="1 passed")
    assert chip.get_attribute("aria-pressed") == "false"

    page.evaluate("location.hash = '#causes'")
    page.wait_for_function("document.querySelectorAll('nav li').length === 2")
    assert page.locator("header input").input_value() == ""
    assert chip.get_attribute("aria-pressed") == "true"
    page.go_back()
    page.wait_for_function("document.querySelectorAll('nav li').length === 1")
    assert heading(page) == f"failed {ODD}"
