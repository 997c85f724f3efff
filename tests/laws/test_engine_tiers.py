"""Tiers are invisible: what was evicted, restarted or damaged changes what is computed, never what is answered."""

import random
from array import array

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.examples import few
from support.fake_engine import FakeBackend
from support.machine import END_EVERY, Machine, naive_answer

from orchestrator.engine.checkpoints.file import SegmentHeader
from orchestrator.engine.checkpoints.manager import segments, spans
from orchestrator.engine.checkpoints.store import CheckpointStore
from orchestrator.engine.messages import DropFloor, Grant, Outcome, Tier
from orchestrator.engine.prefill_cost import UNSEEN

CODE = [n % 50 for n in range(1000)]
OTHER = [n % 50 for n in range(700)] + [77] * 300


def test_the_first_question_after_a_restart_restores_the_floor_instead_of_computing_it(tmp_path):
    machine = Machine(folder=tmp_path)
    machine.floor("code", CODE)
    machine.ask(1, "code", [1, 2, 3], 5)
    machine.finish()
    machine.restart()
    machine.ask(2, "code", [4, 5], 5)
    machine.finish()
    assert machine.ends[2][0].computed == 2
    assert machine.answer(2) == naive_answer([*CODE, 4, 5], 5)


def test_a_memory_that_cannot_be_cut_gets_its_floor_back_whole(tmp_path):
    machine = Machine(folder=tmp_path, ranges=False)
    machine.floor("code", CODE)
    machine.ask(1, "code", [1, 2, 3], 5)
    machine.finish()
    machine.restart()
    machine.ask(2, "code", [4, 5], 5)
    machine.finish()
    assert machine.ends[2][0].computed == 2
    assert machine.answer(2) == naive_answer([*CODE, 4, 5], 5)


def test_after_a_restart_a_new_question_finds_what_its_tail_shares_with_an_earlier_one(tmp_path):
    machine = Machine(folder=tmp_path)
    machine.floor("code", CODE)
    machine.ask(1, "code", [8] * 40 + [1, 2, 3], 5)
    machine.finish()
    machine.restart()
    machine.ask(2, "code", [8] * 40 + [4, 5], 5)
    machine.finish()
    assert machine.ends[2][0].computed == 2
    assert machine.answer(2) == naive_answer([*CODE, *[8] * 40, 4, 5], 5)


def test_a_conversation_goes_on_after_a_restart_from_its_own_tail(tmp_path):
    machine = Machine(folder=tmp_path)
    machine.floor("code", CODE)
    machine.ask(1, "code", [1] * 300, 6)
    machine.finish()
    machine.restart()
    follow_up = [1] * 300 + machine.answer(1)[:-1] + [9, 9]
    machine.ask(2, "code", follow_up, 5)
    machine.finish()
    assert machine.ends[2][0].computed == 2
    assert machine.answer(2) == naive_answer([*CODE, *follow_up], 5)


MEMORIES = {"joined": {"ranges": False}, "constant": {"ranges": False, "constant": True}}


def without_ranges(kind, **options):
    machine = Machine(ranges=False, **options)
    machine.backend = FakeBackend(END_EVERY, **MEMORIES[kind])
    machine.start()
    return machine


@pytest.mark.parametrize("kind", MEMORIES)
def test_a_conversation_without_ranges_goes_on_after_a_restart_from_its_own_tail(tmp_path, kind):
    machine, talk = without_ranges(kind, folder=tmp_path), []
    machine.floor("code", CODE)
    for ticket in range(1, 6):
        asked = [*talk, ticket, ticket]
        machine.ask(ticket, "code", asked, 6)
        machine.finish()
        assert machine.answer(ticket) == naive_answer([*CODE, *asked], 6)
        assert ticket == 1 or machine.ends[ticket][0].computed <= 3
        talk = [*asked, *machine.answer(ticket)]
        machine.restart()


@pytest.mark.parametrize("kind", MEMORIES)
def test_a_conversation_without_ranges_takes_two_sequences_and_not_one_a_turn(kind):
    machine, talk = without_ranges(kind, sequences=4), []
    machine.floor("code", CODE)
    for ticket in range(1, 15):
        asked = [*talk, ticket, ticket]
        machine.ask(ticket, "code", asked, 6)
        machine.finish()
        assert machine.answer(ticket) == naive_answer([*CODE, *asked], 6)
        assert ticket == 1 or machine.ends[ticket][0].computed <= 3
        talk = [*asked, *machine.answer(ticket)]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_prompt_larger_than_its_pool_makes_it_grow_and_nothing_is_computed_again(ranges):
    machine = Machine(cells=20_000, window=20_000, ranges=ranges)
    machine.floor("code", CODE)
    machine.ask(1, "code", [1, 2, 3], 4)
    machine.ask(2, "code", [1] * 9500, 4)
    machine.finish()
    assert machine.ends[2][0].computed <= 9500
    assert machine.answer(1) == naive_answer([*CODE, 1, 2, 3], 4)
    assert machine.answer(2) == naive_answer([*CODE, *[1] * 9500], 4)


