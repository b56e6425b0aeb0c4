"""report.html of several models in a real Chromium: opened from disk, with the network off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import expect

from localeval.scoring import find_finished
from localeval.together import entries_of, page_of, several_of, write_page
from tests.browser.conftest import Opened, _replayed, _samples
from tests.browser.test_run_page import PHONE


@pytest.fixture(scope="session")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A work folder: a base model and three checkpoints over MILU's sample rows, better and better; their page."""
    folder = tmp_path_factory.mktemp("several")
    samples = _samples("milu")
    runs = []
    # The last two differ in three samples: p is 0.25. The others lie further behind than chance explains.
    for name, of_nine, first in (
        ("base", 2, 0),
        ("checkpoint-10", 3, 0),
        ("checkpoint-20", 8, 3),
        ("checkpoint-30", 8, 0),
    ):
        said = {}
        for index, sample in enumerate(samples):
            right = index % 9 < of_nine and index >= first
            said[sample.id] = f"ANSWER: {sample.gold[0]}" if right else "ANSWER: " + "BA"[sample.gold == ("B",)]
        place = folder / name
        place.mkdir(parents=True)
        config = {"model": f"run/{name}", "datasets": ["milu"], "samples": True, "work_dir": str(folder / "runs")}
        runs.append(_replayed(place, said, **config))
    write_page(folder / "runs" / "compared" / "report.html", runs)
    return folder / "runs" / "compared" / "report.html"


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory, hostile_run: Path) -> Path:
    """Two runs of a dataset whose own names hold markup."""
    (names,) = hostile_run.parent.parent.parent.glob("*.yaml")
    said = {f"default:{n}": "<response><person>Ann</person> </script> left</response>" for n in (0, 1)}
    folder = tmp_path_factory.mktemp("several-hostile")
    config = {"datasets": [str(names)], "dataset_args": {"names": {"few_shot_num": 0}}}
    other = _replayed(folder, said, **config)
    write_page(folder / "report.html", [hostile_run, other])
    return folder / "report.html"


def test_the_leaderboard_sorts_and_leads_to_runs(several: Path, opened: Opened) -> None:
    page = opened(several)
    table = page.locator("table.board")
    models = table.locator("tbody th a")
    assert models.all_text_contents() == ["checkpoint-30", "checkpoint-20", "checkpoint-10", "base"]
    told = table.locator("tbody td.told:nth-of-type(6)").all_text_contents()
    assert [text.split(" (")[0] for text in told] == ["★ best", "★ leading", "behind", "behind"]
    values = []
    for link in models.evaluate_all("links => links.map(a => a.getAttribute('href'))"):
        report = json.loads((several.parent / link).resolve().with_name("report.json").read_text())
        values.append(f"{report['metrics']['accuracy']['value']:.4f}")
    assert table.locator("tbody strong").all_text_contents() == values
    table.get_by_role("button", name="step").click()
    table.get_by_role("button", name="step").click()
    assert models.all_text_contents() == ["checkpoint-10", "checkpoint-20", "checkpoint-30", "base"]
    expect(table.locator("th[aria-sort=ascending]")).to_have_text("step")


def test_charts_are_drawn_and_a_flip_leads_to_its_sample(several: Path, opened: Opened) -> None:
    page = opened(several)
    assert page.locator(".chart svg.marks").count() == page.locator("script.spec").count() == 2
    fold = page.locator("#flips details", has_text="checkpoint-30 against base")
    fold.locator("summary").click()
    lost, gained = fold.locator("text=▼ lost").count(), fold.locator("text=▲ gained").count()
    expect(fold.locator("summary")).to_contain_text(f"{gained} gained, {lost} lost")
    assert gained > 10
    row = fold.locator("tbody tr").first
    name = row.locator("th").text_content()
    link = row.locator("td a").last.get_attribute("href")
    target, _, fragment = str(link).partition("#")
    sample = opened((several.parent / target).resolve(), f"#{fragment}")
    expect(sample.locator("article.sample h3")).to_contain_text(str(name))


def test_before_the_comparison(several: Path, opened: Opened, tmp_path: Path) -> None:
    """As it is written while models are still to come."""
    runs = find_finished([several.parent.parent])
    (tmp_path / "report.html").write_text(page_of(several_of(entries_of(runs, lambda _: ""), None)))
    page = opened(tmp_path / "report.html")
    assert page.locator("svg.marks").count() == 2
    expect(page.locator("table.board thead")).not_to_contain_text("against")


def test_strangers_names_stay_text(hostile: Path, opened: Opened) -> None:
    page = opened(hostile)
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    expect(page.locator("#flips")).to_contain_text("PER&quot;'onload=window.pwned=5: Ann")
    expect(page.locator("#flips")).to_contain_text("Ann </script> left")
    assert page.evaluate("window.pwned") is None
    assert page.locator("main img, main i, main u").count() == 0


def test_on_a_phone_and_on_paper(several: Path, opened: Opened) -> None:
    page = opened(several, **PHONE)
    assert page.evaluate("[document.scrollingElement.scrollWidth, innerWidth]") == [390, 390]
    assert all(box and box["width"] <= 390 for box in (each.bounding_box() for each in page.locator("svg.marks").all()))
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("main details").evaluate_all("all => all.every(each => each.open)")
    assert page.locator("#flips tbody tr:visible").count() > 10


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_stands_in_the_way_of_a_screen_reader(several: Path, opened: Opened, scheme: str) -> None:
    page = opened(several, bypass_csp=True, color_scheme=scheme)
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    found = Axe().run(page)
    assert [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in found.response["violations"]] == []
