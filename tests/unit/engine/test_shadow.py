"""The picture of the cache tells what a prompt would share, to the token, before it is asked."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.machine import Machine

from orchestrator.engine.shadow import Shape, cast, matched

FLOOR = [7] * 40
tails = st.lists(st.integers(1, 2), min_size=1, max_size=12)


@given(st.lists(tails, min_size=1, max_size=6), tails, st.sampled_from([1, 2]), st.booleans())
def test_what_is_told_is_what_a_prompt_then_shares(before, tail, owner, ranges):
    machine = Machine(ranges=ranges, sequences=30)
    machine.floor("code", FLOOR)
    for ticket, asked in enumerate(before, start=1):
        machine.ask(ticket, "code", asked, 0, owner=1 + ticket % 2)
        machine.finish()
    told = matched(cast(machine.loop.admission.pools)["code"], array("I", FLOOR + tail), owner)
    machine.ask(99, "code", tail, 0, owner=owner)
    machine.finish()
    assert machine.ends[99][0].cached == told


@pytest.mark.parametrize("ranges", [True, False])
def test_a_picture_of_nothing_shares_nothing(ranges):
    assert matched(Shape(array("I"), 0, None, (), ranges), array("I", [1]), 1) == 0


def test_an_anchor_that_grows_after_the_picture_was_taken_is_not_told_before_the_next_one():
    ids = array("I", [1, 2, 3])
    root = Shape(array("I"), 0, None, (Shape(ids, 3, 1, (), False),), False)
    ids.append(4)
    assert matched(root, array("I", [1, 2, 3, 4]), 1) == 0
