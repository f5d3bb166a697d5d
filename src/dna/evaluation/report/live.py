"""The same page while runs train, served to this machine only.

Bound to 127.0.0.1, and a request must name it: a page elsewhere that has its own name point
here (DNS rebinding) is refused. Under which port does not matter: that of a tunnel is its own.
There are two addresses, `/` and `/data`, and no file of any disk is behind them.
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
from dna.evaluation.report.page import Part, document, run_parts, state_of

HOST = "127.0.0.1"
#: What the browser of this machine, or the near end of a tunnel, calls us.
NAMED = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
#: Beside the page's own policy, which cannot forbid frames.
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Live:
    """Runs of a folder, read on at every look; new seeds join, a restarted run begins anew."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = Lock()  # requests come in threads
        self.known: dict[Path, tuple[tuple[int, int], RunData]] = {}
        self._refresh()  # a folder without a run is refused at once

    def _refresh(self) -> list[RunData]:
        runs = []
        for path in find_runs(self.path):
            there = (path / "config.json").stat()
            mark = (there.st_mtime_ns, there.st_size)
            if path not in self.known or self.known[path][0] != mark:
                self.known[path] = mark, RunData.of(path)
            run = self.known[path][1]
            run.refresh()
            runs.append(run)
        return runs

    def look(self) -> tuple[str, str, list[Part]]:
        """(title, state, parts); what cannot be read is said in their place."""
        with self.lock:
            try:
                runs = self._refresh()
                title, parts = run_parts(runs)
                return title, state_of(runs), parts
            except (DnaError, OSError) as error:
                text = str(error) if isinstance(error, DnaError) else type(error).__name__
                head = el("header", el("h1", "Not readable"), el("p", text), id="head")
                return str(self.path), "not readable", [Part("head", head)]

    def page(self) -> str:
        """The whole document."""
        title, _, parts = self.look()
        return document(title, parts, live=True)

    def data(self, have: set[str]) -> str:
        """What has changed since the page that has these hashes, as JSON."""
        title, state, parts = self.look()
        told = [
            {"id": part.id, "hash": part.hash}
            | ({} if part.hash in have else {"html": str(part.written)})
            for part in parts
        ]
        return json.dumps({"title": title, "state": state, "parts": told})


class Server(ThreadingHTTPServer):
    """Listens on this machine's own address only."""

    daemon_threads = True

    def __init__(self, live: Live, port: int) -> None:
        self.live = live
        try:
            super().__init__((HOST, port), Handler)
        except OSError as error:
            raise BadInput(f"--port {port}: {error.strerror or error}") from None

    @property
    def address(self) -> str:
        """What to type into a browser."""
        return f"http://{HOST}:{self.server_port}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: a reader who hangs up, or sends no HTTP, is not worth a traceback."""


class Handler(BaseHTTPRequestHandler):
    """GET of `/` and of `/data`; everything else is refused."""

    server_version, sys_version = "dna", ""
    error_message_format, error_content_type = "%(code)d %(message)s\n", "text/plain"
    timeout = 20  # seconds a client may take for its request
    server: Server

    def do_GET(self) -> None:
        """The page, or what has changed of it."""
        if not self._for_us():
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

    def _for_us(self) -> bool:
        hosts = self.headers.get_all("Host") or []
        return len(hosts) == 1 and NAMED.fullmatch(hosts[0]) is not None

    def _refuse(self) -> None:
        self.send_error(405, "Only GET")

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse

    def end_headers(self) -> None:
        """Every answer carries the same protection."""
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def _send(self, text: str, kind: str) -> None:
        data = text.encode()
        with suppress(BrokenPipeError, ConnectionResetError):  # the reader has gone
            self.send_response(200)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the terminal belongs to the address."""
