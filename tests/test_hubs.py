"""What the hubs list, as localeval reads it; and the stand-in of them, as the hubs' own clients read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from localeval.hubs import HubName, HuggingFace, Listing, ModelScope, _row, hub_named
from localeval.schema import LocalevalError, RunFailed
from tests.hub import READER, STRANGER, Fault, Hub, git_sha1, sha256

FILES = {
    "README.md": b"# Numbers\n",
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": bytes(range(256)) * 300,
    "deep/er/names with spaces+%.txt": "नाम\n".encode(),
}


def _below(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.relative_to(folder).parts[0].startswith(".")
    }


@pytest.mark.parametrize("kind", ["model", "dataset"])
def test_hugging_face_s_own_client_takes_the_stand_in_for_the_hub(hub: Hub, kind: str, tmp_path: Path) -> None:
    import huggingface_hub as client
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    first = hub.add(kind, "one/numbers", FILES)
    hub.add(kind, "one/numbers", {"config.json": b"{}"})

    def snapshot(revision: str, folder: str) -> dict[str, bytes]:
        there = tmp_path / folder
        client.snapshot_download(
            "one/numbers", repo_type=kind, revision=revision, local_dir=there, endpoint=hub.url, token=False
        )
        return _below(there)

    assert snapshot(first, "first") == FILES
    assert snapshot("main", "now") == {"config.json": b"{}"}
    api = client.HfApi(endpoint=hub.url, token=False)
    with pytest.raises(RevisionNotFoundError):
        api.repo_info("one/numbers", repo_type=kind, revision="nowhere")
    with pytest.raises(RepositoryNotFoundError):
        api.repo_info("one/nothing", repo_type=kind)
    hub.add(kind, "one/gated", FILES, gated=["huggingface"])
    for token in (False, STRANGER):
        with pytest.raises(GatedRepoError):
            client.HfApi(endpoint=hub.url, token=token).auth_check("one/gated", repo_type=kind)
    client.HfApi(endpoint=hub.url, token=READER).auth_check("one/gated", repo_type=kind)


@pytest.mark.parametrize("kind", ["model", "dataset"])
def test_modelscope_s_own_client_takes_the_stand_in_for_the_hub(hub: Hub, kind: str, tmp_path: Path) -> None:
    from modelscope_hub import HubApi
    from modelscope_hub.config import HubConfig
    from modelscope_hub.errors import NotExistError, PermissionDeniedError

    files = FILES | {f"row/{number:03}.json": b"[%d]" % number for number in range(230 if kind == "dataset" else 0)}
    first = hub.add(kind, "one/numbers", files)  # datasets are listed in pages of 200
    hub.add(kind, "one/numbers", {"config.json": b"{}"})
    places = {"cache_dir": tmp_path / "cache", "config_dir": tmp_path / "config"}

    def client(token: str) -> HubApi:
        return HubApi(HubConfig(endpoint=hub.url, token=token, **places))

    api = client("")
    api.download_repo("one/numbers", kind, revision=first, local_dir=tmp_path / "first")
    api.download_repo("one/numbers", kind, local_dir=tmp_path / "now")
    assert _below(tmp_path / "first") == files
    assert _below(tmp_path / "now") == {"config.json": b"{}"}
    with pytest.raises(NotExistError):
        api.download_repo("one/nothing", kind, local_dir=tmp_path / "nothing")
    hub.add(kind, "one/gated", FILES, gated=["modelscope"])
    with pytest.raises(PermissionDeniedError):
        client("").download_repo("one/gated", kind, local_dir=tmp_path / "gated")
    client(READER).download_repo("one/gated", kind, local_dir=tmp_path / "gated")
    assert _below(tmp_path / "gated") == FILES


# --- what localeval reads ---

KINDS = [(name, kind) for name in ("huggingface", "modelscope") for kind in ("model", "dataset")]


def _listing(name: str, kind: str, revision: str | None = None, id: str = "one/numbers") -> Listing:
    return hub_named(name).listing(kind, id, revision)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_a_listing_is_whole_and_pinned(hub: Hub, name: str, kind: str) -> None:
    many = FILES | {f"row/{number:03}.json": b"[%d]" % number for number in range(230)}
    first = hub.add(kind, "one/numbers", many, licence="cc-by-4.0")
    second = hub.add(kind, "one/numbers", many | {"config.json": b"{}"})
    found = _listing(name, kind)
    assert (found.hub, found.kind, found.id, found.revision) == (name, kind, "one/numbers", second)
    assert found.licence == "cc-by-4.0"
    assert {file.path: file.size for file in found.files} == {p: len(d) for p, d in many.items()} | {"config.json": 2}
    for file in found.files:
        data = b"{}" if file.path == "config.json" else many[file.path]
        assert (file.sha256, file.git_sha1) in ((sha256(data), None), (None, git_sha1(data)))
        assert second in file.url
    assert _listing(name, kind, first).revision == first
    assert hub.files_asked() == []


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_addresses_lead_to_the_contents(hub: Hub, name: str, kind: str) -> None:
    import httpx2

    hub.add(kind, "one/numbers", FILES)
    hub.add(kind, "one/numbers", FILES | {"config.json": b"{}"})
    first = next(iter(hub.repositories[(kind, "one/numbers")].commits))
    for file in _listing(name, kind, first).files:
        assert httpx2.get(file.url, follow_redirects=True).content == FILES[file.path]


@pytest.mark.parametrize("kind", ["model", "dataset"])
def test_a_commit_of_modelscope_that_only_took_away(hub: Hub, kind: str) -> None:
    """No file's own commit is the latest one: its history names it."""
    hub.add(kind, "one/numbers", FILES)
    last = hub.add(kind, "one/numbers", {"config.json": FILES["config.json"]})
    assert _listing("modelscope", kind).revision == last


