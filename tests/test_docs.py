"""The documentation says what is there: its commands parse, its tables are whole, its pages need no network."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

import localeval
from localeval import cli
from localeval.config import TaskConfig
from tests.pages import PAGES, REPOSITORY, Block, blocks, commands, outside_blocks, rows, sections

BLOCKS = [block for page in PAGES for block in blocks(page)]
TURNED = run_path(str(REPOSITORY / "scripts" / "pages.py"))["turned"]
JSON_FIELDS = ("dataset_args", "generation_config", "chat_template_args", "model_args", "engine_args")


class Parsed(BaseException):
    """Raised where a command line has been parsed, so that nothing of it is done."""

    def __init__(self, parser: argparse.ArgumentParser, options: dict[str, Any]) -> None:
        super().__init__()
        self.parser, self.options = parser, options


@pytest.fixture
def parse() -> Any:
    """A command's words -> the parser that took them, and what it made of them. A wrong word is a SystemExit.

    only_find: the parser alone; words are not looked at.
    """
    real = argparse.ArgumentParser.parse_args

    def parsed(words: Sequence[str], only_find: bool = False) -> Parsed:
        def stop(self: argparse.ArgumentParser, words: Sequence[str] | None = None, _: Any = None) -> Any:
            raise Parsed(self, {} if only_find else vars(real(self, words)))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(argparse.ArgumentParser, "parse_args", stop)
            with pytest.raises(Parsed) as raised:
                cli.main(words)
        return raised.value

    return parsed


def commands_of_the_cli(capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert cli.main(["nonesuch"]) == 2
    return capsys.readouterr().err.strip().rpartition("commands: ")[2].split(", ")


# --- blocks and commands ---


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_says_what_it_is(page: Path) -> None:
    before: Block | None = None
    for block in blocks(page):
        assert block.language in ("sh", "python", "text", "json", "yaml"), f"{block.where}: a block of which language?"
        if block.mark == "not run":
            assert block.language in ("sh", "python"), f"{block.where}: only commands are run"
            assert block.reason, f"{block.where}: not run, but why?"
        if block.mark == "prints":
            assert before is not None, f"{block.where}: it is printed by no command"
            assert before.runs, f"{block.where}: what prints it, {before.where}, is not run"
            assert block.language == "text", f"{block.where}: what is printed is text"
        if block.language == "text":
            hidden = re.search(r"(?m)^(\S*/)?localeval [-./a-z]", block.text)
            assert hidden is None, f"{block.where}: a command among what is printed: put it into a block of sh"
        if block.language in ("sh", "python"):
            before = block
    code = re.search(r"(?m)(?<=\n\n)    (?!options:).*", outside_blocks(page))
    assert code is None, f"{page.name}: an indented block is not seen by these tests, fence it: {code and code[0]}"
    assert "\\|" not in outside_blocks(page), f"{page.name}: the pages show the backslash of an escaped bar in a table"


COMMANDS = [
    pytest.param(words[1:], id=f"{block.where} {' '.join(words)}"[:120])
    for block in BLOCKS
    if block.language == "sh"
    for words in commands(block.text)
    if words[0].rpartition("/")[2] == "localeval"
]


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_parses(words: list[str], parse: Any) -> None:
    options = parse(words).options
    fields = {name: value for name, value in options.items() if name in TaskConfig.model_fields and value}
    for name in JSON_FIELDS:
        if name in fields:
            fields[name] = json.loads(fields[name])
    if "datasets" in fields and "models" not in options.get("what", ()) and "to" not in options:
        TaskConfig(**{"model": options.get("folder") or "M", **fields})


def test_commands_are_found_in_a_script() -> None:
    script = """\
# a comment
A=1 localeval --x '{"a b": 2}' \\
  --y z    # said to nobody
cat > rows <<'END'
localeval is no command here
END
.venv/bin/localeval list && export B=2 | wc
"""
    assert list(commands(script)) == [
        ["localeval", "--x", '{"a b": 2}', "--y", "z"],
        ["cat", ">", "rows"],
        [".venv/bin/localeval", "list"],
        ["export", "B=2"],
        ["wc"],
    ]


# --- tables ---


def test_every_option_is_in_the_table_and_every_one_of_the_table_exists(
    parse: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = sections(REPOSITORY / "docs" / "options.md")
    names = commands_of_the_cli(capsys)
    told = {title.strip("`").removeprefix("localeval").strip() or "eval": text for title, text in texts.items()}
    of_a_run = options_in(told["eval"]) - {"--version", "--dry-run"}
    for name in names:
        assert name in told, f"docs/options.md has no section of localeval {name}"
        in_table = options_in(told[name])
        if "All options of a run" in told[name]:
            in_table |= of_a_run - ({"--model"} if "but `--model`" in told[name] else set())
        parser = parse([name, "--"], only_find=True).parser
        in_parser = {option for action in parser._actions for option in action.option_strings if option[:2] == "--"}
        assert in_table == in_parser - {"--help"}, f"localeval {name}"


def test_options_that_the_text_speaks_of_exist(parse: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """What stands in the first column of coming-from.md is other programs'."""
    known = set(OTHERS_OPTIONS)
    for name in commands_of_the_cli(capsys):
        parser = parse([name, "--"], only_find=True).parser
        known |= {option for action in parser._actions for option in action.option_strings}
    for page in PAGES:
        text = outside_blocks(page)
        if page.name == "coming-from.md":
            text = re.sub(r"(?m)^\|[^|]*\|", "|", text).replace("`--apply_chat_template`", "")
        for code in re.findall(r"`([^`\n]+)`", text):
            for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", code):
                assert option in known, f"{page.name}: `{code}`"


