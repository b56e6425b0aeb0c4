"""report.html of a run in a real Chromium: opened from disk, with the network off."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, expect

from localeval.report.reasons import REASONS, reasons_of
from tests.browser.conftest import HOSTILE, Opened

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True}


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    data = (folder / name).read_bytes()
    return [json.loads(line) for line in (gzip.decompress(data) if name.endswith(".gz") else data).splitlines()]


def ids(page: Page) -> list[str]:
    """The samples that the list shows, on all of its pages."""
    found: list[str] = []
    while True:
        found += page.locator("ul.rows li .id").evaluate_all("spans => spans.map(s => s.textContent)")
        later = page.locator("button.later")
        if later.is_disabled():
            return found
        place = page.locator(".place").text_content()
        later.click()
        expect(page.locator(".place")).not_to_have_text(str(place))


def filtered(opened: Opened, folder: Path, fragment: str) -> list[str]:
    page = opened(folder / "report.html", fragment)
    expect(page.locator("article.sample h3, article.sample p")).not_to_have_count(0)
    return ids(page)


# --- what is found ---


def test_every_filter_of_choices_finds_what_the_run_folder_says(mcq_run: Path, opened: Opened) -> None:
    scores = rows(mcq_run, "scores.jsonl")
    golds = {row["sample_id"]: row["gold"] for row in rows(mcq_run, "samples.jsonl.gz")}

    def said(test: Callable[[dict[str, Any]], bool]) -> list[str]:
        return [row["sample_id"] for row in scores if test(row)]

    expected = {
        "#outcome=wrong": said(lambda row: row["parsed"] != golds[row["sample_id"]]),
        "#outcome=right": said(lambda row: row["parsed"] == golds[row["sample_id"]]),
        "#outcome=unparsed": said(lambda row: row["parsed"] is None),
        "#outcome=truncated": said(lambda row: row["notes"].get("truncated", 0) > 0),
        "#subset=Tamil": said(lambda row: row["subset"] == "Tamil"),
        "#by.domain=Science": said(lambda row: row["groups"]["domain"] == "Science"),
        "#gold=B&read=A": said(lambda row: row["parsed"] == "A" and golds[row["sample_id"]] == "B"),
        "#read=": said(lambda row: row["parsed"] is None),
        "#subset=Tamil&outcome=wrong": said(
            lambda row: row["subset"] == "Tamil" and row["parsed"] != golds[row["sample_id"]]
        ),
    }
    page = opened(mcq_run / "report.html")
    for fragment, wanted in expected.items():
        assert wanted, fragment
        page.evaluate("fragment => { location.hash = fragment }", fragment)
        expect(page.locator(".count")).to_have_text(f"{len(wanted)} of 55 samples")
        assert ids(page) == wanted, fragment


def test_every_filter_of_entities_finds_what_the_run_folder_says(ner_run: Path, opened: Opened) -> None:
    scores = rows(ner_run, "scores.jsonl")
    confusion = json.loads((ner_run / "report.json").read_text())["confusion"]
    page = opened(ner_run / "report.html")

    def found(fragment: str) -> list[str]:
        page.evaluate("fragment => { location.hash = fragment }", fragment)
        expect(page).to_have_url(re.compile(re.escape(fragment) + "$"))
        page.wait_for_timeout(50)
        return ids(page)

    for note in ("unparsed", "truncated", "malformed", "invented"):
        wanted = [row["sample_id"] for row in scores if row["notes"].get(note)]
        assert wanted
        assert found(f"#outcome={note}") == wanted
    with_person = [row["sample_id"] for row in scores if "entity:PER" in row["tallies"]]
    assert found("#type=PER") == with_person
    missed = sum(each["n"] for each in confusion if each["gold"] == "PER" and each["predicted"] is None)
    assert 0 < len(found("#gold=PER&read=")) <= missed
    assert found("#gold=ORG&read=PER&ends=same") == ["default:8", "default:15", "default:29"]
    spurious = set(found("#gold="))
    assert {row["sample_id"] for row in scores if row["notes"].get("invented")} <= spurious


def test_each_reason_leads_to_the_replies_that_were_not_read_for_it(unread_run: Path, opened: Opened) -> None:
    report = json.loads((unread_run / "report.json").read_text())
    scores = rows(unread_run, "scores.jsonl")
    page = opened(unread_run / "report.html")
    told = page.locator("#result table tbody tr", has_text="unparsed: ")
    numbers = [int(text) for text in told.locator("td.figure").all_text_contents()]
    assert numbers == sorted(report["unparsed"].values(), reverse=True)
    assert sum(numbers) == report["counts"]["unparsed"] == sum(row["parsed"] is None for row in scores)
    for reason in reasons_of("mcq"):
        wanted = [row["sample_id"] for row in scores if row.get("unparsed_reason") == reason.name]
        assert len(wanted) == report["unparsed"][reason.name] > 0
        told.get_by_role("link", name=f"unparsed: {reason.short}", exact=True).click()
        expect(page.locator(".count")).to_have_text(f"{len(wanted)} of 55 samples")
        assert ids(page) == wanted
        expect(page.locator("select[name=outcome]")).to_have_value(reason.name)
        expect(page.locator("select[name=outcome] option:checked")).to_have_text(
            f"unparsed: {reason.short} ({len(wanted)})"
        )
        expect(page.locator("ul.rows li .verdict").first).to_have_text(f"✗ {reason.short}")
        expect(page.locator("article.sample h3")).to_contain_text(f"✗ unparsed: {reason.short}")
        expect(page.locator("article.sample")).to_contain_text(f"No answer could be read: {reason.words}.")
    page.locator("select[name=outcome]").select_option("label_mismatch")
    expect(page.locator(".count")).to_have_text(f"{report['counts']['label_mismatch']} of 55 samples")
    assert ids(page) == [row["sample_id"] for row in scores if row["notes"].get("label_mismatch")]
    expect(page.locator("article.sample .tag", has_text="label_mismatch")).to_have_count(1)


def test_a_sentence_says_why_it_was_not_read(ner_run: Path, opened: Opened) -> None:
    (score, *_) = [row for row in rows(ner_run, "scores.jsonl") if row["parsed"] is None]
    page = opened(ner_run / "report.html", f"#sample={score['sample_id']}")
    why = REASONS[score["unparsed_reason"]].words
    expect(page.locator("article.sample")).to_contain_text(
        f"could not be read: {why}. No entity, every token counts as wrong."
    )


def test_search_finds_question_reply_and_id_whatever_the_case(mcq_run: Path, opened: Opened) -> None:
    page = opened(mcq_run / "report.html")
    question = next(row for row in rows(mcq_run, "samples.jsonl.gz") if row["subset"] == "Hindi")
    for text, wanted in (
        (question["text"][:25], [question["sample_id"]]),
        ("TAMIL:3", ["Tamil:3"]),
        ("onError='WINDOW.pwned", ["English:1"]),
        ("nowhere to be found", []),
    ):
        page.locator("input[type=search]").fill(text)
        expect(page.locator("article.sample")).to_contain_text(wanted[0] if wanted else "No sample")
        assert ids(page) == wanted
    expect(page.locator("article.sample")).to_have_text("No sample is like this.")
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".count")).to_have_text("55 of 55 samples")


# --- what is shown ---


def test_a_count_a_cell_and_a_bar_lead_to_their_samples(mcq_run: Path, opened: Opened) -> None:
    page = opened(mcq_run / "report.html")
    page.get_by_role("link", name="truncated").click()
    cut = sum(bool(row["notes"].get("truncated")) for row in rows(mcq_run, "scores.jsonl"))
    expect(page.locator(".count")).to_have_text(f"{cut} of 55 samples")
    expect(page.locator("ul.rows")).to_be_focused()
    expect(page.locator("select[name=outcome]")).to_have_value("truncated")
    cell = page.locator("table.confusion td a").first
    number = cell.text_content()
    cell.click()
    expect(page.locator(".count")).to_have_text(f"{number} of 55 samples")
    expect(page.locator("select[name=outcome]")).to_have_value("*")
    page.go_back()
    expect(page.locator(".count")).to_have_text(f"{cut} of 55 samples")
    page.go_back()
    expect(page.locator(".count")).to_have_text("55 of 55 samples")
    page.locator("#parts .chart svg .mark-rect path").first.click(position={"x": 4, "y": 3})
    expect(page.locator(".count")).to_have_text("5 of 55 samples")


def test_an_address_leads_to_one_sample_with_all_of_it(mcq_run: Path, opened: Opened) -> None:
    asked = next(row for row in rows(mcq_run, "samples.jsonl.gz") if row["sample_id"] == "Tamil:2")
    reply = next(row for row in rows(mcq_run, "predictions.jsonl") if row["sample_id"] == "Tamil:2")
    page = opened(mcq_run / "report.html", "#sample=Tamil:2")
    article = page.locator("article.sample")
    expect(article.locator("h3")).to_contain_text("Tamil:2")
    assert article.locator("pre").all_text_contents() == [reply["text"], asked["message"]]
    assert article.locator(".question").text_content() == asked["text"]
    options = article.locator("table.options tbody tr")
    assert [cell.strip() for cell in options.locator("th").all_text_contents()] == list("ABCD")
    expect(options.locator("td", has_text="gold")).to_contain_text(asked["choices"]["ABCD".index(asked["gold"])])
    expect(article).to_be_focused()
    assert page.locator("ul.rows li[aria-selected=true]").count() == 1
    page.evaluate("location.hash = '#sample=Nowhere:1'")
    expect(article).to_contain_text("not inside this page")


def test_entities_are_told_by_words(ner_run: Path, opened: Opened) -> None:
    asked = {row["sample_id"]: row for row in rows(ner_run, "samples.jsonl.gz")}
    page = opened(ner_run / "report.html", "#sample=default:8")
    table = page.locator("article.sample table")
    expect(table).to_contain_text("wrong type")
    place = asked["default:8"]["gold"].split().index("B-ORG")
    expect(table).to_contain_text(asked["default:8"]["tokens"][place])
    for row, word in ((3, "invented"), (2, "missed"), (6, "could not be read")):
        name = next(name for name, each in asked.items() if int(name[8:]) % 7 == row and "B-" in each["gold"])
        page.evaluate("id => { location.hash = '#sample=' + id }", name)
        expect(page.locator("article.sample")).to_contain_text(word)


def test_each_options_probability(logprob_run: Path, opened: Opened) -> None:
    # Log probabilities -0.5, -1.5, -2.5, -3.5: among themselves e^0 / (e^0 + e^-1 + e^-2 + e^-3) = 0.6439 and so on.
    page = opened(logprob_run / "report.html", "#sample=English:0")
    shares = page.locator("article.sample td.share").all_text_contents()
    assert shares == ["0.6439 (0.6065)", "0.2369 (0.2231)", "0.0871 (0.0821)", "0.0321 (0.0302)"]
    expect(page.locator("#reliability svg.marks")).to_have_count(1)


def test_keys_walk_through_samples(mcq_run: Path, opened: Opened) -> None:
    page = opened(mcq_run / "report.html", "#outcome=right")
    right = ids(page)
    rows_ = page.locator("ul.rows")
    rows_.focus()
    for key, at in (("j", 1), ("ArrowDown", 2), ("k", 1), ("ArrowUp", 0), ("ArrowUp", 0)):
        page.keyboard.press(key)
        expect(page.locator("article.sample h3")).to_contain_text(right[at])
        active = rows_.get_attribute("aria-activedescendant")
        assert page.locator(f"#{active}").get_attribute("aria-selected") == "true"
    page.keyboard.press("Enter")
    expect(page.locator("article.sample")).to_be_focused()
    page.keyboard.press("Escape")
    expect(rows_).to_be_focused()
    page.keyboard.press("/")
    expect(page.locator("input[type=search]")).to_be_focused()
    page.keyboard.type("jk")
    expect(page.locator("input[type=search]")).to_have_value("jk")


def test_lists_turn_pages_with_the_keys(mcq_run: Path, opened: Opened) -> None:
    page = opened(mcq_run / "report.html", "#sample=Telugu:0")
    place = page.locator(".place")
    expect(place).to_have_text("51 to 55")
    page.locator("ul.rows").focus()
    page.keyboard.press("k")
    expect(place).to_have_text("1 to 50")
    expect(page.locator("article.sample h3")).to_contain_text("Tamil:4")
    page.keyboard.press("j")
    expect(place).to_have_text("51 to 55")


def test_a_table_sorts_by_numbers_and_says_so(mcq_run: Path, opened: Opened) -> None:
    page = opened(mcq_run / "report.html")
    page.locator("#parts details summary", has_text="Table by subset").click()
    table = page.locator("#parts table").first
    table.get_by_role("button", name="accuracy").click()
    values = [float(text) for text in table.locator("tbody td:nth-child(3)").all_text_contents()]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) > 1
    expect(table.locator("th[aria-sort=descending]")).to_have_text("accuracy")


# --- hostile text ---


def test_hostile_replies_stay_text(mcq_run: Path, opened: Opened) -> None:
    page = opened(mcq_run / "report.html")
    shown = [
        HOSTILE[0],
        HOSTILE[1],
        "turned\\u200b \\u202e round \\u2066 ANSWER: C \\x00\\x1b[31m\\ud800",
        HOSTILE[3],
    ]
    for index, text in enumerate(shown):
        page.evaluate("id => { location.hash = '#sample=' + id }", f"English:{index}")
        expect(page.locator("article.sample h3")).to_contain_text(f"English:{index}")
        assert page.locator("article.sample pre").first.text_content() == text
    page.evaluate("location.hash = '#sample=English:4'")
    expect(page.locator("article.sample .left-out")).to_contain_text("980,018 characters left out")
    assert page.evaluate("window.pwned") is None
    assert page.locator("article.sample img, article.sample svg, article.sample script").count() == 0


def test_hostile_names_stay_text(hostile_run: Path, opened: Opened) -> None:
    page = opened(hostile_run / "report.html", "#sample=default:0")
    expect(page.locator("article.sample")).to_contain_text("PER&quot;'onload=window.pwned=5")
    expect(page.locator("article.sample")).to_contain_text("</script><i>odd&\\u202e")
    expect(page.locator("article.sample table")).to_contain_text("invented")
    expect(page.locator("ul.rows .line").nth(1)).to_have_text("Ann </script> x" + "\U0001f469" * 72)
    expect(page.locator("#parts .chart").nth(1)).to_contain_text("constructor")
    page.locator("table.confusion td a").first.click()
    expect(page.locator(".count")).to_have_text("1 of 2 samples")
    page.locator("button[type=reset]").click()
    page.locator("select").nth(1).select_option(label="</script><i>odd&\\u202e (1)")
    expect(page.locator(".count")).to_have_text("1 of 2 samples")
    expect(page.locator("select").nth(1)).to_have_value("</script><i>odd&\\u202e")
    assert page.evaluate("window.pwned") is None
    assert page.locator("main img, main i, main u").count() == 0


# --- on any screen, on paper, read aloud ---


@pytest.mark.parametrize("kind", ["mcq", "ner", "logprob", "hostile", "unread"])
def test_nothing_is_wider_than_a_phone(kind: str, request: pytest.FixtureRequest, opened: Opened) -> None:
    page = opened(request.getfixturevalue(f"{kind}_run") / "report.html", **PHONE)
    wide, screen = page.evaluate("[document.scrollingElement.scrollWidth, innerWidth]")
    assert wide <= screen == 390
    size = page.locator("body").evaluate("body => parseFloat(getComputedStyle(body).fontSize)")
    assert size >= 16


@pytest.mark.parametrize(
    ("kind", "scheme"), [("mcq", "dark"), ("ner", "light"), ("logprob", "light"), ("unread", "dark")]
)
def test_nothing_stands_in_the_way_of_a_screen_reader(
    kind: str, scheme: str, request: pytest.FixtureRequest, opened: Opened
) -> None:
    folder = request.getfixturevalue(f"{kind}_run")
    first = rows(folder, "samples.jsonl.gz")[1]["sample_id"]
    page = opened(folder / "report.html", f"#sample={first}", bypass_csp=True, color_scheme=scheme)
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    found = Axe().run(page)
    assert [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in found.response["violations"]] == []


def test_dark_and_light_follow_the_reader(ner_run: Path, opened: Opened) -> None:
    def colours(page: Page) -> list[str]:
        body = page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
        return [body, page.locator(".chart text").first.evaluate("text => getComputedStyle(text).fill")]

    page = opened(ner_run / "report.html", color_scheme="light")
    assert colours(page) == ["rgb(255, 255, 255)", "rgb(27, 31, 36)"]
    page.emulate_media(color_scheme="dark")
    assert colours(page) == ["rgb(20, 23, 27)", "rgb(228, 231, 235)"]


def test_paper_has_every_table_and_the_sample_that_was_chosen(mcq_run: Path, opened: Opened, tmp_path: Path) -> None:
    page = opened(mcq_run / "report.html")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("main details").evaluate_all("all => all.every(each => each.open)")
    assert page.locator("main table th:visible", has_text="accuracy").count() > 0
    assert not page.locator("#samples").is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not page.locator("main details").evaluate_all("all => all.some(each => each.open)")
    page.evaluate("location.hash = '#sample=Tamil:2'")
    expect(page.locator("article.sample h3")).to_be_visible()
    assert not page.locator("ul.rows, form.filters").first.is_visible()
    page.pdf(path=tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").stat().st_size > 20_000


def test_without_scripts_every_number_is_there(mcq_run: Path, opened: Opened, browser: Browser) -> None:
    context = browser.new_context(offline=True, java_script_enabled=False)
    page = context.new_page()
    page.goto((mcq_run / "report.html").as_uri())
    value = json.loads((mcq_run / "report.json").read_text())["metrics"]["accuracy"]["value"]
    expect(page.locator(".figure-large")).to_have_text(f"{value:.4f}")
    expect(page.get_by_text("need JavaScript")).to_be_visible()
    assert not page.locator("#samples").is_visible()
    context.close()


@pytest.mark.parametrize("kind", ["mcq", "ner", "logprob", "unread"])
def test_a_picture_of_each(kind: str, request: pytest.FixtureRequest, opened: Opened, tmp_path: Path) -> None:
    """For whoever wants to look: pytest --basetemp=DIR keeps them. Here only: something is drawn."""
    page = opened(request.getfixturevalue(f"{kind}_run") / "report.html", viewport={"width": 1280, "height": 900})
    drawn = page.locator(".chart svg.marks")
    assert drawn.count() == page.locator("script.spec").count() > 0
    assert all(box and box["width"] > 200 for box in (each.bounding_box() for each in drawn.all()))
    page.screenshot(path=tmp_path / f"{kind}.png", full_page=True)