@pytest.mark.parametrize("ranges", [True, False])
def test_what_a_smaller_grant_takes_is_found_below(tmp_path, ranges):
    machine = Machine(cells=4096, folder=tmp_path, ranges=ranges)
    machine.floor("code", CODE)
    machine.ask(1, "code", [5] * 400, 4)
    machine.finish()
    machine.loop.handle(Grant(2, 1700, 1700))
    assert machine.loop.pools.held() <= 1700
    asked = [*[5] * 400, *machine.answer(1), 6]
    machine.ask(2, "code", asked, 4)
    machine.finish()
    assert machine.ends[2][0].computed <= 2
    assert machine.answer(2) == naive_answer([*CODE, *asked], 4)


def test_a_killed_process_loses_at_most_what_it_had_not_written(tmp_path):
    machine = Machine(folder=tmp_path)
    machine.floor("code", CODE)
    machine.ask(1, "code", [1, 2, 3], 5)
    machine.finish()
    while machine.loop.has_idle_work():
        machine.round()
    machine.store.flush()
    machine.start()  # nothing was closed
    machine.ask(2, "code", [4], 5)
    machine.finish()
    assert machine.ends[2][0].computed == 1


def test_a_damaged_truncated_or_foreign_file_is_a_miss(tmp_path):
    for number, spoil in enumerate([flip, truncate, swap, empty]):
        folder = tmp_path / str(number)
        machine = Machine(folder=folder)
        machine.floor("code", CODE)
        machine.ask(1, "code", [1, 2, 3], 5)
        machine.finish()
        machine.restart()
        spoil(sorted(folder.glob("*.kv")))
        machine.start()
        machine.ask(2, "code", [4, 5], 5)
        machine.finish()
        assert machine.answer(2) == naive_answer([*CODE, 4, 5], 5)
        assert machine.ends[2][0].computed > 2


def flip(files):
    for file in files:
        data = bytearray(file.read_bytes())
        if data:  # a file cut several times may be empty by now
            data[max(len(data) - 20, 0)] ^= 1
        file.write_bytes(data)


def truncate(files):
    for file in files:
        file.write_bytes(file.read_bytes()[:-30])


def swap(files):
    contents = [file.read_bytes() for file in files]
    for file, content in zip(files, contents[1:] + contents[:1], strict=True):
        file.write_bytes(content)


def empty(files):
    for file in files:
        file.write_bytes(b"")


def test_evicted_tails_come_back(tmp_path):
    machine = Machine(cells=2600, folder=tmp_path)
    machine.floor("code", CODE)
    for ticket in range(1, 9):
        machine.ask(ticket, "code", [ticket] * 300, 4)
        machine.finish()
    again = [1] * 300 + machine.answer(1)[:-1] + [9]
    machine.ask(20, "code", again, 4)
    machine.finish()
    assert machine.ends[20][0].computed == 1
    assert machine.answers[20] == naive_answer([*CODE, *again], 4)


def test_the_disk_keeps_to_its_budget(tmp_path):
    machine = Machine(folder=tmp_path, disk_budget=20_000)
    machine.floor("code", CODE)
    for ticket in range(1, 30):
        machine.ask(ticket, "code", [ticket] * 200, 3)
        machine.finish()
    machine.loop.close()
    assert sum(file.stat().st_size for file in tmp_path.glob("*.kv")) <= 20_000


def test_dropping_a_codex_deletes_its_checkpoints_and_keeps_what_another_shares(tmp_path):
    machine = Machine(folder=tmp_path)
    for name, ids in (("code", CODE), ("other", OTHER)):
        machine.floor(name, ids)
        machine.ask(len(machine.ends) + 1, name, [3, 4], 3)
        machine.finish()
    machine.loop.handle(DropFloor("code"))
    del machine.floors["code"]
    machine.restart()
    machine.ask(9, "other", [5], 3)
    machine.finish()
    assert machine.ends[9][0].computed == 1
    machine.loop.handle(DropFloor("other"))
    machine.loop.close()
    assert not list(tmp_path.glob("*.kv"))


