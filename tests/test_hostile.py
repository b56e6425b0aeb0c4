"""Strangers' files and replies: nothing of them runs, leaves its folder, speaks to the terminal, or is slow to read."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from localeval import TaskConfig, parse_choice, tags_from_reply
from localeval.bundle import read_manifest
from localeval.cli import _config, main
from localeval.config import load_config, read_config_file
from localeval.datasets.rows import load_dataset
from localeval.datasets.spec import load_spec
from localeval.grammar import Choice, TaggedSentence
from localeval.identity import file_digest
from localeval.jobs import load_jobs
from localeval.model_names import load_models
from localeval.options import eval_parser
from localeval.prompts import Prompter, context_length
from localeval.reply import composed
from localeval.report.curve import curve_svg
from localeval.report.escaping import as_markdown
from localeval.report.points import Point
from localeval.report.text import markdown_table
from localeval.schema import Completion, LocalevalError
from localeval.store import read_predictions
from localeval.tasks.mcq import parse as mcq
from localeval.tasks.ner import parse as ner
from localeval.templates import fill
from localeval.tensors import why_broken
from localeval.visible import visible
from localeval.weights import Sources, find_weights, safe_name
from tests.conftest import MCQ_YAML, NER_YAML, Replies, write_jsonl
from tests.fakes import CHATML, make_tokenizer

settings.register_profile(
    "hostile",
    derandomize=True,
    database=None,
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("hostile")

# --- code of a model ---


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """A file that code of a stranger would write."""
    return tmp_path / "was-run"


def code(marker: Path) -> str:
    """A module that leaves a mark when it is imported."""
    return f"open({str(marker)!r}, 'w').close()\nclass Own: pass\n"


def model_with_code(folder: Path, marker: Path, file: str) -> Path:
    """A model whose ``file`` names a class in its own own.py."""
    make_tokenizer(folder)
    (folder / "own.py").write_text(code(marker))
    told = {
        "auto_map": {"AutoConfig": "own.Own", "AutoTokenizer": ["own.Own", None], "AutoModelForCausalLM": "own.Own"}
    }
    known = json.loads((folder / file).read_text()) if (folder / file).is_file() else {}
    (folder / file).write_text(json.dumps({**known, **told, "model_type": "own", "tokenizer_class": "Own"}))
    return folder


def test_code_of_a_config_is_not_run(tmp_path: Path, marker: Path) -> None:
    folder = model_with_code(tmp_path / "m", marker, "config.json")
    with pytest.raises(LocalevalError, match=r"m/config\.json names code .*\(own\.py\).*--trust-remote-code"):
        context_length(folder)
    assert not marker.exists()


def test_code_of_a_tokenizer_is_not_run(tmp_path: Path, marker: Path) -> None:
    folder = model_with_code(tmp_path / "m", marker, "tokenizer_config.json")
    for extra in folder.glob("tokenizer.json"):
        extra.unlink()
    with pytest.raises(LocalevalError, match=r"tokenizer_config\.json names code .*\(own\.py\).*--trust-remote-code"):
        Prompter(folder)
    assert not marker.exists()


def test_code_is_run_where_it_is_asked_for(tmp_path: Path, marker: Path) -> None:
    """Else the tests above would pass for another reason."""
    folder = model_with_code(tmp_path / "m", marker, "config.json")
    with pytest.raises((LocalevalError, AttributeError)):  # its class is no config
        context_length(folder, trust_remote_code=True)
    assert marker.exists()


def given_as(*words: str) -> TaskConfig:
    """The config of a command line."""
    return load_config(_config(vars(eval_parser().parse_args(["--model", "m", "--datasets", "d", *words]))))


def test_the_flags_alone(tmp_path: Path) -> None:
    assert not given_as().model_args.trust_remote_code
    assert not given_as().allow_pickle
    assert given_as("--trust-remote-code").model_args.trust_remote_code
    assert given_as("--allow-pickle").allow_pickle
    file = tmp_path / "c.yaml"
    file.write_text("model_args: {dtype: float32}\n")
    both = given_as("--trust-remote-code", "--config", str(file)).model_args
    assert (both.trust_remote_code, both.dtype) == (True, "float32")
    also = given_as("--trust-remote-code", "--model-args", '{"revision": "x"}').model_args
    assert (also.trust_remote_code, also.revision) == (True, "x")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"trust_remote_code": True}, "--trust-remote-code"),
        ({"trust-remote-code": True}, "--trust-remote-code"),
        ({"hf_overrides": {"trust_remote_code": True}}, "--trust-remote-code"),
        ({"speculative_config": {"model": "x", "trust_remote_code": True}}, "--trust-remote-code"),
        ({"load_format": "pt"}, "--allow-pickle"),
        ({"load_format": "auto"}, "--allow-pickle"),
        ({"speculative_config": {"draft_load_config": {"load_format": "hf"}}}, "--allow-pickle"),
        ({"load_format": "runai_streamer"}, "weights are read from safetensors"),
        ({"load_format": ["pt"]}, "weights are read from safetensors"),
        ({"tokenizer": "elsewhere"}, "the model's own"),
        ({"hf_config_path": "elsewhere"}, "the model's own"),
        ({"hf_token": "x"}, "nothing is downloaded"),
        ({"download_dir": "/x"}, "nothing is downloaded"),
        ({"worker_extension_cls": "os.system"}, "its own"),
    ],
)
def test_engine_args_that_are_refused(args: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(LocalevalError, match=said):
        TaskConfig(model="m", datasets=["d"], engine_args=args)
    file = tmp_path / "models.yaml"
    file.write_text(yaml.safe_dump({"m": {"path": "x", "engine_args": args}}))
    with pytest.raises(LocalevalError, match=r"models\.yaml, m: .*(refused|can name code)"):
        load_models(str(file))


@pytest.mark.parametrize(
    "name", ["worker_cls", "scheduler_cls", "logits_processors", "speculative_config", "kv_transfer_config"]
)
def test_code_of_installed_packages_is_named_on_the_command_line_alone(name: str, tmp_path: Path) -> None:
    assert TaskConfig(model="m", datasets=["d"], engine_args={name: "a.B"}).engine_args == {name: "a.B"}
    file = tmp_path / "models.yaml"
    file.write_text(yaml.safe_dump({"m": {"path": "x", "engine_args": {name: "a.B"}}}))
    with pytest.raises(LocalevalError, match=f"engine_args {name}: it can name code to run; .*--engine-args"):
        load_models(str(file))


def test_chat_template_args_switch_nothing_on(tmp_path: Path) -> None:
    with pytest.raises(LocalevalError, match="--trust-remote-code"):
        TaskConfig(model="m", datasets=["d"], chat_template_args={"trust_remote_code": True})
    file = tmp_path / "models.yaml"
    file.write_text("m: {path: x, chat_template_args: {trust_remote_code: true}}\n")
    with pytest.raises(LocalevalError, match="--trust-remote-code"):
        load_models(str(file))


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.system('touch MARK') }}",
        "{{ ''['__class__'] }}{{ self._TemplateReference__context.environment }}",
        "{{ ('%s' | attr('__class__')).mro() }}",
        "{% set x = messages.append(1) %}",
        "{% for i in range(1000000) %}{% endfor %}",
        "{{ 1 / 0 }}",
        "{% include '/etc/passwd' %}",
        "{{ '{0.__class__}'.format(1) }}{{ lipsum.__globals__['os'].popen('touch MARK') }}",
    ],
)
def test_a_chat_template_stays_in_its_sandbox(template: str, tmp_path: Path, marker: Path) -> None:
    folder = make_tokenizer(tmp_path / "m", template.replace("MARK", str(marker)))
    with pytest.raises(LocalevalError, match="chat template"):
        list(Prompter(folder).encode(["Hi"]))
    assert not marker.exists()


# --- pickles ---


def test_pickled_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(LocalevalError, match=r"pickled \(pytorch_model\.bin\).*--allow-pickle"):
        find_weights(str(tmp_path), Sources({}), print)
    assert find_weights(str(tmp_path), Sources({}, pickles=True), print).pickled
    index = tmp_path / "pytorch_model.bin.index.json"
    for outside in ("../x.bin", "/x.bin"):
        index.write_text(json.dumps({"weight_map": {"a": outside}}))
        with pytest.raises(LocalevalError, match="outside its folder"):
            find_weights(str(tmp_path), Sources({}, pickles=True), print)
    index.unlink()
    (tmp_path / "pytorch_model.bin").rename(tmp_path / "model.pth")
    with pytest.raises(LocalevalError, match=r"no engine loads model\.pth"):
        find_weights(str(tmp_path), Sources({}, pickles=True), print)


def test_a_pickle_beside_safetensors_is_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    (tmp_path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    weights = find_weights(str(tmp_path), Sources({}, pickles=True), print)
    assert (weights.pickled, [file.name for file in weights.files]) == (False, ["model.safetensors"])


# --- YAML ---

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
READERS = [load_spec, lambda path: load_models(str(path)), read_config_file]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system ['touch MARK']",
        "a: !!python/name:os.system",
        "!!python/object/new:os.system ['touch MARK']",
        BOMB,
        "a: &a [*a]",
        "a: &a {b: *a}",
        "a: &a {<<: [*a, *a]}",
        "[" * 1500,
        "a: 2001-99-99",
        "a: !!binary x",
        "? [a]\n: b",
        "\x00",
        "a: " + "9" * 5000,
    ],
)
def test_yaml_is_plain_values(read: Callable[[Path], Any], text: str, tmp_path: Path, marker: Path) -> None:
    file = tmp_path / "some.yaml"
    file.write_text(text.replace("MARK", str(marker)))
    start = time.process_time()
    with pytest.raises(LocalevalError, match=r"some\.yaml"):
        read(file)
    assert time.process_time() - start < 5
    assert not marker.exists()


def test_aliases_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("a: &a {x: 1}\nb: {<<: *a, y: 2}\n")
    assert read_config_file(tmp_path / "c.yaml") == {"a": {"x": 1}, "b": {"x": 1, "y": 2}}


def test_a_template_fills_named_places_alone(tmp_path: Path) -> None:
    assert fill("{question.__class__} {question} {0} {question!r}", {"question": "{x}"}) == (
        "{question.__class__} {x} {0} {question!r}"
    )
    file = tmp_path / "quiz.yaml"
    file.write_text(MCQ_YAML.replace("One of {letters}", "One of {letters.__class__} {__import__}"))
    with pytest.raises(LocalevalError, match=r"nothing fills \{__import__\}"):
        load_spec(file)


# --- paths ---


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("path", "../rows"),
        ("path", "/etc"),
        ("path", "a\\..\\b"),
        ("path", "a/../../b"),
        ("subsets", ["../x"]),
        ("subsets", ["/x"]),
        ("subsets", [".."]),
        ("subsets", ["a\nb"]),
        ("split", "../test"),
        ("shots_split", ".."),
        ("split", ""),
        ("name", "../x"),
        ("name", ".x"),
        ("hub_id", "../x"),
        ("hub_id", "a/.."),
        ("hub_id", "x"),
    ],
)
def test_a_dataset_stays_in_its_folder(key: str, value: Any, tmp_path: Path) -> None:
    file = tmp_path / "quiz.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(MCQ_YAML), key: value}))
    with pytest.raises(LocalevalError, match=r"quiz\.yaml: .*" + key):
        load_spec(file)


def test_links_out_of_a_dataset(mcq_dataset: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    outside = (rows / "test.jsonl").rename(tmp_path / "outside.jsonl")
    (rows / "test.jsonl").symlink_to(outside)
    with pytest.raises(LocalevalError, match=r"rows/test\.jsonl is a link out of its dataset's folder, to .*outside"):
        load_dataset(load_spec(mcq_dataset))
    (rows / "test.jsonl").unlink()
    outside.rename(rows / "real.jsonl")
    (rows / "test.jsonl").symlink_to("real.jsonl")  # within the folder
    assert len(load_dataset(load_spec(mcq_dataset)).samples) == 5


def test_links_that_a_cache_has(mcq_dataset: Path, tmp_path: Path) -> None:
    """The dataset's folder itself may be a link; a Hugging Face cache links into its own blobs."""
    cache = tmp_path / "datasets--o--quiz"
    snapshot = cache / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (cache / "blobs").mkdir()
    (tmp_path / "rows" / "test.jsonl").rename(cache / "blobs" / "123")
    (snapshot / "test.jsonl").symlink_to("../../blobs/123")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "quiz").symlink_to(cache)
    assert len(load_dataset(load_spec(mcq_dataset), dataset_dir=str(tmp_path / "elsewhere")).samples) == 5
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("../../../rows")
    assert len(load_dataset(load_spec(mcq_dataset), dataset_dir=str(tmp_path / "elsewhere")).samples) == 5


