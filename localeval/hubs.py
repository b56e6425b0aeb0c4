"""What the two hubs hold: the files of one repository at one commit, with sizes and hashes.

Each hub is a small adapter behind the Protocol ``Hub``. Fetches no contents of files, and knows nothing about which of
them are wanted, nor about where they go.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, TypeAlias
from urllib.parse import quote, urlencode

from localeval.retry import Passing, check_status, patiently
from localeval.schema import LocalevalError, RunFailed

if TYPE_CHECKING:
    import httpx2
    from huggingface_hub.hf_api import RepoFile

RepositoryKind: TypeAlias = Literal["dataset", "model"]
HubName: TypeAlias = Literal["huggingface", "modelscope"]
COMMIT = re.compile(r"[0-9a-f]{40}")
TIMEOUT = 30.0
"""Seconds without a byte before a connection counts as broken."""
_PAGE = 200
_MOST_FILES = 3000
"""ModelScope leaves out what is more, of a model, and doesn't say so."""
_NO_BYTES = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """path: as the hub lists it, unchecked. size: bytes, or None where the hub doesn't say.

    sha256, git_sha1: of the contents, and the id that git gives them; at most one is there. url: where they are.
    """

    path: str
    size: int | None
    sha256: str | None
    git_sha1: str | None
    url: str


@dataclass(frozen=True, slots=True)
class Listing:
    """A repository at one commit. page: an address for people. headers: what a request for contents has to carry.

    revision: the commit; on ModelScope, where it names none, what was asked for. denied: what to do where contents are
    refused.
    """

    hub: HubName
    kind: RepositoryKind
    id: str
    revision: str
    licence: str
    page: str
    files: tuple[RemoteFile, ...]
    denied: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class Hub(Protocol):
    """Where repositories are."""

    def listing(self, kind: RepositoryKind, id: str, revision: str | None) -> Listing:
        """What a repository holds at a branch, tag or commit; None is its main branch. Access to contents is tried.

        Raises LocalevalError for a repository or revision that isn't there, or isn't open to this user; RunFailed
        where the hub can't be reached.
        """
        ...


def hub_named(name: HubName) -> Hub:
    """A hub, at the address and with the token that its own tools' environment variables name.

    Raises LocalevalError for a proxy, certificates, an address or a token with which nothing can be asked.
    """
    _check_network()
    if name == "huggingface":
        return HuggingFace(_address("HF_ENDPOINT", os.environ.get("HF_ENDPOINT") or "https://huggingface.co"))
    place = os.environ.get("MODELSCOPE_ENDPOINT") or os.environ.get("MODELSCOPE_DOMAIN") or "modelscope.cn"
    token = os.environ.get("MODELSCOPE_API_TOKEN", "").strip()
    if not token.isascii() or not token.isprintable():
        raise LocalevalError("MODELSCOPE_API_TOKEN holds letters that no token has; copy it anew")
    return ModelScope(_address("MODELSCOPE_ENDPOINT", place if "://" in place else f"https://{place.strip()}"), token)


def _address(variable: str, value: str) -> str:
    place = value.strip().rstrip("/")
    if not re.match(r"https?://[^/]", place):
        raise LocalevalError(f"{variable} is {value!r}: expected an address such as https://mirror.example")
    return place


def _check_network() -> None:
    """What the environment says of the network is read, by its own library, when a client is made."""
    import httpx2

    try:
        httpx2.Client().close()
    except (ImportError, ValueError, OSError, httpx2.InvalidURL) as error:
        raise LocalevalError(
            f"HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, SSL_CERT_FILE: one of them can't be used ({error}); a proxy is named "
            "as http://host:port, and one of SOCKS needs the package socksio"
        ) from error


