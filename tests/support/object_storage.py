"""An S3 server in a process of its own: moto's, whose buckets are in its memory. Who stops it loses the server and nothing
that it holds."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.request import Request, urlopen

from support.house import until

from codex.settings import RemoteArchive

KEYS = {"aws_access_key_id": "AKIAEXAMPLEEXAMPLE00", "aws_secret_access_key": "secret-that-no-message-shows"}
BUCKET = "team"


@dataclass
class ObjectStorage:
    process: "subprocess.Popen[bytes]"
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        return {"endpoint": self.url, "region": "us-east-1", "allow_http": "true"}

    def archive(self, holder: str, **given: object) -> RemoteArchive:
        """What one machine knows of the archive of all."""
        patient = {"timeout_s": 60.0, **given}  # a crowded machine is no storage that is away
        return RemoteArchive(f"s3://{BUCKET}/index", {**self.options, **KEYS}, holder=holder, **patient)

    def is_lost(self) -> None:
        """It answers nobody from now on; connections are taken, as by a machine that hangs."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def is_back(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)


@contextmanager
def object_storage() -> Iterator[ObjectStorage]:
    """A server with one empty bucket."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-P", "-m", "moto.server", "-p", str(port)], **quiet) as process:
        storage = ObjectStorage(process, port)
        try:
            until(lambda: process.poll() is not None or answers(storage))
            yield storage
        finally:
            process.kill()


def answers(storage: ObjectStorage) -> bool:
    """Whether it has made the bucket."""
    try:
        with urlopen(Request(f"{storage.url}/{BUCKET}", method="PUT")):
            return True
    except OSError:
        return False