@pytest.mark.parametrize("name", ["../../outside.arrow", "/etc/passwd", "..", "", 7, "missing.arrow"])
def test_a_saved_folder_names_its_own_files(name: Any, mcq_dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "rows" / "test.jsonl").unlink()
    saved = tmp_path / "rows" / "test"
    saved.mkdir()
    (tmp_path / "outside.arrow").write_bytes(b"")
    (saved / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
    (saved / "dataset_info.json").write_text("{}")
    with pytest.raises(LocalevalError, match=r"state\.json names"):
        load_dataset(load_spec(mcq_dataset))


def test_names_of_models_are_no_paths(tmp_path: Path) -> None:
    for asked in ("..", "a/..", "../../x", ".hidden", "a\nb", "a\x1b[2J", "\u202e", "x" * 400, "a\\b"):
        name = safe_name(asked)
        assert name
        assert not name.startswith(".")
        assert "/" not in name
        assert visible(name) == name
        assert len(name) <= 80
    for asked in ("a/../../b", "../b/c", "a/b--c"):
        with pytest.raises(LocalevalError, match="Give the model's folder"):
            find_weights(asked, Sources({}), print)


def test_a_name_is_no_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a Hugging Face cache are called by their digests; a stranger's folder may only say so."""
    blob = tmp_path / "models--o--m" / "blobs" / ("0" * 64)
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"abc")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    assert file_digest(blob) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert file_digest(blob) == "0" * 64