OTHERS_OPTIONS = ("--no-index", "--find-links", "--no-deps", "--delete", "--rows", "--resumed")
"""pip's, rsync's and those of scripts/."""


def options_in(text: str) -> set[str]:
    return {option for row in rows(text) for option in re.findall(r"--[a-z][a-z-]*", row[0])}


def test_every_command_is_in_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    names = set(commands_of_the_cli(capsys)) - {"eval"}
    for place in (REPOSITORY / "README.md", REPOSITORY / "docs" / "options.md"):
        cells = " ".join(row[0] for row in rows(place.read_text(encoding="utf-8")))
        told = set(re.findall(r"localeval ([a-z]+)", cells))
        assert names == told - {"eval"}, place.name
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    told = set(re.findall(r"(?m)^  localeval ([a-z]+)", capsys.readouterr().out))
    assert names == told - {"eval"}, "localeval --help"


def test_the_layout_has_every_file_and_no_other() -> None:
    parts = sections(REPOSITORY / "docs" / "layout.md")
    package = REPOSITORY / "localeval"
    folders = {f"{file.parent.relative_to(REPOSITORY)}/" for file in package.rglob("__init__.py")}
    assert set(parts) - {"Beside the package"} == folders
    for folder in folders:
        told = {row[0].strip("`") for row in rows(parts[folder])}
        there = {path.name for path in (REPOSITORY / folder).iterdir() if path.suffix in (".py", ".j2", ".css", ".js")}
        if folder != "localeval/":
            there -= {"__init__.py"}
        assert {name for name in told if "*" not in name and not name.endswith("/")} == there, folder
    for row in rows(parts["Beside the package"]):
        assert (REPOSITORY / row[0].strip("`")).exists(), row[0]


def test_every_public_name_is_on_the_page_of_the_api() -> None:
    page = (REPOSITORY / "docs" / "api.md").read_text(encoding="utf-8")
    for name in localeval.__all__:
        home = f"localeval.{localeval._HOMES[name]}"
        assert f"`localeval.{name}`" in page, name
        assert f"::: {home}.{name}\n" in page, name


def test_every_decision_is_in_the_index() -> None:
    folder = REPOSITORY / "docs" / "decisions"
    told = dict(re.findall(r"\[(.+?)\]\((\d{4}-.+?\.md)\)", (folder / "README.md").read_text(encoding="utf-8")))
    there = {path.read_text(encoding="utf-8").split("\n")[0][2:]: path.name for path in folder.glob("0*.md")}
    assert told == there


# --- pages ---


@pytest.mark.parametrize(
    ("target", "place", "page", "expected"),
    [
        ("docs/modes.md", "README.md", "index.md", "modes.md"),
        ("scripts/bench/README.md", "README.md", "index.md", "benchmarks.md"),
        ("../scripts/bench/README.md", "docs/performance.md", "performance.md", "benchmarks.md"),
        ("../../docs/scale.md", "scripts/bench/README.md", "benchmarks.md", "scale.md"),
        ("../../SECURITY.md", "docs/decisions/0022-x.md", "decisions/0022-x.md", "../SECURITY.md"),
        ("../modes.md", "docs/decisions/0009-x.md", "decisions/0009-x.md", "../modes.md"),
        ("../localeval/cli.py", "docs/modes.md", "modes.md", "../localeval/cli.py"),
        ("https://docs.vllm.ai/docs/x.md", "README.md", "index.md", "https://docs.vllm.ai/docs/x.md"),
    ],
)
def test_links_lead_to_the_same_from_the_pages(target: str, place: str, page: str, expected: str) -> None:
    assert TURNED(target, place, page) == expected


class Loaded(HTMLParser):
    """What a browser loads by itself when it shows a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        loads = tag in ("script", "img", "iframe", "source", "video", "audio", "embed", "object")
        if loads or (tag == "link" and told.get("rel") not in ("canonical", "prev", "next")):
            self.addresses += [told[name] or "" for name in ("src", "href", "data") if name in told]


def test_the_pages_build_without_a_warning_and_load_nothing_from_a_network(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    variables = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=REPOSITORY, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for page in PAGES:
        name = "index" if page.name == "README.md" else page.stem
        assert (tmp_path / f"{name}.html").is_file(), f"{page.name} is no page"
    assert "Holm" in (tmp_path / "statistics.html").read_text(encoding="utf-8")
    assert 'id="localeval.config.TaskConfig.on_overflow"' in (tmp_path / "api.html").read_text(encoding="utf-8")
    assert '<a href="SECURITY.html">' in (tmp_path / "index.html").read_text(encoding="utf-8")
    for file in tmp_path.rglob("*.html"):
        loaded = Loaded(file.read_text(encoding="utf-8")).addresses
        assert loaded, file
        assert [address for address in loaded if re.match(r"(https?:)?//", address)] == [], file
    for file in tmp_path.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//\S+", file.read_text(encoding="utf-8")) == [], file


def test_every_page_is_in_the_navigation() -> None:
    told = re.findall(r"(?m)^ +- .+: (\S+\.md)$", (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = {path.name for path in (REPOSITORY / "docs").glob("*.md")}
    beside = {"index.md", "SECURITY.md", "CHANGELOG.md", "benchmarks.md", "decisions/README.md"}
    assert set(told) - beside == pages
    assert len(set(told)) == len(told)