@pytest.mark.parametrize(
    ("name", "kind", "id", "revision", "message"),
    [
        ("huggingface", "model", "one/nothing", None, "model one/nothing: there is none, or it is private"),
        ("huggingface", "dataset", "one/nothing", None, "dataset one/nothing: there is none"),
        ("huggingface", "model", "one//two", None, "there is none"),
        ("huggingface", "model", "one/numbers", "nowhere", "there is no revision 'nowhere'"),
        ("modelscope", "model", "one/nothing", None, "model one/nothing: there is none"),
        ("modelscope", "dataset", "one/nothing", None, "dataset one/nothing: there is none"),
        ("modelscope", "model", "one/numbers", "nowhere", "lists no files at revision 'nowhere'"),
    ],
)
def test_what_is_not_there(hub: Hub, name: str, kind: str, id: str, revision: str | None, message: str) -> None:
    hub.add("model", "one/numbers", FILES)
    with pytest.raises(LocalevalError, match=message):
        _listing(name, kind, revision, id)


@pytest.mark.parametrize(("name", "kind"), KINDS)
@pytest.mark.parametrize("token", [None, STRANGER, READER])
def test_what_is_gated(hub: Hub, monkeypatch: pytest.MonkeyPatch, name: str, kind: str, token: str | None) -> None:
    hub.add(kind, "one/numbers", FILES, gated=[name])
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
        monkeypatch.setenv("MODELSCOPE_API_TOKEN", token)
    if token == READER:
        assert _listing(name, kind).headers["Authorization"] == f"Bearer {READER}"
        return
    page = f"{hub.url}/datasets/one/numbers" if kind == "dataset" else f"{hub.url}/(models/)?one/numbers"
    variable = "HF_TOKEN" if name == "huggingface" else "MODELSCOPE_API_TOKEN"
    with pytest.raises(LocalevalError, match=rf"{page}.*{variable}"):
        _listing(name, kind)
    assert hub.files_asked() == []