def test_an_index_names_its_own_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    for outside in ("../x.safetensors", "/x.safetensors"):
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": outside}}))
        with pytest.raises(LocalevalError, match="outside its folder"):
            find_weights(str(tmp_path), Sources({}), print)


# --- what is shown ---

STEERING = "\x1b[2J\x07\x00\r\x9b1m\x7f\u202e\u2066"


def test_what_would_steer_a_terminal_is_shown() -> None:
    assert visible(STEERING) == r"\x1b[2J\x07\x00\r\x9b1m\x7f\u202e\u2066"
    assert visible("a\nक\u200dष \u200c é 😀") == "a\nक\u200dष \u200c é 😀"


def test_the_console_shows_no_name_as_it_is(
    mcq_dataset: Path, replies: Replies, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [json.loads(line) for line in (tmp_path / "rows" / "test.jsonl").read_text().splitlines()]
    write_jsonl(tmp_path / "rows" / "test.jsonl", [{**row, "topic": f"birds{STEERING}"} for row in rows])
    mcq_dataset.write_text(MCQ_YAML.replace("task: mcq", json.dumps({"title": STEERING})[1:-1] + "\ntask: mcq"))
    file = replies({f"default:{n}": f"ANSWER: A{STEERING}" for n in range(5)})
    words = ["--engine", f"replay:{file}", "--datasets", str(mcq_dataset), "--work-dir", str(tmp_path / "runs")]
    assert main([*words, "--model", f"m{STEERING}"]) == 0
    assert main(["list", str(mcq_dataset)]) == 0
    assert main(["list", f"nothing{STEERING}"]) == 2
    assert main(["report", str(tmp_path / "runs")]) == 0
    shown = "".join(capsys.readouterr())
    assert r"birds\x1b[2J" in shown
    assert visible(shown) == shown
    (report,) = (tmp_path / "runs").rglob("report.md")
    assert r"birds\\x1b[2J" in report.read_text()
    assert visible(report.read_text()) == report.read_text()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a|b", r"a\|b"),
        ("a\nb\r\n# c", "a b # c"),
        ("`x` **y** __z__ ~~s~~", r"\`x\` \*\*y\*\* \__z_\_ \~\~s\~\~"),
        ("<script>alert(1)</script>", r"\<script>alert(1)\</script>"),
        ("[x](javascript:1) ![y](z) [^1]", r"[x\](javascript:1) \![y\](z) [\^1]"),
        ("https://evil.org www.evil.org a@b.org", r"https\://evil.org www\.evil.org a\@b.org"),
        ("&lt;b&gt; &#60;", r"\&lt;b\&gt; \&#60;"),
        ("\\", "\\\\"),
        ("\x1b[0m", r"\\x1b[0m"),
        ("mit_movie_trivia, [0.10, 0.20] <0.0001 +0.5 1,000", "mit_movie_trivia, [0.10, 0.20] <0.0001 +0.5 1,000"),
    ],
)
def test_markdown_is_the_text_that_it_was(text: str, expected: str) -> None:
    assert as_markdown(text) == expected


