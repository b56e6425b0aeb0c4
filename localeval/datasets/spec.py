"""The schema of a dataset's YAML file, and where those files are found. A user's own file works like a built-in one.

Knows nothing about rows: ``source.py`` finds and reads those. docs/datasets.md describes every field for users.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from localeval import templates
from localeval.datasets.parts import (
    Conll,
    Entity,
    Group,
    McqColumns,
    NerColumns,
    OfSubset,
    Published,
    check_entities,
    check_files,
    check_inside,
)
from localeval.nearest import nearest
from localeval.schema import LocalevalError
from localeval.strict import Strict, explain, read_yaml
from localeval.templates import Templates

FOLDER = Path(__file__).parent
SAMPLES = FOLDER / "samples"
"""A dataset folder with a few rows of some datasets, written for this project: comparable with nothing."""


_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
INFORMATIVE = (
    "title", "hub_id", "hub", "path", "files", "citation", "license", "homepage", "unverified", "published",
    "answer_pattern",
)  # fmt: skip
"""The keys on which nothing depends that is asked: what a dataset is called, where it is, what is known of it, and how
its replies are read."""


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
    files: str = ""
    """How files are called below the dataset's folder, such as ``data/{subset}/{split}.jsonl``; looked for first."""
    subsets: list[str] = ["default"]
    by_subset: dict[str, OfSubset] = {}
    split: str = "test"
    shots_split: str = "train"
    shots: int = Field(default=0, ge=0)
    columns: McqColumns | NerColumns | None = None
    conll: Conll = Conll()
    label_case: Literal["as-is", "upper", "lower"] = "as-is"
    """What is done to the labels of the data before they are looked up in ``entities``."""
    entities: list[Entity] = []
    groups: dict[str, str | Group] = {}
    """Name in the report -> column, or values of one put together: the result is reported for each."""
    prompt: str
    shot: str = ""
    shots_prompt: str = ""
    """How shots (``{shots}``) and the prompt without shots (``{prompt}``) stand together."""
    cloze: str = "Question: {question}\nAnswer:"
    """What ``--mcq cloze`` asks: a space and an option's text follow it."""
    answer_pattern: str = ""
    """A regular expression whose one group is the answer: it alone reads the replies of a prompt with its own form."""
    citation: str = ""
    license: str = ""
    homepage: str = ""
    unverified: bool = False
    """Whether no one has held this file against real rows."""
    published: Published | None = None
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
    def _names_can_be(self) -> DatasetSpec:
        if not re.fullmatch(r"\w[\w.+-]*", self.name):
            raise ValueError(
                f"name {self.name!r}: letters, digits, '_', '.', '+' and '-' make a name (of a folder, too)"
            )
        for field, names in (("subsets", self.subsets), ("split", [self.split]), ("shots_split", [self.shots_split])):
            for name in names:
                check_inside(field, name)
        if self.path:
            check_inside("path", self.path)
        for files in (self.files, *(own.files for own in self.by_subset.values())):
            check_files(files)
        if self.hub_id and (not _HUB_ID.fullmatch(self.hub_id) or ".." in self.hub_id):
            raise ValueError(f"hub_id {self.hub_id!r} is no owner/name")
        if not self.subsets or len(set(self.subsets)) < len(self.subsets):
            raise ValueError(f"subsets {self.subsets} is empty or names one twice")
        figures = self.published.prompts if self.published else {}
        for where, known in (("by_subset", self.by_subset), ("published", {n for n in figures if n not in _OVERALL})):
            for name in known:
                if name not in self.subsets:
                    raise ValueError(f"{where}: {name!r} is none of the subsets{nearest(name, self.subsets)}")
        return self

    @field_validator("answer_pattern")
    @classmethod
    def _can_read(cls, value: str) -> str:
        if value:
            from localeval.tasks.mcq import pattern  # a reader's patterns, which most files need not load

            pattern.check(value)
        return value

    @model_validator(mode="after")
    def _fits_its_task(self) -> DatasetSpec:
        if self.task == "mcq" and not isinstance(self.columns, McqColumns):
            raise ValueError("an mcq dataset needs columns: question, choices, answer, answer_is")
        if self.task == "ner":
            if self.answer_pattern:
                raise ValueError("answer_pattern: it reads answers of an mcq dataset; entities are read by their tags")
            self._check_entities()
        for name in _PLACES[self.task]:
            template = getattr(self, name)
            if template or name not in ("shot", "shots_prompt"):
                check_template(self.task, name, template)
            elif self.shots:
                raise ValueError(f"{name} is missing: it says how the {self.shots} shots are shown")
        for own in self.by_subset.values():
            if own.prompt:
                check_template(self.task, "prompt", own.prompt)
        return self

    def _check_entities(self) -> None:
        for subset in self.subsets:
            if not self.entities_of(subset):
                whose = "" if subset == "default" else f" of subset {subset!r}"
                raise ValueError(f"an ner dataset needs entities{whose}: a list of label, tag, description")
            check_entities(self.entities_of(subset))
        pairs = {(entity.label, entity.tag) for subset in self.subsets for entity in self.entities_of(subset)}
        if len(self.tags) < len(pairs):
            raise ValueError("entities: a label has two tags, in two subsets")
        for label in self.tags:
            if apply_case(self.label_case, label) != label:
                raise ValueError(f"label {label!r} can't be met: label_case is {self.label_case}")
        for label in self.published.entities if self.published else ():
            if label not in self.tags:
                raise ValueError(f"published: {label!r} is none of the labels{nearest(label, list(self.tags))}")

    @property
    def templates(self) -> Templates:
        """How samples are asked."""
        return Templates(self.prompt, self.shot, self.shots_prompt, self.cloze)

    @property
    def subset_prompts(self) -> dict[str, str]:
        """Subset -> its own prompt, of those that have one."""
        return {subset: own.prompt for subset, own in self.by_subset.items() if own.prompt}

    def entities_of(self, subset: str) -> list[Entity]:
        """The entity types of a subset."""
        own = self.by_subset.get(subset)
        return own.entities if own is not None and own.entities else self.entities

    def tags_of(self, subset: str) -> dict[str, str]:
        """Label -> tag name, of a subset."""
        return {entity.label: entity.tag for entity in self.entities_of(subset)}

    @property
    def tags(self) -> dict[str, str]:
        """Label -> tag name, of all subsets."""
        return {label: tag for subset in self.subsets for label, tag in self.tags_of(subset).items()}

    @property
    def doubt(self) -> str:
        """What is to be known of a dataset that is ``unverified``."""
        return (
            f"{self.name}: its definition was written from what is published, and not held against real rows; compare "
            f"the counts: localeval list {self.asked_as} --stats"
        )

    @property
    def asked_as(self) -> str:
        """How ``--datasets`` names it: the path of a user's own YAML file, or a built-in name."""
        return self.name if self.source.parent == FOLDER else str(self.source)

    def files_of(self, subset: str, split: str) -> str:
        """Where the YAML file says that a subset's split is, below the dataset's folder; ``""`` if it does not."""
        own = self.by_subset.get(subset)
        pattern = own.files if own is not None and own.files else self.files
        return templates.fill(pattern, {"subset": subset, "split": split})


