"""``localeval view`` in a real Chromium: from all runs to one sample and back, and two runs compared."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page, expect

from localeval.view.server import Server, serving
from localeval.view.viewer import Viewer
from tests.browser.conftest import HOSTILE, Opened, _replayed, _samples
from tests.browser.test_run_page import PHONE, ids


@pytest.fixture(scope="session")
def served(
    tmp_path_factory: pytest.TempPathFactory, mcq_run: Path, ner_run: Path, logprob_run: Path, hostile_run: Path
) -> Iterator[Server]:
    """Five runs: those of the pages, and a second one over MILU's sample rows."""
    folder = tmp_path_factory.mktemp("second")
    said = {sample.id: f"ANSWER: {sample.gold[0]}" for sample in _samples("milu")}
    second = _replayed(folder, said, model="second", datasets=["milu"], samples=True)
    viewer = Viewer([mcq_run, ner_run, logprob_run, hostile_run, second])
    server = serving(viewer, 0)
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
    viewer.close()


def scores(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "scores.jsonl").read_text().splitlines()]


def run_of(page: Page, folder: Path) -> None:
    """From all runs to one of them."""
    page.locator(f'a[title="{folder}"]').click()
    expect(page.locator(".count")).to_contain_text("samples")


def test_from_all_runs_to_a_sample_and_back(served: Server, mcq_run: Path, opened: Opened) -> None:
    page = opened(served.address)
    assert page.locator("h2").all_text_contents() == ["conllpp", "milu", "milu, logprob", "names"]
    run_of(page, mcq_run)
    expect(page.locator(".count")).to_have_text("55 of 55 samples")
    unread = [str(row["sample_id"]) for row in scores(mcq_run) if row["parsed"] is None]
    page.locator("select[name=outcome]").select_option("unparsed")
    expect(page.locator(".count")).to_have_text(f"{len(unread)} of 55 samples")
    assert ids(page) == unread
    page.locator("ul.rows li").nth(1).click()
    expect(page.locator("article.sample h3")).to_contain_text(unread[1])
    page.get_by_role("link", name="All runs").click()
    expect(page.locator("h1")).to_have_text("Runs")
    page.go_back()
    expect(page.locator("article.sample h3")).to_contain_text(unread[1])
    expect(page.locator(".count")).to_have_text(f"{len(unread)} of 55 samples")


def test_search_and_pages_are_the_servers(served: Server, mcq_run: Path, ner_run: Path, opened: Opened) -> None:
    page = opened(served.address)
    run_of(page, mcq_run)
    everything = [str(row["sample_id"]) for row in scores(mcq_run)]
    assert ids(page) == everything  # two pages
    page.locator("input[type=search]").fill("TAMIL:3")
    expect(page.locator(".count")).to_have_text("1 of 55 samples")
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".count")).to_have_text("55 of 55 samples")
    page.evaluate("location.hash = '#sample=Telugu:2'")
    expect(page.locator(".place")).to_have_text("51 to 55")
    expect(page.locator("article.sample h3")).to_contain_text("Telugu:2")


def test_hostile_replies_stay_text(served: Server, mcq_run: Path, hostile_run: Path, opened: Opened) -> None:
    page = opened(served.address)
    run_of(page, mcq_run)
    for index in (0, 1, 3):
        page.evaluate("id => { location.hash = '#sample=' + id }", f"English:{index}")
        expect(page.locator("article.sample h3")).to_contain_text(f"English:{index}")
        assert page.locator("article.sample pre").first.text_content() == HOSTILE[index]
    page.evaluate("location.hash = '#sample=English:2'")
    expect(page.locator("article.sample pre").first).to_have_text(
        "turned\\u200b \\u202e round \\u2066 ANSWER: C \\x00\\x1b[31m\\ud800"
    )
    page.evaluate("location.hash = '#sample=English:4'")
    expect(page.locator("article.sample .left-out")).to_contain_text("800,018 characters left out")
    page.get_by_role("link", name="All runs").click()
    run_of(page, hostile_run)
    expect(page.locator("article.sample")).to_contain_text("</script><i>odd&\\u202e")
    assert page.evaluate("window.pwned") is None


def test_two_runs_that_are_chosen_are_compared(served: Server, opened: Opened) -> None:
    page = opened(served.address)
    table = page.get_by_role("region", name="Runs of milu", exact=True)
    for box in table.get_by_role("checkbox").all():
        box.check()
    page.get_by_label("baseline").select_option("best")
    page.get_by_role("button", name="Compare the chosen runs").click()
    expect(page).to_have_url(re.compile(r"/compare\?baseline=best&run=\w{16}&run=\w{16}$"))
    assert page.locator("table.board tbody th a").all_text_contents() == ["second", "replayed"]
    expect(page.locator("table.board tbody tr").first).to_contain_text("★ best")
    page.locator("#flips tbody td a").last.click()
    expect(page.locator("article.sample h3")).to_contain_text(":")
    page.get_by_role("link", name="All runs").click()
    expect(page.locator("h1")).to_have_text("Runs")


def test_all_runs_on_a_phone_and_read_aloud(served: Server, opened: Opened, mcq_run: Path) -> None:
    page = opened(served.address, bypass_csp=True, **PHONE)
    assert page.evaluate("[document.scrollingElement.scrollWidth, innerWidth]") == [390, 390]
    found = Axe().run(page)
    assert [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in found.response["violations"]] == []
    run_of(page, mcq_run)
    found = Axe().run(page)
    assert [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in found.response["violations"]] == []