@given(st.text(alphabet=st.sampled_from("a|`\\\n\r\u2028\x1b\x85<>[]()!*_&#:/@w."), max_size=40))
def test_a_markdown_table_keeps_its_cells(text: str) -> None:
    lines = markdown_table(["x", "y"], [[text, text]]).split("\n")
    assert len(lines) == len(markdown_table(["x", "y"], [["a", "a"]]).splitlines()) == 3
    bars = lines[2].replace("\\\\", "").replace("\\|", "")
    assert bars.count("|") == 3


def test_a_name_in_a_drawing_is_text() -> None:
    name = "<script>alert(1)</script><a href='javascript:1'>&\"\x1b"
    points = [Point(name, name, step, "quiz", "", "accuracy", 10, 0.5, 0.4, 0.6) for step in (1, 2)]
    points.append(replace(points[0], step=None))
    drawn = curve_svg(points, name)
    assert "&lt;script&gt;" in drawn
    assert "<script" not in drawn
    assert "<a " not in drawn


# --- replies: any text, and in time that grows with it ---

OPTIONS = ("Bakelite", "Nylon", "Teflon", "The moon (A)")
WORDS = ["Ann", "Lee", "left", "Paris", "<b>", "AT&T"]
TAGS = {"PER": "person", "LOC": "location"}
PIECES = [
    *(
        "answer",
        "ANSWER: ",
        "the option is ",
        "A",
        "B)",
        "Nylon",
        "उत्तर ",
        "है",
        "ः",
        "答案",
        "**",
        "\\boxed{",
        "}",
        "\n",
    ),
    *(
        "```",
        "Question: ",
        "<think>",
        "</think>",
        "<person>",
        "</person>",
        "<location",
        "<response>",
        "</response>",
        "[person]",
        "[/person]",
        "&lt;person&gt;",
        "<\\/person>",
        "<entity type='PER'>",
        "</entity>",
        "**",
        '[{"text": "Ann", "label": "PER"}]',
        "Ann - person\n",
        ">",
    ),
    *(
        "Ann",
        "Lee left",
        "&amp;",
        "&#",
        "1" * 5000,
        ";",
        "\u0301",
        "\u200d",
        "\ud800",
        "\ufdfa",
        "\x00",
        "|",
        '{"',
        "। ",
        " ",
    ),
]
any_reply = st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=40).map("".join))


