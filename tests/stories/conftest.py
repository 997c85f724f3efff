"""What several stories ask with."""

import pytest
from support.openai_client import openai_client


@pytest.fixture
def client(house):
    """OpenAI's client on the daemon of the story."""
    with openai_client(house.socket) as client:
        yield client