@few(12)
@given(
    st.permutations([256, 300, 512, 600, 768]).flatmap(lambda ends: st.tuples(st.just(ends), st.permutations(ends))),
    st.sampled_from([None, *MEMORIES]),
)
def test_whichever_floor_is_dropped_those_that_begin_alike_are_found_whole(tmp_path_factory, orders, kind):
    """Each floor is a beginning of the longer ones; every other one has a conversation."""
    options = {"cells": 20_000, "sequences": 20, "folder": tmp_path_factory.mktemp("model") / "kv"}
    machine = without_ranges(kind, **options) if kind else Machine(**options)
    kept, leaving = orders
    for ticket, end in enumerate(kept, 1):
        machine.floor(str(end), CODE[:end])
        machine.ask(ticket, str(end), [ticket] * (ticket % 2), 2 * (ticket % 2))
        machine.finish()
    for turn, end in enumerate(leaving, 1):
        while machine.loop.has_idle_work():
            machine.round()
        machine.loop.handle(DropFloor(str(end)))
        del machine.floors[str(end)]
        machine.store.close()
        machine.start()  # nothing was closed
        for name in machine.floors:
            ticket = 1000 * turn + int(name)
            machine.ask(ticket, name, [50 + turn], 2)
            machine.finish()
            assert machine.ends[ticket][0].computed == 1
    assert not list(options["folder"].glob("*.kv"))


steps = st.lists(
    st.tuples(
        st.sampled_from(["code", "other"]), st.lists(st.integers(1, 2), min_size=1, max_size=600), st.integers(0, 9)
    ),
    min_size=1,
    max_size=6,
)


@few(40)
@given(steps, st.integers(0, 2**32), st.sampled_from([None, *MEMORIES]))
def test_random_evictions_restarts_and_damage_never_change_an_answer(tmp_path_factory, script, seed, kind):
    chance = random.Random(seed)
    folder = tmp_path_factory.mktemp("model") / "kv"
    options = {"folder": folder, "cells": chance.choice([2200, 4096])}
    machine = without_ranges(kind, **options) if kind else Machine(**options)
    machine.floor("code", CODE)
    machine.floor("other", OTHER)
    for ticket, (floor, tail, max_tokens) in enumerate(script, 1):
        machine.ask(ticket, floor, tail, max_tokens)
        machine.finish()
        (end,) = machine.ends[ticket]
        assert end.outcome is Outcome.DONE
        assert machine.answer(ticket) == naive_answer([*machine.floors[floor], *tail], max_tokens)
        event = chance.choice(["", "restart", "kill", "flip", "truncate", "delete"])
        if event in ("flip", "truncate"):
            machine.store.flush()  # a file that is being dropped cannot be damaged any more
        files = chance.sample(files_now, k=min(2, len(files_now))) if (files_now := sorted(folder.glob("*.kv"))) else []
        if event == "restart":
            machine.restart()
        elif event == "kill":
            machine.start()
        elif event == "flip":
            flip(files)
        elif event == "truncate":
            truncate(files)
        elif event == "delete":
            for file in files:
                file.unlink(missing_ok=True)


@given(st.integers(0, 2000), st.integers(0, 3000))
def test_spans_tile_a_path_and_never_cross_the_end_of_the_floor(cut, upto):
    tiles = list(spans(cut, upto))
    assert [start for start, _ in tiles] == [0, *(end for _, end in tiles)][: len(tiles)]
    assert (tiles[-1][1] if tiles else 0) == upto
    assert all(not start < cut < end for start, end in tiles)


def test_equal_prefixes_have_equal_names_and_owners_have_their_own_right_of_the_floor():
    ids = array("I", range(600))
    mine = [one.name for one in segments("root", ids, 300, 1, 600)]
    yours = [one.name for one in segments("root", ids, 300, 2, 600)]
    assert mine[:2] == yours[:2]
    assert not set(mine[2:]) & set(yours[2:])
    assert Tier.DISK == "disk"


@few(20)
@example([(1, 1), (1, 13), (1, 1), (1, 13)])  # equal siblings, and what is restored goes on from the second of them
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 30)), min_size=2, max_size=8))
def test_tails_that_come_and_go_change_no_answer(tmp_path_factory, script):
    machine = Machine(folder=tmp_path_factory.mktemp("model") / "kv")
    machine.floor("code", CODE)
    for ticket, (talk, length) in enumerate(script, 1):
        tail = [talk] * length * 20
        machine.ask(ticket, "code", tail, 5)
        machine.finish()
        machine.store.flush()
        evict_tails(machine.loop.pools.by_name["code"].tree)
        assert machine.answer(ticket) == naive_answer([*CODE, *tail], 5)


def evict_tails(tree):
    for node in reversed(list(tree.nodes())):  # each after all that lie below it
        if node.owner is not None:
            tree.evict(node)


def test_what_a_restore_takes_is_foretold_by_its_bytes_until_it_was_seen(tmp_path):
    store = CheckpointStore("root", tmp_path, 1 << 30)
    store.keep(SegmentHeader("root", "name", "root", 0, 2, array("I", [1, 2])), bytes(1_000_000), UNSEEN)
    assert store.restore_ms() == 1.0
    store.restored(100_000, 200.0)
    assert 1.99 < store.restore_ms() < 2.0
    store.close()
