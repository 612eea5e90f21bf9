"""A hub of data sets on the loopback interface: it lists, serves ranges, redirects, breaks off and asks for patience."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


class Hub:
    """What the server has, how it misbehaves, and what it was asked."""

    def __init__(self, files: dict[str, bytes], commit: str = "c" * 40):
        self.files, self.commit = files, commit
        #: {file: status codes to answer first}; {file: bytes after which the connection breaks, one for each answer}
        self.statuses: dict[str, list[int]] = {}
        self.breaks: dict[str, list[int]] = {}
        self.headers_when_refusing = {"Retry-After": "0"}
        #: Served in the place of a file (a proxy that alters it).
        self.altered: dict[str, bytes] = {}
        self.listed_extra: list[dict] = []
        self.storage: str | None = None
        self.ignores_ranges = False
        #: Files that come a few bytes at a time.
        self.slow: set[str] = set()
        self.requests: list[tuple[str, str, dict[str, str]]] = []

    def asked(self, word: str) -> list[dict[str, str]]:
        """Headers of the requests whose path holds a word."""
        return [headers for _, path, headers in self.requests if word in path]

    def tree(self) -> list[dict]:
        """What the hub's API lists: half of the files as large ones (SHA-256), half as small ones (git blob)."""
        entries = []
        for i, (name, content) in enumerate(sorted(self.files.items())):
            blob = hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
            entry = {"type": "file", "path": name, "size": len(content), "oid": blob}
            if i % 2 == 0:
                sha256 = hashlib.sha256(content).hexdigest()
                entry["lfs"] = {"oid": sha256, "size": len(content), "pointerSize": 130}
            entries.append(entry)
        return [*entries, *self.listed_extra, {"type": "directory", "path": "train", "oid": "d" * 40}]


def _handler(hub: Hub):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments):
            pass

        def trickle(self, content: bytes):
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            try:
                for start in range(0, len(content), 100):
                    self.wfile.write(content[start : start + 100])
                    self.wfile.flush()
                    time.sleep(0.01)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def answer(self, status: int, content: bytes, headers: dict[str, str], stop: int | None = None):
            self.send_response(status)
            for key, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(content if stop is None else content[:stop])
            if stop is not None:
                self.wfile.flush()
                self.close_connection = True

        def do_GET(self):
            path = unquote(urlsplit(self.path).path)
            if "some/data" in path or "/storage/" in path:  # the client asks for other things of its own, too
                hub.requests.append(("GET", path, {k.lower(): v for k, v in self.headers.items()}))
            if "/tree/" in path:
                return self.answer(200, json.dumps(hub.tree()).encode(), {})
            if path.startswith("/api/datasets/"):
                return self.answer(
                    200, json.dumps({"id": "some/data", "sha": hub.commit, "siblings": []}).encode(), {}
                )
            name = path.partition(f"/resolve/{hub.commit}/")[2] or path.partition("/storage/")[2]
            if name not in hub.files:
                return self.answer(404, b"", {"X-Error-Code": "EntryNotFound"})
            if hub.statuses.get(name):
                return self.answer(hub.statuses[name].pop(0), b"", hub.headers_when_refusing)
            if hub.storage and "/resolve/" in path:
                return self.answer(302, b"", {"Location": f"{hub.storage}/storage/{name}?Signature=sssecret"})
            content = hub.altered.get(name, hub.files[name])
            if name in hub.slow:
                return self.trickle(content)
            asked = self.headers.get("Range")
            start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and not hub.ignores_ranges else 0
            stops = hub.breaks.get(name)
            stop = stops.pop(0) if stops else None
            if asked and not hub.ignores_ranges:
                total = len(content)
                headers = {"Content-Range": f"bytes {start}-{total - 1}/{total}"}
                return self.answer(206, content[start:], headers, stop)
            return self.answer(200, content, {}, stop)

    return Handler


@contextmanager
def serving(hub: Hub):
    """The hub's address while it runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
