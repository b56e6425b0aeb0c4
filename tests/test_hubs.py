"""What the hubs list, as localeval reads it; and the stand-in of them, as the hubs' own clients read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hub import READER, STRANGER, Hub

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