@given(any_reply, st.booleans())
@example("&#" + "1" * 5000 + ";", False)
def test_any_reply_has_a_reading(reply: str, opened: bool) -> None:
    assert mcq.read(reply, OPTIONS, reasoning_opened=opened).letter in (None, *"ABCD")
    assert parse_choice(reply, OPTIONS[:2]) in (None, "A", "B")
    for lists in (False, True):
        tags = ner.read(reply, WORDS, TAGS, "length", opened, lists=lists).tags or tags_from_reply(reply, WORDS, TAGS)
        assert len(tags) == len(WORDS)
        assert all(tag == "O" or (tag[:2] in ("B-", "I-") and tag[2:] in TAGS) for tag in tags)
    for before in (False, True):
        assert TaggedSentence(tuple(WORDS), tuple(TAGS.values()), before).accepts(reply) in (True, False)
        assert Choice("ABC", before).accepts(reply) in (True, False)


@given(any_reply, any_reply.filter(lambda text: not text.startswith("<")))
def test_what_follows_the_reasoning_is_read_as_if_alone(thought: str, reply: str) -> None:
    assert mcq.read(f"{thought}</think>{reply}", OPTIONS) == mcq.read(f"</think>{reply}", OPTIONS)


def test_any_reply_is_judged(tmp_path: Path) -> None:
    for name, text, rows in (
        ("quiz", MCQ_YAML, [{"question": "q", "options": ["a", "b"], "answer": "A", "topic": "t"}]),
        ("names", NER_YAML, [{"tokens": ["Ann", "left"], "ner_tags": ["B-PER", "O"]}]),
    ):
        (tmp_path / f"{name}.yaml").write_text(text.replace("path: rows", f"path: {name}"))
        write_jsonl(tmp_path / name / "test.jsonl", rows)
    jobs = load_jobs(
        load_config({"engine": "replay:x", "datasets": [str(tmp_path / f"{n}.yaml") for n in ("quiz", "names")]})
    )

    @given(any_reply)
    def judged(reply: str) -> None:
        for job in jobs:
            for mode in ("generate", "constrained"):
                score = replace(job, mode=mode).judge(
                    job.dataset.samples[0], Completion("default:0", reply, "stop"), "on", False
                )
                assert all(tally.correct <= tally.gold for tally in score.tallies.values())

    judged()


