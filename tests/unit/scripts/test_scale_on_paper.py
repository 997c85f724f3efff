"""The table of a fleet on paper is what its formulas give, and these are right where they can be done by hand."""

from pathlib import Path

import pytest
from scale_on_paper import Assumed, kv_token, need, prefill, question, room, table, upload

PAGE = Path(__file__).resolve().parents[3] / "docs" / "scale.md"
MODEL = Assumed()


def test_the_page_has_the_table_that_the_script_prints():
    assert table() in PAGE.read_text()


def test_bytes_and_seconds_are_those_of_the_formulas_by_hand():
    assert kv_token(MODEL) == 131_072
    assert MODEL.floor * kv_token(MODEL) / 2**30 == pytest.approx(12.2, abs=0.05)
    assert room(MODEL) == 56e9
    assert prefill(MODEL, 100_000) == pytest.approx((1.6e15 + 2 * 32 * 4096 * 1e10) / 300e12)
    assert question(MODEL) == pytest.approx(0.2291 + 300 * (2e9 + 131_072 * 101_000) / 2e12, rel=1e-3)
    assert upload(MODEL) == 606_000


def test_more_users_need_more_servers_and_more_codices_more_memory():
    few, many = need(MODEL, 10, 1), need(MODEL, 1_000, 100)
    assert (few.resident, few.busy, few.hits) == (1, 1, 0)
    assert many.resident > many.busy > few.busy
    assert 0.9 < many.hits < 1
    assert need(MODEL, 1_000, 1).busy == many.busy
