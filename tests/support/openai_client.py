"""OpenAI's client, unmodified, on a Unix socket."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import openai


@contextmanager
def openai_client(socket: Path) -> Iterator[openai.OpenAI]:
    transport = httpx2.HTTPTransport(uds=str(socket), verify=False)
    with httpx2.Client(transport=transport, base_url="http://localhost", timeout=60) as http:
        yield openai.OpenAI(base_url="http://localhost/v1", api_key="none", http_client=http, max_retries=0)
