"""``localeval view``: the viewer's pages over HTTP, for this machine alone; GET and no more.

It listens at 127.0.0.1. Whoever asks must know the address, whose first part is drawn at each start: other users of the
machine don't. A name other than localhost is refused, for a stranger's page could have it lead here (DNS rebinding).
"""

from __future__ import annotations

import os
import re
import secrets
import sys
import webbrowser
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from localeval.offline import go_offline
from localeval.progress import say
from localeval.schema import LocalevalError
from localeval.view.pages import said_page
from localeval.view.viewer import HTML, Answer, Viewer
from localeval.visible import tell

HOST = "127.0.0.1"
_NAMES = re.compile(r"(127\.0\.0\.1|localhost)(:\d+)?", re.IGNORECASE)
_HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",  # the rest stands in the pages
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def view(places: list[str], port: int = 0, open_browser: bool | None = None) -> None:
    """Serves until it is interrupted. port: 0 for a free one. open_browser: None where a display is there.

    Raises LocalevalError where nothing is to be seen, or the port is taken.
    """
    go_offline()
    viewer = Viewer(places)
    try:
        with serving(viewer, port) as server:
            tell(server.address)
            _hint(server)
            if _has_display() if open_browser is None else open_browser:
                webbrowser.open(server.address)
            server.serve_forever()
    except KeyboardInterrupt:
        say("ended")
    finally:
        viewer.close()


def _hint(server: Server) -> None:
    if os.environ.get("SSH_CONNECTION"):
        number = server.server_port
        say(f"from your own machine: ssh -L {number}:{HOST}:{number} THIS_MACHINE, then open the address above there")
    say("Ctrl-C ends it")


def _has_display() -> bool:
    """Whether a browser can show something to whoever reads this."""
    there = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(there) and sys.stdout.isatty() and not os.environ.get("SSH_CONNECTION")


class Server(ThreadingHTTPServer):
    """One viewer's server. address: what a browser is given."""

    daemon_threads = True

    def __init__(self, viewer: Viewer, port: int) -> None:
        self.viewer = viewer
        self.secret = secrets.token_urlsafe(16)
        super().__init__((HOST, port), _Handler)

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/{self.secret}/{self.viewer.first}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # a browser that went away is no error
            super().handle_error(request, client_address)


def serving(viewer: Viewer, port: int) -> Server:
    """A server that listens. Raises LocalevalError where the port can't be had."""
    if not 0 <= port < 65536:
        raise LocalevalError(f"--port {port}: expected 0 (a free one) to 65535")
    try:
        return Server(viewer, port)
    except OSError as error:
        raise LocalevalError(
            f"--port {port}: {error.strerror}; name another one, or leave it out: a free one is taken"
        ) from error


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "localeval", ""
    timeout = 60
    server: Server

    def do_GET(self) -> None:
        if not _NAMES.fullmatch(self.headers.get("Host", "")):
            return self._refuse(HTTPStatus.FORBIDDEN, f"This is served under the names {HOST} and localhost alone.")
        if self.path == "/favicon.ico":  # browsers ask by themselves
            return self._send(Answer(HTTPStatus.NO_CONTENT, HTML, b""))
        whole, _, query = self.path.partition("?")
        _, _, rest = whole.partition("/")
        secret, slash, path = rest.partition("/")
        if not slash or not compare_digest(secret.encode(), self.server.secret.encode()):
            return self._refuse(HTTPStatus.NOT_FOUND, "Open the whole address that localeval view has printed.")
        return self._send(self.server.viewer.answer(path, query))

    def _not_allowed(self) -> None:
        self.close_connection = True  # what else was sent is not read
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "Pages are asked for with GET, and nothing else is done here.")

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _not_allowed

    def _refuse(self, status: HTTPStatus, line: str) -> None:
        self._send(Answer(status, HTML, said_page(status.phrase, [line]).encode()))

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if answer.status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET")
        if answer.again is not None:
            self.send_header("Refresh", str(answer.again))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal is for what the reader must know."""