@dataclass(frozen=True, slots=True)
class HuggingFace:
    """Through the hub's own library, which reads HF_TOKEN and the token of ``hf auth login``."""

    endpoint: str

    def listing(self, kind: RepositoryKind, id: str, revision: str | None) -> Listing:
        import httpx2
        from huggingface_hub import HfApi, constants, get_token, hf_hub_url
        from huggingface_hub.hf_api import RepoFile

        if constants.HF_HUB_OFFLINE:
            raise LocalevalError("HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set: unset it, and fetch again")
        token = get_token()
        api = HfApi(endpoint=self.endpoint, token=token or False, library_name="localeval")
        page = f"{self.endpoint}/{'datasets/' if kind == 'dataset' else ''}{id}"
        denied = self._denied(kind, id, page, token is not None)

        def ask() -> tuple[Any, list[RepoFile]]:
            try:
                about = api.model_info if kind == "model" else api.dataset_info
                info = about(id, revision=revision, timeout=TIMEOUT)
                if info.gated:  # its files are listed for everyone, and refused afterwards
                    api.auth_check(id, repo_type=kind)
                tree = api.list_repo_tree(id, recursive=True, revision=info.sha, repo_type=kind)
                return info, [one for one in tree if isinstance(one, RepoFile)]
            except (httpx2.HTTPError, ValueError, KeyError, TypeError) as error:
                _translate(error, f"Hugging Face, {kind} {id}", revision, denied)

        info, tree = patiently(f"Hugging Face, {id}", ask)
        files = tuple(
            self._file(one, hf_hub_url(id, one.path, repo_type=kind, revision=info.sha, endpoint=self.endpoint))
            for one in tree
        )
        licence = info.card_data.get("license") if info.card_data else None
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return Listing("huggingface", kind, id, info.sha, _words(licence), page, files, denied, headers)

    @staticmethod
    def _file(one: RepoFile, url: str) -> RemoteFile:
        if one.lfs is not None:  # git itself holds a pointer of such a file
            return RemoteFile(one.path, one.lfs.size, one.lfs.sha256, None, url)
        return RemoteFile(one.path, one.size, None, one.blob_id, url)

    @staticmethod
    def _denied(kind: str, id: str, page: str, has_token: bool) -> str:
        first = f"Hugging Face gives the {kind} {id} only to those who have accepted its terms: accept them at {page}"
        if has_token:
            return f"{first} with the account whose token HF_TOKEN holds (or `hf auth login` has stored)"
        return f"{first}, and set HF_TOKEN to a token of that account (https://huggingface.co/settings/tokens)"


def _translate(error: Exception, what: str, revision: str | None, denied: str) -> NoReturn:
    """Raises, for an error of huggingface_hub's (most are HTTPErrors), one of ours, or Passing."""
    import httpx2
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        raise LocalevalError(denied) from error
    if isinstance(error, errors.RevisionNotFoundError):
        raise LocalevalError(f"{what}: there is no revision {revision!r}") from error
    if isinstance(error, (errors.RepositoryNotFoundError, errors.HFValidationError)):
        raise LocalevalError(
            f"{what}: there is none, or it is private: check the spelling; for a private one, set HF_TOKEN to a token "
            "of an account that may read it"
        ) from error
    if isinstance(error, errors.HfHubHTTPError) and error.response is not None:
        check_status(error.response.status_code, error.response.headers)
        if error.response.status_code in (401, 403):
            raise LocalevalError(f"{what}: the token of HF_TOKEN is refused: {error.server_message}") from error
        raise RunFailed(f"{what}: the server answers with status {error.response.status_code}") from error
    if isinstance(error, httpx2.TransportError):
        raise Passing(f"{type(error).__name__}: {error}") from error
    raise RunFailed(f"{what}: the answer can't be read, as of a proxy or a page of login: {error!r}") from error


@dataclass(frozen=True, slots=True)
class ModelScope:
    """By the hub's HTTP API. What is known of it: the requests and answers of its client, ``modelscope-hub``."""

    endpoint: str
    token: str = field(default="", repr=False)

    def listing(self, kind: RepositoryKind, id: str, revision: str | None) -> Listing:
        import httpx2

        asked = revision or "master"
        page = f"{self.endpoint}/{kind}s/{id}"
        denied = (
            f"ModelScope refuses the {kind} {id}: ask for access at {page}, and set MODELSCOPE_API_TOKEN to a token of "
            f"that account ({self.endpoint}/my/myaccesstoken)"
        )
        bearer = {"Authorization": f"Bearer {self.token}", "Cookie": f"m_session_id={self.token}"}
        headers = bearer if self.token else {}
        with httpx2.Client(headers=headers, timeout=TIMEOUT, follow_redirects=True) as client:
            repository = _Repository(client, f"{self.endpoint}/api/v1/{kind}s/{quote(id)}", f"{kind} {id}", denied)
            rows, latest = repository.rows(kind, asked)
            commit = repository.commit(asked, rows, latest) or asked
            licence = repository.get("").get("License")
        files = tuple(_row(row, f"{repository.url}/repo", commit) for row in rows if row.get("Type") != "tree")
        return Listing("modelscope", kind, id, commit, _words(licence), page, files, denied, headers)