def test_many_marks_stay_a_text() -> None:
    assert composed("e\u0301") == "é"
    disorder = "a" + "\u0301\u0323" * 2_000  # by itself a square of 4,000 steps
    assert composed(disorder).replace("\u034f", "").count("\u0323") > 1_900
    assert composed("é" * 2_000) == "é" * 2_000
    assert composed("e\u0301" * 2_000) == "é" * 2_000


GROWING = {
    "marks in disorder": "\u0301\u0323",
    "markers": "answer: ",
    "markers in Hindi": "उत्तर है ",
    "the option is": "the option is ",
    "wrong answers": "answer A is wrong\n",
    "letters": "answer: A ",
    "lists": "A) x\nB) y\nanswer: x\n",
    "labels": "A, ",
    "questions": "Question:\n",
    "start tags": "<person>",
    "crossing tags": "<person>a<location>b</person>c</location>",
    "spaced tags": "<person> ",
    "end tags": "</person>",
    "unknown tags": "<b>",
    "tags in lines": "<person>Ann</person>\n",
    "tags with attributes": '<entity type="person">a</entity>',
    "escaped tags": "&lt;person&gt;",
    "square tags": "[person]a[/person]",
    "names and types": "Ann - person\n",
    "JSON, entities": '{"text": "Ann", "label": "PER"}, ',
    "BIO": "Ann B-PER\n",
    "the sentence, changed": "<response>Ann Lee left London</response>\n",
    "blocks": "<response>a</response>",
    "the sentence": "<response>Ann Lee left Paris</response>",
    "entities": "&amp;",
    "spaces": " ",
    "newlines": "\n",
    "think": "<think>",
    "boxes": "\\boxed{",
    "JSON": '{"answer": ',
}


@pytest.mark.parametrize("kind", GROWING)
def test_reading_grows_with_the_reply(kind: str) -> None:
    """Four times the reply takes about four times as long; sixteen, where a square is in it."""
    held = TaggedSentence(tuple(WORDS), tuple(TAGS.values()), True)

    def seconds(reply: str) -> float:
        best = math.inf
        for _ in range(3):
            start = time.process_time()
            mcq.read(reply, OPTIONS)
            ner.read(reply, WORDS, TAGS, "length", lists=True)
            held.accepts(reply)
            best = min(best, time.process_time() - start)
        return best

    replies = [GROWING[kind] * (size // len(GROWING[kind])) for size in (40_000, 160_000)]
    short, long = map(seconds, replies)
    assert long < 8 * short + 0.005


def test_nested_tags_grow_with_the_reply() -> None:
    def seconds(count: int) -> float:
        best = math.inf
        for _ in range(3):
            reply = "<person> <location> " * count + "Ann Lee left Paris" + "</person></location>" * count
            start = time.process_time()
            ner.read(reply, WORDS, TAGS)
            best = min(best, time.process_time() - start)
        return best

    assert seconds(8_000) < 8 * seconds(2_000) + 0.005


# --- files: any bytes ---


def refusal_of(read: Callable[[], Any]) -> str | None:
    """What the error says, or None where there is none. Any other exception goes on."""
    try:
        read()
    except LocalevalError as error:
        return str(error)
    return None


@given(st.binary(max_size=200), st.sampled_from([".jsonl", ".json", ".csv", ".txt", ".parquet"]))
@example(b'{"tokens": ["a"], "ner_tags": [[]]}\n', ".jsonl")
@example(b'{"tokens": ["a"], "ner_tags": [{}]}\n', ".jsonl")
@example(b'{"question": "a", "options": {"a": 1}, "answer": [], "topic": 1e999}\n', ".jsonl")
@example(b'{"question": "a", "options": ["a", "b"], "answer": "\\ud800", "topic": NaN}\n', ".jsonl")
@example(b'{"question": ' + b"9" * 5000 + b"}\n", ".jsonl")
@example(b"[" * 100_000, ".json")
@example(b"PAR1" + b"\xff" * 50 + b"PAR1", ".parquet")
@example(b'question,options,answer,topic\n"', ".csv")
@example(b"a\x00b,c\n", ".csv")
def test_any_data_file_is_rows_or_an_error(tmp_path: Path, data: bytes, suffix: str) -> None:
    for text in (MCQ_YAML, NER_YAML):
        (tmp_path / "own.yaml").write_text(text)
        rows = tmp_path / "rows"
        rows.mkdir(exist_ok=True)
        for old in rows.iterdir():
            old.unlink()
        (rows / f"test{suffix}").write_bytes(data)
        refusal = refusal_of(lambda: load_dataset(load_spec(tmp_path / "own.yaml")))
        assert refusal is None or "own" in refusal or str(tmp_path) in refusal


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from([*yaml.safe_load(MCQ_YAML), "entities", "subsets", "name", "hub_id", "split", "conll", "x"])


@given(st.dictionaries(keys, plain, max_size=3), st.sampled_from([MCQ_YAML, NER_YAML]))
@example({"groups": {"x": "\ud800"}}, MCQ_YAML)
@example({"subsets": [1]}, MCQ_YAML)
@example({"task": []}, MCQ_YAML)
@example({"entities": [{"label": "a", "tag": [], "description": 1}]}, NER_YAML)
def test_any_spec_is_one_or_an_error(tmp_path: Path, changed: dict[str, Any], text: str) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(text), **changed}), encoding="utf-8", errors="surrogatepass")
    refusal = refusal_of(lambda: load_spec(file))
    assert refusal is None or "own.yaml" in refusal


