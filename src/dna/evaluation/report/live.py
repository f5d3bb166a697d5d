"""Serve the page while runs train, to this machine only.

The server binds to 127.0.0.1, and requests must name it in their Host header: a foreign page
whose name resolves to this address (DNS rebinding) is refused. Any port in the header will do,
because a tunnel has its own. Only `/` and `/data` exist, and no file is served.
"""

import json
import re
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from urllib.parse import parse_qs, urlsplit

from dna.common.errors import BadInput, DnaError
from dna.evaluation.report.data import RunData, find_runs
from dna.evaluation.report.markup import el
from dna.evaluation.report.page import PagePart, document, run_parts, state_of

HOST = "127.0.0.1"
#: Accepted Host headers: of a browser on this machine, or of the near end of a tunnel.
HOST_HEADER = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
#: In addition to the page's Content-Security-Policy, which cannot forbid frames.
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Live:
    """The runs of a folder, refreshed at every request; new and restarted runs are noticed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = Lock()  # every request has its own thread
        self.known: dict[Path, tuple[tuple[int, int], RunData]] = {}
        self._refresh()  # refuse a folder without a run at once

    def _refresh(self) -> list[RunData]:
        runs = []
        for path in find_runs(self.path):
            stat = (path / "config.json").stat()
            version = (stat.st_mtime_ns, stat.st_size)
            if path not in self.known or self.known[path][0] != version:
                self.known[path] = (version, RunData.of(path))
            run = self.known[path][1]
            run.refresh()
            runs.append(run)
        return runs

    def look(self) -> tuple[str, str, list[PagePart]]:
        """Return (title, state, parts); an error is shown in place of the parts."""
        with self.lock:
            try:
                runs = self._refresh()
                title, parts = run_parts(runs)
                return title, state_of(runs), parts
            except (DnaError, OSError) as error:
                text = str(error) if isinstance(error, DnaError) else type(error).__name__
                head = el("header", el("h1", "Not readable"), el("p", text), id="head")
                return str(self.path), "not readable", [PagePart("head", head)]

    def page(self) -> str:
        """Return the whole document."""
        title, _, parts = self.look()
        return document(title, parts, live=True)

    def data(self, have: set[str]) -> str:
        """Return the parts that are not among these hashes, as JSON."""
        title, state, parts = self.look()
        changes = []
        for part in parts:
            entry = {"id": part.id, "hash": part.hash}
            if part.hash not in have:
                entry["html"] = str(part.written)
            changes.append(entry)
        return json.dumps({"title": title, "state": state, "parts": changes})


class Server(ThreadingHTTPServer):
    """An HTTP server that listens on the loopback address only."""

    daemon_threads = True

    def __init__(self, live: Live, port: int) -> None:
        self.live = live
        try:
            super().__init__((HOST, port), Handler)
        except OSError as error:
            raise BadInput(f"--port {port}: {error.strerror or error}") from None

    @property
    def address(self) -> str:
        """The URL of the page."""
        return f"http://{HOST}:{self.server_port}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect or do not speak HTTP."""


class Handler(BaseHTTPRequestHandler):
    """Answers GET of `/` and `/data`, and refuses everything else."""

    server_version = "dna"
    sys_version = ""
    error_message_format = "%(code)d %(message)s\n"
    error_content_type = "text/plain"
    timeout = 20  # seconds a client may take for its request
    server: Server

    def do_GET(self) -> None:
        """Send the page, or what has changed in it."""
        if not self._is_local():
            return self.send_error(403, "Not for this host")
        try:
            url = urlsplit(self.path)
            have = parse_qs(url.query).get("have", [""])[0]
        except ValueError:  # `http://[/`
            return self.send_error(400, "Not an address")
        if url.path == "/":
            self._send(self.server.live.page(), "text/html")
        elif url.path == "/data":
            self._send(self.server.live.data(set(have.split("."))), "application/json")
        else:
            self.send_error(404, "Not found")

    def _is_local(self) -> bool:
        hosts = self.headers.get_all("Host") or []
        return len(hosts) == 1 and HOST_HEADER.fullmatch(hosts[0]) is not None

    def _refuse(self) -> None:
        self.send_error(405, "Only GET")

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse

    def end_headers(self) -> None:
        """Add the protective headers to every response."""
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def _send(self, text: str, kind: str) -> None:
        data = text.encode()
        with suppress(BrokenPipeError, ConnectionResetError):  # the client has gone
            self.send_response(200)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the terminal shows the address."""
