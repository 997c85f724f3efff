"""Whose a codex is, who reads it, and what reports leave out for those who do not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.wire_shapes import filled

from orchestrator.prompt.situation import ReadableCodex, choose_codex
from orchestrator.reports import visible
from orchestrator.service import Principal
from orchestrator.wire.names import in_full, owned, owner_of, short, spelled
from orchestrator.wire.status import (
    BranchReport,
    CacheReport,
    EngineWork,
    NowEvent,
    PoolEvent,
    PrefillEvent,
    PrefillReport,
    TicketReport,
)

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
GUEST = Principal(1001, 1001, 7, sigil="guest", scopes=frozenset({"query"}), codices=("kernel*",))
OWNER = Principal(0, 0, 1, scopes=frozenset({"admin"}))


@given(NAMES, st.integers(0, 1 << 33))
def test_a_name_tells_its_owner_and_what_the_owner_calls_it(name, uid) -> None:
    assert (short(owned(name, uid)), owner_of(owned(name, uid)), owner_of(name)) == (name, uid, None)


@pytest.mark.parametrize(
    ("codex", "reads", "owns"),
    [
        ("work~1001", True, True),
        ("work", False, False),
        ("work~1002", False, False),
        ("work~10011", False, False),
        ("kernel", True, False),
        ("kernel~1002", True, False),
        ("a~1001~1002", False, False),
    ],
)
def test_a_user_reads_their_own_and_what_is_shared_with_their_sigil(codex, reads, owns) -> None:
    assert (GUEST.reads(codex), GUEST.owns(codex)) == (reads, owns)


def test_admin_alone_shows_nobody_elses() -> None:
    assert OWNER.reads("work")
    assert not OWNER.reads("work~1001")
    assert not Principal(1001, 1001, 7, sigil="operator", scopes=frozenset({"admin"})).reads("work")


@pytest.mark.parametrize(
    ("asked", "found"),
    [("work", "work~1001"), ("work~1001", "work~1001"), ("WORK~1001", "work~1001"), ("both", None), ("wo", None)],
)
def test_a_name_without_its_owner_is_enough_where_one_is_called_so(asked, found) -> None:
    assert spelled(asked, ["work~1001", "working~1001", "both~1001", "both~1002"]) == found


def test_the_whole_name_goes_before_one_without_its_owner() -> None:
    assert in_full("work", ["work~1001", "work"]) == "work"


def test_who_leaves_out_the_owner_gets_no_notice() -> None:
    assert choose_codex("work", "", [ReadableCodex("work~1001", "/a")]) == ("work~1001", "")


POOLS = ("house@1/kernel", "house@1/work", "house@1/", "house@1/work~1001", "house@1/work~1002")
FLOOR = PrefillReport(floor="f", codex="work", tier=None, generation=None, done=None, total=None)


def test_the_state_at_the_start_of_the_events_leaves_out_what_others_have() -> None:
    now = filled(NowEvent, event="now", pools=POOLS, prefill=FLOOR)
    told = visible.event(GUEST, now)
    assert isinstance(told, NowEvent)
    assert told == now.model_copy(
        update={"pools": ("house@1/kernel", "house@1/", "house@1/work~1001"), "prefill": None}
    )


def test_without_admin_neither_jobs_nor_conversations_of_the_engine_are_told() -> None:
    branches = tuple(filled(BranchReport, tokens=9, private=private) for private in (False, True))
    caches = tuple(filled(CacheReport, name=name, conversations=9, branches=branches) for name in POOLS)
    tickets = tuple(filled(TicketReport, ticket=at, codex=codex) for at, codex in enumerate(("work", "work~1001", "")))
    found = EngineWork(weight_bytes=1, prompt_tokens=0, tickets=tickets, caches=caches)
    told = visible.work(GUEST, found)
    assert told.tickets == ()
    assert [(one.name, one.conversations, one.branches) for one in told.caches] == [
        (name, 0, branches[:1]) for name in ("house@1/kernel", "house@1/", "house@1/work~1001")
    ]
    told = visible.work(OWNER, found)
    assert [one.codex for one in told.tickets] == ["work", "", ""]
    assert told.caches == caches[:3]


@pytest.mark.parametrize("codex", ["work", "work~1002", "work~1001", "kernel", ""])
def test_an_event_of_a_codex_is_told_to_those_who_read_it(codex) -> None:
    pool = PoolEvent(event="opened", pool=f"house@1/{codex}", identity="house", codex=codex)
    prefill = PrefillEvent(event="prefill", computed=3, **{**dict(FLOOR), "codex": codex})
    told = [pool, prefill] if not codex or GUEST.reads(codex) else [None, None]
    assert [visible.event(GUEST, pool), visible.event(GUEST, prefill)] == told