_OVERALL = ("all", "each")
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


def load_spec(path: Path) -> DatasetSpec:
    """Reads one YAML file. Raises LocalevalError that names the file and the key."""
    data = read_yaml(path, "a dataset is a mapping of keys")
    if "source" in data:
        raise LocalevalError(f"{path}: unknown key 'source'")
    if "prompts_of" in data:
        data = {**_prompts_of(data.pop("prompts_of"), path), **data}
    try:
        return DatasetSpec.model_validate({"name": path.stem, **data, "source": path})
    except ValidationError as error:
        raise explain(error, DatasetSpec, str(path)) from error


def _prompts_of(name: Any, path: Path) -> dict[str, str]:
    """The templates of a built-in dataset, for one that is asked in the same words."""
    if name not in builtin_names():
        hint = nearest(str(name), builtin_names())
        raise LocalevalError(f"{path}: prompts_of: {name!r} is no built-in dataset{hint}: {', '.join(builtin_names())}")
    other = read_yaml(FOLDER / f"{name}.yaml", "a dataset is a mapping of keys")
    return {key: other[key] for key in ("prompt", "shot", "shots_prompt") if key in other}


def builtin_names() -> list[str]:
    """The datasets that ship with localeval."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def sampled_names() -> list[str]:
    """Those of them of which a few rows ship too."""
    return sorted(path.name for path in SAMPLES.iterdir() if path.is_dir())


def _meant(path: Path) -> str:
    """What else a name that is no dataset's may stand for; empty where nothing is there."""
    if path.with_name(f"{path.name}.yaml").is_file():
        return f" (did you mean ./{path}.yaml?)"
    if path.is_file():
        return f" (it is a file of rows? localeval init NAME --from {path} makes a dataset of it)"
    return " (names are separated by spaces)" if "," in path.name else ""


def find_spec(name: str) -> DatasetSpec:
    """A built-in dataset by name, or a user's own by the path of its YAML file."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            here = [str(path.parent / each.name) for each in path.parent.glob("*.y*ml")]
            hint = nearest(str(path), here)
            raise LocalevalError(f"--datasets {name}: there is no such file{hint} (looked for {path.resolve()})")
        return load_spec(path)
    if name not in builtin_names():
        hint = _meant(path) or nearest(name, builtin_names())
        raise LocalevalError(
            f"--datasets {name}: no such dataset{hint}; built in: {', '.join(builtin_names())}; "
            "or give the path of a YAML file of your own (docs/datasets.md)"
        )
    return load_spec(FOLDER / f"{name}.yaml")
