"""The fake is stricter than llama.cpp, which takes tokens behind a hole and answers from what is left."""

import pytest
from support.fake_engine import FakeMemory

from orchestrator.engine.backend import BackendError, Run


def test_a_sequence_with_a_hole_takes_no_more_tokens():
    memory = FakeMemory(cells=16, sequences=1, end_every=40)
    memory.decode([Run(0, 0, [1, 2, 3, 4], True)])
    memory.remove(0, 1, 2)
    with pytest.raises(BackendError, match="which holds"):
        memory.decode([Run(0, 4, [5], True)])
