"""Two looks at the daemon, and what happened between them."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.wire_shapes import filled

from orchestrator.reports import visible
from orchestrator.reports.status import LOOK_S, SharedLooks, events_between
from orchestrator.service import Principal
from orchestrator.wire.replies import LoadReport
from orchestrator.wire.status import LoadReportedEvent, NowEvent, PrefillReport

FLOOR = PrefillReport(floor="5ab1", codex="demo", tier="map", generation=2, done=512, total=4000)
CALM = filled(NowEvent, level="calm", power="normal", engine="ready", pools=("lore@1a2b/demo",))
pictures = st.builds(
    NowEvent,
    event=st.just("now"),
    level=st.sampled_from(["calm", "high"]),
    power=st.sampled_from(["normal", "low-power"]),
    engine=st.sampled_from(["ready", "backoff"]),
    prefill=st.sampled_from([None, FLOOR]),
    computed=st.integers(0, 9),
    pools=st.lists(st.sampled_from(["demo", "other"]), unique=True).map(tuple),
    evicted_tokens=st.integers(0, 9),
    evicted_segments=st.integers(0, 9),
)


def changed(**fields):
    return CALM.model_copy(update=fields)


def told(before, after):
    return [event.model_dump() for event in events_between(before, after)]


@given(pictures)
def test_nothing_happened_where_nothing_changed(picture):
    assert events_between(picture, picture) == []


@given(pictures, pictures)
def test_pools_opened_and_closed_lead_from_one_look_to_the_next(before, after):
    pools = set(before.pools)
    for event in told(before, after):
        if event["event"] == "opened":
            pools.add(event["pool"])
        elif event["event"] == "closed":
            pools.remove(event["pool"])
    assert pools == set(after.pools)


def test_a_level_and_an_eviction_and_a_prefill_are_told_with_their_numbers():
    after = changed(level="high", prefill=FLOOR, computed=512, evicted_tokens=300, evicted_segments=2)
    assert told(CALM, after) == [
        {"event": "level", "level": "high", "power": "normal"},
        {"event": "evicted", "tokens": 300, "segments": 2},
        {
            "event": "prefill",
            "floor": "5ab1",
            "codex": "demo",
            "tier": "map",
            "generation": 2,
            "done": 512,
            "total": 4000,
            "computed": 512,
        },
    ]


def test_a_load_is_told_when_it_is_further_and_once_when_it_has_ended():
    begun = filled(LoadReport, codex="demo", number=3, ended=False)
    ended = begun.model_copy(update={"ended": True, "failed": "no room left"})
    assert told(changed(loads=(begun,)), changed(loads=(begun,))) == []
    assert told(changed(loads=(begun,)), changed(loads=(ended,))) == [{"event": "load", **ended.model_dump()}]


def test_a_load_that_lasted_less_than_a_look_is_told_by_its_number():
    first = filled(LoadReport, codex="demo", number=1, ended=True)
    second = first.model_copy(update={"number": 2})
    assert told(changed(loads=(first,)), changed(loads=(second,))) == [{"event": "load", **second.model_dump()}]


@pytest.mark.parametrize(("codices", "seen"), [((), ()), (("de*",), ("demo",))])
def test_a_load_is_told_to_who_reads_the_codex_alone(codices, seen):
    guest = Principal(os.geteuid() + 1, 1, 1, sigil="guests", scopes=frozenset({"query"}), codices=codices)
    loads = tuple(filled(LoadReport, codex=name) for name in ("demo", "other"))
    now = visible.event(guest, changed(loads=loads))
    assert tuple(one.codex for one in now.loads) == seen
    followed = [visible.event(guest, LoadReportedEvent(event="load", **dict(one))) for one in loads]
    assert tuple(one.codex for one in followed if one) == seen


def test_a_pool_is_told_by_its_codex_and_identity():
    assert told(changed(pools=()), CALM) == [
        {"event": "opened", "pool": "lore@1a2b/demo", "identity": "lore", "codex": "demo"}
    ]


def test_a_restarted_engine_counts_from_nothing_and_that_is_no_eviction():
    assert told(changed(evicted_tokens=300), CALM) == []


def test_one_look_serves_all_who_look_at_about_the_same_moment():
    looks, seen = SharedLooks(), []
    first = looks.after(9.5, 10.0, lambda: seen.append(1) or CALM)
    assert first == looks.after(9.7, 10.0 + LOOK_S / 2, lambda: seen.append(2) or CALM) == (10.0, CALM)
    assert seen == [1]


def test_nobody_is_shown_what_was_so_at_or_before_his_own_last_look_or_long_ago():
    looks, later = SharedLooks(), changed(level="high")
    last, _ = looks.after(9.5, 10.0, lambda: CALM)
    assert looks.after(last, 10.0 + LOOK_S / 2, lambda: later) == (10.0 + LOOK_S / 2, later)
    assert looks.after(0.0, 20.0, lambda: CALM) == (20.0, CALM)
