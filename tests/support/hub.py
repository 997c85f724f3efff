"""A model hub on this machine: redirects, ranges, sums, and lines that break."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HEADER = b"GGUF" + (3).to_bytes(4, "little") + bytes(16)  # version 3, no tensors, no metadata
BODY = HEADER + bytes(range(256)) * 4096
SUM = hashlib.sha256(BODY).hexdigest()


class Hub(BaseHTTPRequestHandler):
    """`/REPOSITORY/resolve/main/…` tells the sum and leads to `/store/…`, which gives ranges; `cut` ends early once."""

    cut = 0
    sum = SUM
    body = BODY
    repository = "owner/repo"
    files: tuple[str, ...] = ("small.gguf",)
    store = ""  # another host, where the files lie
    ranges: list[str | None]
    tokens: list[tuple[str, str | None]]  # of each request: its path and the token that came with it

    def do_GET(self):
        type(self).tokens.append((self.path.rpartition("/")[0], self.headers.get("Authorization")))
        if self.path.startswith("/moved/"):
            self.send_response(307)
            self.send_header("Location", self.path.replace("/moved/", "/owner/"))
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path.startswith("/store/"):
            self.give()
        elif self.path.startswith(f"/{type(self).repository}/resolve/main/") and self.is_there():
            self.send_response(302)
            self.send_header("Location", f"{type(self).store}/store/abc")
            self.send_header("X-Linked-Etag", f'"{type(self).sum}"')
            self.send_header("X-Linked-Size", str(len(type(self).body)))
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.send_error(401 if "gated" in self.path else 404)

    def is_there(self):
        return self.path.rpartition("/")[2] in type(self).files

    def give(self):
        body = type(self).body
        wanted = self.headers.get("Range")
        type(self).ranges.append(wanted)
        begin = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        if begin >= len(body):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(body)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(body) - begin))
        self.end_headers()
        end = len(body) - type(self).cut
        type(self).cut = 0
        self.wfile.write(body[begin:end])
        self.close_connection = True

    def log_message(self, *_):
        pass


@contextmanager
def serving(**given: object) -> Iterator[tuple[type[Hub], str]]:
    """A hub with its address; `given` takes the place of what Hub has. It ends with the block."""
    own = type("Own", (Hub,), {"ranges": [], "tokens": [], **given})
    server = ThreadingHTTPServer(("127.0.0.1", 0), own)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield own, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
