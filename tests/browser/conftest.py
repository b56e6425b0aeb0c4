"""A real Chromium, and pages of runs that are replayed: choices, letters' probabilities, entities, and hostile text."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, Request, sync_playwright

from localeval import run_task
from localeval.config import load_config
from localeval.jobs import load_jobs
from localeval.schema import Sample
from localeval.tasks.mcq import parse
from localeval.tasks.ner.task import target
from tests.conftest import write_jsonl
from tests.test_unread import SAID, read_choice

FLAGS = ["--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
HOSTILE = [
    "</script><script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 2'> ANSWER: B",
    "turned\u200b \u202e round \u2066 ANSWER: C \x00\x1b[31m\ud800",
    "[a](javascript:window.pwned=3) <svg onload=window.pwned=4> <!-- <script> ANSWER: A",
    "ANSWER: B " + "m" * 1_000_000 + " the end",
]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("LOCALEVAL_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("no Chromium: install one, or name it in LOCALEVAL_CHROMIUM")
    flags = [*FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=flags)
        yield started
        started.close()


Opened = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    """Opens an address or a file, in a context of its own; a file without a network.

    At the test's end nothing may have gone wrong in any of them: no message on the console, no error, no dialog, no
    request but to where the page is from.
    """
    contexts: list[BrowserContext] = []
    problems: list[str] = []

    def open_page(place: Path | str, fragment: str = "", **options: Any) -> Page:
        address = (place.as_uri() if isinstance(place, Path) else place) + fragment
        home = urlsplit(address)
        context = browser.new_context(offline=home.scheme == "file", **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(5000)
        page.on("console", lambda message: problems.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))

        def refuse(dialog: Dialog) -> None:
            problems.append(f"dialog: {dialog.message}")
            dialog.dismiss()

        def ours(address: str) -> bool:
            url = urlsplit(address)
            same = url.path == home.path if home.scheme == "file" else url.netloc == home.netloc
            return url.scheme in ("data", "blob") or (url.scheme == home.scheme and same)

        def asked(request: Request) -> None:
            if not ours(request.url):
                problems.append(f"request: {request.url}")

        page.on("dialog", refuse)
        page.on("request", asked)
        page.goto(address)
        page.evaluate("window.drawn")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


# --- runs ---


@pytest.fixture(scope="session")
def mcq_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MILU's sample rows, 11 scripts: right, wrong, unread, cut, and hostile replies."""
    replies = ["ANSWER: A", "ANSWER: B", "I can't say.", ("ANSWER: C", "length"), "The answer is D."]
    said = {
        sample.id: HOSTILE[index] if index < len(HOSTILE) else replies[index % 5]
        for index, sample in enumerate(_samples("milu"))
    }
    return _replayed(tmp_path_factory.mktemp("mcq"), said, datasets=["milu"], samples=True)


@pytest.fixture(scope="session")
def logprob_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same rows, by letters' probabilities: each letter is the most probable one in turn."""
    folder = tmp_path_factory.mktemp("logprob")
    rows = []
    for index, sample in enumerate(_samples("milu")):
        letters = "ABCD"[: len(sample.choices)]
        known = {letter: -0.5 - ((at + index) % 4) for at, letter in enumerate(letters)}
        continuations = {f" {letter}": value for letter, value in known.items()} | dict.fromkeys(letters, -20.0)
        rows.append({"sample_id": sample.id, "text": "", "continuations": continuations})
    return _run(folder, rows, datasets=["milu"], samples=True, mcq=["logprob"])


@pytest.fixture(scope="session")
def ner_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CoNLL++'s sample rows: right, another type, missed, spurious, invented, malformed and unread."""
    tags = {"PER": "person", "LOC": "location", "ORG": "organization", "MISC": "miscellaneous"}
    said: dict[str, Any] = {}
    for index, sample in enumerate(_samples("conllpp")):
        right = target(sample, tags)
        first = sample.tokens[0]
        said[sample.id] = [
            right,
            right.replace("organization>", "person>"),
            f"<response>{sample.text}</response>",
            right.replace("</response>", " <person>Nobody There</person></response>"),
            f"<response><miscellaneous>{first}</miscellaneous>{sample.text[len(first) :]}</response>",
            (f"<response><person>{sample.text}</response>", "length"),
            "I am sorry.",
        ][index % 7]
    return _replayed(tmp_path_factory.mktemp("ner"), said, datasets=["conllpp"], samples=True)


@pytest.fixture(scope="session")
def unread_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MILU's sample rows with every reason why a reply is not read; readings are made up, see tests/test_unread.py."""
    said = {sample.id: SAID[index % len(SAID)] for index, sample in enumerate(_samples("milu"))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parse, "read", read_choice)
        return _replayed(tmp_path_factory.mktemp("unread"), said, datasets=["milu"], samples=True)


def _samples(dataset: str) -> tuple[Sample, ...]:
    (job,) = load_jobs(load_config({"datasets": [dataset], "samples": True, "engine": "replay:none"}))
    return tuple(job.dataset.samples)


def _replayed(folder: Path, said: dict[str, Any], **config: Any) -> Path:
    rows = []
    for sample_id, reply in said.items():
        text, finish = reply if isinstance(reply, tuple) else (reply, "stop")
        rows.append({"sample_id": sample_id, "text": text, "finish_reason": finish})
    return _run(folder, rows, **config)


def _run(folder: Path, rows: list[dict[str, Any]], **config: Any) -> Path:
    file = folder / "replies.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))  # escapes, so that half a pair can stand there
    result = run_task({"model": "replayed", "engine": f"replay:{file}", "work_dir": str(folder / "runs"), **config})
    return result.runs[0].folder


@pytest.fixture(scope="session")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset whose own names hold markup."""
    folder = tmp_path_factory.mktemp("hostile")
    label = "PER&quot;'onload=window.pwned=5"
    row = {"tokens": ["Ann", "</script>", "left"], "tags": [f"B-{label}", "O", "O"], "kind": "</script><i>odd&\u202e"}
    # A name that every object of JavaScript has; and a half of a character where the list cuts the sentence.
    long = "x" + "\U0001f469" * 100
    other = {"tokens": ["Ann", "</script>", long], "tags": ["B-a&b", "O", "O"], "kind": "constructor"}
    write_jsonl(folder / "rows" / "test.jsonl", [row, other])
    write_jsonl(folder / "rows" / "train.jsonl", [row])
    (folder / "names.yaml").write_text(f"""\
task: ner
path: rows
shots_split: train
columns: {{tokens: tokens, tags: tags}}
groups: {{"<b>kind": kind}}
entities:
  - {{label: "{label}", tag: person, description: people}}
  - {{label: "a&b", tag: location, description: places}}
prompt: "Mark {{entity_list}} ({{entities}}):\\n{{text}}\\n"
shot: "{{text}} => {{target}}"
shots_prompt: "{{shots}}\\n\\n{{prompt}}"
""")
    said = {
        "default:0": "<response><person>Ann</person> </script> left <person>'\"><u>Bo</u></person></response>",
        "default:1": f"<response><person>Ann</person> </script> {long}</response>",
    }
    config = {"datasets": [str(folder / "names.yaml")], "dataset_args": {"names": {"few_shot_num": 0}}}
    return _replayed(folder, said, **config)
