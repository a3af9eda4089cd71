"""The server of the watch page: for this machine only, read-only, with a fixed set of addresses."""

import os
import re
import socketserver
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

from arac import web
from arac.errors import UserError
from arac.storage import run_folder
from arac.watch import videos
from arac.watch.run_reader import Answer, Follower

_HOST = "127.0.0.1"
_FILES = {
    "/": ("arac.watch", "index.html", "text/html"),
    "/watch.css": ("arac.watch", "watch.css", "text/css"),
    "/watch.js": ("arac.watch", "watch.js", "text/javascript"),
    "/style.css": ("arac.web", "style.css", "text/css"),
    "/chart.js": ("arac.web", "chart.js", "text/javascript"),
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
    "Connection": "close",  # so that no thread waits for a browser's next request
}
_CHUNK = 2**16


class Server(ThreadingHTTPServer):
    """HTTP server for the page of one run at `address`; it listens from its construction on."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0) -> None:
        """Listen on `port`, or on a free port if it is 0.

        Raises:
            UserError: if the folder holds no run, or the port is not available.
        """
        if not folder.is_dir():
            raise UserError(f"There is no folder {folder}; give the folder of a run.")
        run_folder.read_config(folder)
        self.folder = folder
        self.follower = Follower(folder)
        self.files = {path: (web.file(*where).encode(), kind) for path, (*where, kind) in _FILES.items()}
        try:
            super().__init__((_HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else "ports end at 65535"
            raise UserError(
                f"Cannot bind port {port} ({reason}); choose another with --port, or leave it out for a free one."
            ) from None
        port = self.server_address[1]
        self.address = f"http://{_HOST}:{port}/"
        end = "" if port == 80 else f":{port}"  # browsers leave the default port out
        self.names = {f"{_HOST}{end}", f"localhost{end}"}

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's looks up the machine's name in the network

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a browser that disconnects is no error
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "arac", ""
    timeout = 30  # seconds for which a connection may be silent

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if self.headers.get("Host") not in self.server.names:  # DNS rebinding: a foreign page's name for this host
            self.send_error(HTTPStatus.FORBIDDEN, f"This page is at {self.server.address} only.")
        elif path in self.server.files:
            self._send(*self.server.files[path])
        elif path == "/progress.json":
            self._answer(self.server.follower.look().progress)
        elif path == "/run.json":
            self._answer(self.server.follower.look().run)
        elif path.startswith("/videos/"):
            self._video(unquote(path.removeprefix("/videos/")))
        else:
            self.send_error(HTTPStatus.NOT_FOUND, "There is nothing here.")

    def _answer(self, answer: Answer) -> None:
        if self.headers.get("If-None-Match") == answer.tag:
            self._begin(HTTPStatus.NOT_MODIFIED, {"ETag": answer.tag})
        else:
            self._send(answer.body, "application/json", {"ETag": answer.tag})

    def _video(self, name: str) -> None:
        try:
            file = videos.open_video(self.server.folder, name)
        except FileNotFoundError:
            self.send_error(HTTPStatus.NOT_FOUND, "There is no such video.")
            return
        with file:
            size = file.seek(0, os.SEEK_END)
            wanted = _range(self.headers.get("Range", ""), size)
            headers = {"Content-Type": videos.TYPES[Path(name).suffix.lower()], "Accept-Ranges": "bytes"}
            if wanted is None:
                self._begin(HTTPStatus.OK, headers | {"Content-Length": str(size)})
                self._copy(file, range(size))
            elif wanted:
                place = {"Content-Range": f"bytes {wanted.start}-{wanted.stop - 1}/{size}"}
                self._begin(HTTPStatus.PARTIAL_CONTENT, headers | place | {"Content-Length": str(len(wanted))})
                self._copy(file, wanted)
            else:
                headers = {"Content-Range": f"bytes */{size}", "Content-Length": "0"}
                self._begin(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, headers)

    def _copy(self, file: BinaryIO, wanted: range) -> None:
        file.seek(wanted.start)
        left = len(wanted)
        while left and (data := file.read(min(left, _CHUNK))):
            self.wfile.write(data)
            left -= len(data)

    def _send(self, body: bytes, kind: str, more: dict[str, str] | None = None) -> None:
        headers = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body)), **(more or {})}
        self._begin(HTTPStatus.OK, headers)
        self.wfile.write(body)

    def _begin(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (_HEADERS | headers).items():
            self.send_header(name, value)
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send a sentence instead of http.server's error page. Called for methods other than GET, too."""
        body = f"{message or HTTPStatus(code).phrase}\n".encode()
        self._begin(HTTPStatus(code), {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(body))})
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a page that asks every second would fill the terminal."""


def _range(header: str, size: int) -> range | None:
    """Return the bytes that a request asks for: None for the whole file, an empty range if it has none of them."""
    asked = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", header.strip(), re.ASCII)
    if not asked or not any(asked.groups()):
        return None
    first, last = asked.groups()
    if not first:
        return range(max(size - int(last), 0), size)
    return range(int(first), min(int(last) + 1, size) if last else size)
