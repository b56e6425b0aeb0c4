"""The schema of a dataset's YAML file, and where those files are found. A user's own file works like a built-in one.

Knows nothing about rows: ``source.py`` finds and reads those. docs/datasets.md describes every field for users.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from localeval import templates
from localeval.schema import LocalevalError
from localeval.templates import Templates

FOLDER = Path(__file__).parent
SAMPLES = FOLDER / "samples"
"""A dataset folder with a few rows for each built-in dataset, written for this project: comparable with nothing."""


class Strict(BaseModel):
    """Refuses unknown keys; the message names the nearest known one."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def nearest(word: str, known: list[str]) -> str:
    """`` (did you mean 'x'?)`` or nothing."""
    close = get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def explain(error: ValidationError, model: type[BaseModel], where: str) -> LocalevalError:
    """A pydantic error as one line a problem: which key, which value, what was expected."""
    lines = []
    for problem in error.errors():
        path = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "missing":
            lines.append(f"{path} is missing")
        elif problem["type"] == "extra_forbidden":
            names = _names_at(model, problem["loc"][:-1])
            hint = nearest(str(problem["loc"][-1]), names) or f"; known: {', '.join(names)}"
            lines.append(f"unknown key {path!r}{hint}")
        elif problem["type"] == "value_error":
            message = str(problem["ctx"]["error"]) if "ctx" in problem else problem["msg"]
            lines.append(f"{path}: {message}" if path else message)
        else:
            lines.append(f"{path} is {problem['input']!r}: {problem['msg'][0].lower()}{problem['msg'][1:]}")
    return LocalevalError(f"{where}: " + "; ".join(lines))


def _names_at(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """The keys that are known where a path into nested models leads."""
    for part in path:
        field = model.model_fields.get(str(part))
        inner = _models_in(field.annotation) if field else []
        model = inner[0] if inner else model
    return sorted(name for field, info in model.model_fields.items() for name in (field, info.alias) if name)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]


class McqColumns(Strict):
    """Where a multiple-choice row keeps its parts. choices: a column each, or one column that holds a list."""

    question: str
    choices: list[str] | str
    answer: str
    answer_is: Literal["column", "letter", "index", "number", "text"]
    """column: the name of the right option's column; letter: ``B``; index: from 0; number: from 1; text: its text."""


class NerColumns(Strict):
    """Where an entity row keeps its parts: lists of equal length. tag_names: needed where tags are whole numbers."""

    tokens: str = "tokens"
    tags: str = "ner_tags"
    tag_names: list[str] | None = None


class Conll(Strict):
    """Which column of a CoNLL or BIO file holds what; negative numbers count from the right."""

    token: int = 0
    tag: int = -1


class Entity(Strict):
    """label: as the report names it. tag: as the prompt names it. description: as the prompt explains it."""

    label: str
    tag: str
    description: str

    @field_validator("label", "tag")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if not re.fullmatch(r"[^\s<>/`]+", value):
            raise ValueError(f"{value!r} is no name (white space, '<', '>', '/' and '`' can't stand in a tag)")
        if value.casefold() in ("response", "think"):
            raise ValueError(f"{value!r} is taken: replies stand in <response>, and reasoning in <think>")
        return value


_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


def check_inside(what: str, path: str) -> None:
    """Raises ValueError for a relative path that leads out of its folder, or that no file can have."""
    if not path or path.startswith("/") or ".." in path.split("/") or re.search(r"[\\\x00-\x1f\x7f]", path):
        raise ValueError(
            f"{what} {path!r} must stay inside its folder: no '..', no backslash, no beginning '/' (rows that lie "
            "elsewhere are named with --dataset-dir)"
        )


def apply_case(label_case: str, label: str) -> str:
    """What ``label_case`` does to a label of the data."""
    return {"as-is": label, "upper": label.upper(), "lower": label.lower()}[label_case]