@pytest.mark.parametrize(
    "read", [*READERS, lambda path: read_manifest(path.parent), lambda path: list(read_predictions(path))]
)
def test_any_bytes_are_refused_by_name(read: Callable[[Path], Any], tmp_path: Path) -> None:
    file = tmp_path / ("bundle.json")

    @settings(max_examples=60)
    @given(st.one_of(st.binary(max_size=120), plain.map(lambda value: json.dumps(value).encode() + b"\n")))
    @example(b"[" * 100_000)
    @example(b"a: \xff")
    @example(b'{"sample_id": "a", "text": "b", "finish_reason": "stop", "prompt_tokens": ' + b"9" * 5000 + b"}\n")
    @example(b'{"sample_id": "a", "text": "b", "finish_reason": "stop", "logprobs": 1}\n')
    def refused(data: bytes) -> None:
        file.write_bytes(data)
        refusal = refusal_of(lambda: read(file))
        assert refusal is None or "bundle.json" in refusal

    refused()


@given(
    st.one_of(
        st.binary(max_size=120),
        plain.map(lambda v: (lambda t: len(t).to_bytes(8, "little") + t)(json.dumps(v).encode())),
    )
)
@example((4).to_bytes(8, "little") + b"[[]]")
@example((1).to_bytes(8, "little") + b"1")
@example((100_000).to_bytes(8, "little") + b"[" * 100_000)
@example((33).to_bytes(8, "little") + b'{"a":{"data_offsets":[0,1e999]}} ')
@example((33).to_bytes(8, "little") + b'{"a":{"data_offsets":["a","b"]}} ')
def test_why_broken_never_raises(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(data)
    assert why_broken(file) is None or "model.safetensors" in str(why_broken(file))


def test_any_chat_template_folder(tmp_path: Path) -> None:
    folder = make_tokenizer(tmp_path / "m", CHATML)
    told = json.loads((folder / "tokenizer_config.json").read_text())

    @settings(max_examples=25)
    @given(st.text(alphabet=st.sampled_from("{}%|x'[]()._ 0"), max_size=30), st.none() | st.integers() | st.just([]))
    @example("{% for", None)
    @example("{{ messages[9] }}", None)
    def loaded(template: str, other: Any) -> None:
        (folder / "tokenizer_config.json").write_text(
            json.dumps({**told, "chat_template": template if other is None else other})
        )
        for file in folder.glob("*.jinja"):
            file.write_text(template)
        refusal = refusal_of(lambda: list(Prompter(folder).encode(["Hi"])))
        assert refusal is None or "template" in refusal or "tokenizer" in refusal

    loaded()
