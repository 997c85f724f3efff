"""The API's tests talk to a real socket."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx2
import openai
import pytest
from support.openai_client import openai_client
from support.served import Served, served


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with tempfile.TemporaryDirectory(prefix="lore-") as name, served(Path(name)) as running:
        yield running


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: sockets need one."""
    with tempfile.TemporaryDirectory(prefix="lore-") as name:
        yield Path(name)


@pytest.fixture
def lorekeep(server: Served) -> Served:
    return server.renew()


@pytest.fixture
def http(lorekeep: Served) -> Iterator[httpx2.Client]:
    with httpx2.Client(
        transport=httpx2.HTTPTransport(uds=str(lorekeep.socket), verify=False), base_url="http://localhost"
    ) as client:
        yield client


@pytest.fixture
def client(lorekeep: Served) -> Iterator[openai.OpenAI]:
    """OpenAI's own."""
    with openai_client(lorekeep.socket) as client:
        yield client