class DatasetSpec(Strict):
    """One dataset: where its rows are, how they are asked, what they are grouped by."""

    name: str
    title: str = ""
    task: Literal["mcq", "ner"]
    hub_id: str = ""
    """``owner/name``: looked for in the local Hugging Face and ModelScope caches."""
    hub: Literal["huggingface", "modelscope"] = "huggingface"
    """Where ``localeval fetch`` takes it from."""
    path: str = ""
    """A folder of rows, relative to the YAML file; ``--dataset-dir`` goes before it."""
    subsets: list[str] = ["default"]
    split: str = "test"
    shots_split: str = "train"
    shots: int = Field(default=0, ge=0)
    columns: McqColumns | NerColumns | None = None
    conll: Conll = Conll()
    label_case: Literal["as-is", "upper", "lower"] = "as-is"
    """What is done to the labels of the data before they are looked up in ``entities``."""
    entities: list[Entity] = []
    groups: dict[str, str] = {}
    """Name in the report -> column: accuracy is reported for each value."""
    prompt: str
    shot: str = ""
    shots_prompt: str = ""
    """How shots (``{shots}``) and the prompt without shots (``{prompt}``) stand together."""
    cloze: str = "Question: {question}\nAnswer:"
    """What ``--mcq cloze`` asks: a space and an option's text follow it."""
    source: Path = Path()

    @model_validator(mode="before")
    @classmethod
    def _columns_by_task(cls, data: Any) -> Any:
        """Chooses the columns' type by the task, so that an error speaks of the right one."""
        if isinstance(data, dict) and data.get("task") in list(_PLACES) and isinstance(data.get("columns"), dict):
            model: type[Strict] = McqColumns if data.get("task") == "mcq" else NerColumns
            try:
                return {**data, "columns": model.model_validate(data["columns"])}
            except ValidationError as error:
                raise ValueError(str(explain(error, model, "columns"))) from error
        return data

    @model_validator(mode="after")
    def _fits_its_task(self) -> DatasetSpec:
        if self.task == "mcq" and not isinstance(self.columns, McqColumns):
            raise ValueError("an mcq dataset needs columns: question, choices, answer, answer_is")
        if self.task == "ner" and not self.entities:
            raise ValueError("an ner dataset needs entities: a list of label, tag, description")
        if not re.fullmatch(r"\w[\w.+-]*", self.name):
            raise ValueError(
                f"name {self.name!r}: letters, digits, '_', '.', '+' and '-' make a name (of a folder, too)"
            )
        for field, names in (("subsets", self.subsets), ("split", [self.split]), ("shots_split", [self.shots_split])):
            for name in names:
                check_inside(field, name)
        if self.path:
            check_inside("path", self.path)
        if self.hub_id and (not _HUB_ID.fullmatch(self.hub_id) or ".." in self.hub_id):
            raise ValueError(f"hub_id {self.hub_id!r} is no owner/name")
        if not self.subsets or len(set(self.subsets)) < len(self.subsets):
            raise ValueError(f"subsets {self.subsets} is empty or names one twice")
        for entity in self.entities:
            if apply_case(self.label_case, entity.label) != entity.label:
                raise ValueError(f"label {entity.label!r} can't be met: label_case is {self.label_case}")
        labels = [entity.label for entity in self.entities]
        tags = [entity.tag.lower() for entity in self.entities]
        if len(set(labels)) < len(labels) or len(set(tags)) < len(tags):
            raise ValueError("entities: two of them share a label or a tag")
        for name in _PLACES[self.task]:
            template = getattr(self, name)
            if template or name not in ("shot", "shots_prompt"):
                check_template(self.task, name, template)
            elif self.shots:
                raise ValueError(f"{name} is missing: it says how the {self.shots} shots are shown")
        return self

    @property
    def templates(self) -> Templates:
        """How samples are asked."""
        return Templates(self.prompt, self.shot, self.shots_prompt, self.cloze)

    @property
    def tags(self) -> dict[str, str]:
        """Label -> tag name."""
        return {entity.label: entity.tag for entity in self.entities}


_SHOTS_PROMPT = ({"shots", "prompt"}, {"shots", "prompt"})
_PLACES: dict[str, dict[str, tuple[set[str], set[str]]]] = {
    # template -> the places that are filled, and those of them that must stand in it
    "mcq": {
        "prompt": ({"letters", "question", "choices"}, {"question", "choices"}),
        "shot": ({"letters", "question", "choices", "answer"}, {"answer"}),
        "shots_prompt": _SHOTS_PROMPT,
        "cloze": ({"question"}, {"question"}),
    },
    "ner": {
        "prompt": ({"entities", "entity_list", "text"}, {"text"}),
        "shot": ({"text", "target"}, {"target"}),
        "shots_prompt": _SHOTS_PROMPT,
    },
}


def check_template(task: str, name: str, template: str) -> None:
    """Raises ValueError for a template that the task can't fill."""
    templates.check(name, template, *_PLACES[task][name])


def read_yaml(path: Path, what: str, *, may_be_empty: bool = False) -> dict[str, Any]:
    """A YAML file's mapping. what: what it should be, for the message. Raises LocalevalError that names the file."""
    try:
        data = _load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise LocalevalError(f"{path}: can't be read as YAML: {error}") from error
    if data is None and may_be_empty:
        return {}
    if not isinstance(data, dict):
        raise LocalevalError(f"{path}: {what}, not {type(data).__name__}")
    return {str(key): value for key, value in data.items()}


def _load(text: str) -> Any:
    """A YAML document of plain values: no tag makes anything else of it, and no alias makes it larger than it looks."""
    loader = yaml.SafeLoader(text)
    try:
        document = loader.get_single_node()
        if document is None:
            return None
        _nodes(document, {})
        return loader.construct_document(document)
    finally:
        loader.dispose()


def _nodes(node: yaml.Node, known: dict[int, int]) -> int:
    """How many nodes a document has where each alias is what it stands for. Raises ValueError for too many."""
    if id(node) not in known:
        known[id(node)] = _MOST_NODES  # of one that holds itself
        inside = [child for pair in node.value for child in pair] if isinstance(node, yaml.MappingNode) else node.value
        children = inside if isinstance(node, yaml.CollectionNode) else []
        known[id(node)] = 1 + sum(_nodes(child, known) for child in children)
    if known[id(node)] >= _MOST_NODES:
        raise ValueError(f"its aliases make more than {_MOST_NODES:,} values of it, or one holds itself")
    return known[id(node)]


_MOST_NODES = 100_000


def load_spec(path: Path) -> DatasetSpec:
    """Reads one YAML file. Raises LocalevalError that names the file and the key."""
    data = read_yaml(path, "a dataset is a mapping of keys")
    if "source" in data:
        raise LocalevalError(f"{path}: unknown key 'source'")
    try:
        return DatasetSpec.model_validate({"name": path.stem, **data, "source": path})
    except ValidationError as error:
        raise explain(error, DatasetSpec, str(path)) from error


def builtin_names() -> list[str]:
    """The datasets that ship with localeval."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def find_spec(name: str) -> DatasetSpec:
    """A built-in dataset by name, or a user's own by the path of its YAML file."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise LocalevalError(f"--datasets {name}: there is no such file (looked for {path.resolve()})")
        return load_spec(path)
    if name not in builtin_names():
        hint = nearest(name, builtin_names())
        raise LocalevalError(
            f"--datasets {name}: no such dataset{hint}; built in: {', '.join(builtin_names())}; "
            "or give the path of a YAML file of your own (docs/datasets.md)"
        )
    return load_spec(FOLDER / f"{name}.yaml")
