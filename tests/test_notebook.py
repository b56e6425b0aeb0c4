"""The notebook runs, what it shows is what stands in it, and its figures are those of the replies that it makes up."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from nbclient import NotebookClient
from nbformat import reads

NOTEBOOK = Path(__file__).parent.parent / "docs" / "notebook.ipynb"
SUBSETS = ("addition", "subtraction", "multiplication")
MODELS = ("checkpoint-1000", "checkpoint-2000")
SHOW = """
print(json.dumps({
    "by_subset": {model: column.to_dict() for model, column in by_subset.items()},
    "flips": flips.values.tolist(), "hardest": len(hardest), "ece": ours.to_dict(),
    "unparsed": replies.groupby("model", observed=True).unparsed.sum().to_dict(),
}))
"""


def stored(*further: str) -> Any:
    """The notebook in the repository, with further cells of code at its end."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    cell: dict[str, Any] = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    notebook["cells"] += [{**cell, "id": f"further-{n}", "source": source} for n, source in enumerate(further)]
    return reads(json.dumps(notebook), as_version=4)  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The folder that it ran in, and the notebook as it is afterwards; the last cell prints what is looked at here."""
    folder = tmp_path_factory.mktemp("notebook")
    notebook = stored(SHOW)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
            patch.setenv(name, str(folder / name))
        client = NotebookClient(
            notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
        )
        client.execute()
    return folder, notebook


def shown(cell: Any) -> list[str]:
    """A cell's output as text; what is told beside it is not there, and of a picture that there is one."""
    outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return [output.get("text") or output["data"]["text/plain"] for output in outputs]


def test_what_stands_in_it_is_what_it_shows(ran: tuple[Path, Any]) -> None:
    code = [cell for cell in stored().cells if cell.cell_type == "code"]
    fresh = [cell for cell in ran[1].cells if cell.cell_type == "code"][:-1]
    assert [shown(cell) for cell in fresh] == [shown(cell) for cell in code]
    assert sum("image/png" in output.get("data", {}) for cell in fresh for output in cell.outputs) == 1


def test_figures_are_those_of_the_replies(ran: tuple[Path, Any]) -> None:
    folder, notebook = ran
    found = json.loads(shown(notebook.cells[-1])[0])
    gold = {
        f"{subset}:{n}": json.loads(line)["answer"]
        for subset in SUBSETS
        for n, line in enumerate((folder / "rows" / subset / "test.jsonl").read_text().splitlines())
    }
    right: dict[str, dict[str, bool]] = {}
    probable: dict[str, dict[str, bool]] = {}
    for model in MODELS:
        rows = [json.loads(line) for line in (folder / f"{model}.jsonl").read_text().splitlines()]
        right[model] = {row["sample_id"]: row["text"] == f"ANSWER: {gold[row['sample_id']]}" for row in rows}
        assert found["unparsed"][model] == sum("ANSWER" not in row["text"] for row in rows)
        probable[model] = {}
        gaps = [0.0] * 10  # of each bin, how many are right without the sum of how sure they are
        for row in rows:
            letter, most = max(row["continuations"].items(), key=lambda item: item[1])
            sure = math.exp(most) / sum(map(math.exp, row["continuations"].values()))
            probable[model][row["sample_id"]] = ok = letter.strip() == gold[row["sample_id"]]
            gaps[int(sure * 10)] += ok - sure
        assert found["ece"][model] == pytest.approx(sum(map(abs, gaps)) / 300)
    assert found["by_subset"] == {
        model: {s: sum(ok for i, ok in each.items() if i.startswith(s)) / 100 for s in SUBSETS}
        for model, each in right.items()
    }
    both = [(right[MODELS[0]][i], right[MODELS[1]][i]) for i in gold]
    assert sorted(found["flips"]) == sorted([*pair, both.count(pair)] for pair in set(both))
    asked = [*right.values(), *probable.values()]
    assert found["hardest"] == sum(not any(each[i] for each in asked) for i in gold)