@dataclass(frozen=True, slots=True)
class _Repository:
    """One repository of ModelScope. url: of its part of the API. what: for messages."""

    client: httpx2.Client
    url: str
    what: str
    denied: str

    def get(self, action: str, proven: bool = False, **query: str | int) -> dict[str, Any]:
        """The ``Data`` of an answer. proven: the same was granted just now; the hub refuses a page now and then."""
        import httpx2

        what = f"ModelScope, {self.what}"

        def ask() -> dict[str, Any]:
            try:
                answer = self.client.get(f"{self.url}{action}", params=query)
            except httpx2.TransportError as error:
                raise Passing(f"{type(error).__name__}: {error}") from error
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                raise RunFailed(f"{what}: {type(error).__name__}: {error}") from error
            check_status(answer.status_code, answer.headers)
            if answer.status_code in (401, 403):
                if proven:
                    raise Passing(f"the server refuses with status {answer.status_code} what it gave before")
                raise LocalevalError(self.denied)
            if answer.status_code == 404:
                raise LocalevalError(f"{what}: there is none, or it is private: check the spelling; {self.denied}")
            try:
                body = answer.json()
                found = body["Data"]
            except (ValueError, KeyError, TypeError) as error:
                raise RunFailed(f"{what}: the answer can't be read, as of a proxy or a page of login") from error
            if answer.status_code != 200 or not isinstance(found, dict):
                raise RunFailed(f"{what}: the server answers with status {answer.status_code}: {body.get('Message')}")
            return found

        return patiently(what, ask)

    def rows(self, kind: RepositoryKind, revision: str) -> tuple[list[dict[str, Any]], Mapping[str, Any]]:
        """Every file and folder, and the latest commit. Datasets come in pages; models at once, but not all of many."""
        rows: list[dict[str, Any]] = []
        latest: Mapping[str, Any] = {}
        page: list[dict[str, Any]] | None = None
        while page is None or (kind == "dataset" and len(page) == _PAGE):
            numbers = {"PageNumber": len(rows) // _PAGE + 1, "PageSize": _PAGE} if kind == "dataset" else {}
            action = "/repo/tree" if kind == "dataset" else "/repo/files"
            data = self.get(action, proven=bool(rows), Revision=revision, Recursive="True", **numbers)
            page = data.get("Files") or []
            rows += page
            latest = latest or data.get("LatestCommitter") or {}
        if not rows:  # what it says of a revision that isn't there
            raise LocalevalError(f"ModelScope, {self.what}: lists no files at revision {revision!r}")
        if kind == "model" and len(rows) >= _MOST_FILES:
            raise LocalevalError(f"ModelScope, {self.what}: it lists {_MOST_FILES} files at most, and here are more")
        return rows, latest

    def commit(self, asked: str, rows: Sequence[Mapping[str, Any]], latest: Mapping[str, Any]) -> str | None:
        """The commit that was listed. Often only its first letters are said, with which some file's own begins."""
        if COMMIT.fullmatch(asked) or COMMIT.fullmatch(str(latest.get("Id"))):
            return asked if COMMIT.fullmatch(asked) else str(latest["Id"])
        if short := str(latest.get("ShortId") or ""):
            for commit in (str(row.get("Revision")) for row in rows):
                if commit.startswith(short) and COMMIT.fullmatch(commit):
                    return commit
        history = self.get("/commits", Ref=asked, PageNumber=1, PageSize=1).get("Commit") or [{}]
        first = str(history[0].get("Id"))
        return first if COMMIT.fullmatch(first) else None


def _row(row: Mapping[str, Any], url: str, commit: str) -> RemoteFile:
    path, size, sha256 = str(row.get("Path")), row.get("Size"), row.get("Sha256") or None
    git_sha1 = row.get("BlobId") if sha256 is None and not row.get("IsLFS") else None
    known = isinstance(size, int) and (size > 0 or sha256 == _NO_BYTES)  # 0 is also said where it isn't known
    query = urlencode({"Revision": commit, "FilePath": path})
    return RemoteFile(path, size if known else None, sha256, git_sha1 or None, f"{url}?{query}")


def _words(licence: Any) -> str:
    """On one line, and without what can't be printed: a manifest takes no other."""
    words = ", ".join(str(one) for one in licence) if isinstance(licence, list) else str(licence or "")
    return "".join(letter for letter in " ".join(words.split()) if letter.isprintable())
