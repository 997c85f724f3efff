"""What several stories ask with."""

import pytest
from support.house import remembered
from support.openai_client import openai_client


@pytest.fixture
def client(house):
    """OpenAI's client on the daemon of the story."""
    with openai_client(house.socket) as client:
        yield client


@pytest.fixture
def nothing_remembered(house):
    """No test finds what another one remembered."""
    for one in remembered(house):
        house.json("memory", "forget", one["id"], "--yes")
