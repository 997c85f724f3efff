"""How long a prompt takes, against the sum over its tokens one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.client.client import prompt_s
from orchestrator.engine.costs import Costs

positions = st.integers(0, 3000)


@given(positions, positions, st.floats(0.01, 50), st.floats(0, 0.1))
def test_a_prompt_takes_what_its_tokens_take_one_by_one(begin, more, empty, cell):
    told = {"ms_per_token_empty": empty, "ms_per_token_cell": cell}
    one_by_one = sum(empty + cell * (at + 0.5) for at in range(begin, begin + more)) / 1000
    assert prompt_s(told, begin, begin + more) == pytest.approx(one_by_one)


def test_nothing_is_foretold_before_the_engine_has_told_anything():
    assert prompt_s({}, 0, 100) is None


def test_a_token_is_a_share_of_a_full_step_wherever_the_step_is():
    costs = Costs()
    cost = costs.prefill(512)
    for cells in (1_000, 8_000, 100_000):
        assert cost.empty + cost.cell * cells == pytest.approx(costs.milliseconds(512, cells) / 512)