@pytest.mark.parametrize("name", ["huggingface", "modelscope"])
def test_a_hub_out_of_order(hub: Hub, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("localeval.retry.PAUSE", 0.0)
    hub.add("model", "one/numbers", FILES)
    hub.faults = [Fault("/api/", "status", times=2)]
    assert len(_listing(name, "model").files) == len(FILES)
    hub.faults = [Fault("/api/", "status", times=99)]
    with pytest.raises(RunFailed, match="status 503"):
        _listing(name, "model")
    hub.faults = [Fault("/api/", "status", status=200, times=99)]  # a page of login, say
    with pytest.raises(RunFailed, match="can't be read"):
        _listing(name, "model")
    closed = Hub()
    closed.close()
    for variable, value in closed.environment().items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(RunFailed, match=r"ConnectError.*HTTPS_PROXY"):
        _listing(name, "model")


def test_a_later_page_that_modelscope_refuses_is_asked_again(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """As its own client does: now and then a page of a long listing is refused that is open."""
    monkeypatch.setattr("localeval.retry.PAUSE", 0.0)
    hub.add("dataset", "one/numbers", {f"{number:03}.json": b"[]" for number in range(230)})
    hub.faults = [Fault("PageNumber=2", "status", status=403)]
    assert len(hub_named("modelscope").listing("dataset", "one/numbers", None).files) == 230
    hub.faults = [Fault("PageNumber=1", "status", status=403)]
    with pytest.raises(LocalevalError, match="ModelScope refuses the dataset"):
        hub_named("modelscope").listing("dataset", "one/numbers", None)


@pytest.mark.parametrize("name", ["huggingface", "modelscope"])
def test_a_licence_is_one_line(hub: Hub, name: str) -> None:
    hub.add("model", "one/numbers", FILES, licence="cc-by-4.0\n  for\x1b[2J research\n")
    found = hub_named(name).listing("model", "one/numbers", None)  # type: ignore[arg-type]
    assert found.licence == "cc-by-4.0 for[2J research"


def test_modelscope_s_zero_is_no_size(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("model", "one/numbers", {"empty.json": b"", "full.json": b"{}"})
    (empty, full) = _listing("modelscope", "model").files
    assert (empty.size, full.size) == (0, 2)
    row = {"Path": "full.json", "Size": 0, "Sha256": sha256(b"{}")}
    assert _row(row, "http://x", "main").size is None
    assert _row(row | {"Sha256": "", "BlobId": git_sha1(b"{}")}, "http://x", "main").git_sha1 == git_sha1(b"{}")


def test_places_and_tokens_by_the_usual_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_ENDPOINT", "MODELSCOPE_ENDPOINT", "MODELSCOPE_DOMAIN", "MODELSCOPE_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    assert hub_named("huggingface") == HuggingFace("https://huggingface.co")
    assert hub_named("modelscope") == ModelScope("https://modelscope.cn", "")
    monkeypatch.setenv("MODELSCOPE_DOMAIN", "www.modelscope.ai")
    monkeypatch.setenv("MODELSCOPE_API_TOKEN", "ms-1")
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example/")
    assert hub_named("modelscope") == ModelScope("https://www.modelscope.ai", "ms-1")
    assert hub_named("huggingface") == HuggingFace("https://mirror.example")
    assert "ms-1" not in repr(hub_named("modelscope"))


def test_an_offline_hub_is_said(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(LocalevalError, match=r"HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set: unset it"):
        _listing("huggingface", "model")
    assert hub.log == []


@pytest.mark.parametrize(
    ("name", "variable", "value"),
    [
        ("huggingface", "HF_ENDPOINT", "not/a/url"),
        ("modelscope", "MODELSCOPE_ENDPOINT", "ftp://x"),
        ("modelscope", "MODELSCOPE_ENDPOINT", "http://"),
        ("modelscope", "MODELSCOPE_API_TOKEN", "t\u00e9"),
        ("modelscope", "MODELSCOPE_API_TOKEN", "a\nb"),
    ],
)
def test_addresses_and_tokens_that_are_none(
    monkeypatch: pytest.MonkeyPatch, name: HubName, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(LocalevalError, match=variable) as caught:
        hub_named(name)
    assert "API" not in variable or value not in str(caught.value)
