"""OpenAI's client, unmodified, on a Unix socket and over TCP."""

import hashlib
import socket as sockets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import openai

TOKEN = "t" * 43
TCP = """
[serve]
tcp = "127.0.0.1:{port}"
[tokens.editor]
sha256 = "{digest}"
sigil = "owner"
"""


def free_port() -> int:
    with sockets.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def tcp_config(port: int) -> str:
    """A daemon's configuration that listens there too."""
    return TCP.format(port=port, digest=hashlib.sha256(TOKEN.encode()).hexdigest())


def tcp_client(port: int) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=TOKEN, max_retries=0)


@contextmanager
def openai_client(socket: Path) -> Iterator[openai.OpenAI]:
    transport = httpx2.HTTPTransport(uds=str(socket), verify=False)
    with httpx2.Client(transport=transport, base_url="http://localhost", timeout=60) as http:
        yield openai.OpenAI(base_url="http://localhost/v1", api_key="none", http_client=http, max_retries=0)
