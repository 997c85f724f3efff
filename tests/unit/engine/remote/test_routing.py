"""Which server has a codex, and how servers stand. Times are seconds of one clock."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.remote.routing import LONGEST_PAUSE_S, LOOK_S, Stand, Standing, chosen, ranked

URLS = st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=6, unique=True)
KEYS = st.text(max_size=8)


@given(KEYS, URLS)
def test_a_key_has_one_order_of_servers_however_they_are_listed(key, urls):
    assert ranked(key, urls) == ranked(key, urls[::-1])
    assert sorted(ranked(key, urls)) == sorted(urls)


@given(KEYS, URLS, st.data())
def test_a_server_that_is_gone_moves_its_own_keys_alone(key, urls, data):
    gone = data.draw(st.sampled_from(urls))
    before, after = ranked(key, urls), ranked(key, [url for url in urls if url != gone])
    assert after == [url for url in before if url != gone]


def test_keys_are_spread():
    counts = [ranked(f"key {number}", ["a", "b", "c"])[0] for number in range(600)]
    assert min(counts.count(url) for url in "abc") > 150


@given(KEYS, URLS, st.data())
def test_what_is_up_is_asked_and_never_what_was_tried_or_is_drained(key, urls, data):
    stands = {url: Stand(data.draw(st.sampled_from(Standing))) for url in urls}
    tried = data.draw(st.sets(st.sampled_from(urls)))
    found = chosen(key, stands, tried)
    assert found not in tried
    assert found is None or stands[found].standing is not Standing.DRAINED
    if any(stands[url].standing is Standing.UP for url in set(urls) - tried):
        assert found is not None and stands[found].standing is Standing.UP


def test_where_none_is_up_one_that_is_down_is_tried_but_not_as_a_second_one():
    stands = {"a": Stand(Standing.DOWN), "b": Stand(Standing.DRAINED)}
    assert chosen("key", stands) == "a"
    assert chosen("key", stands, ["b"]) is None


def test_a_server_with_another_model_is_asked_nothing_though_no_other_one_is_up():
    stands = {"a": Stand().failed("another model", 0.0, lasting=True), "b": Stand(Standing.DRAINED)}
    assert chosen("key", stands) is None


def test_a_server_that_is_down_is_looked_at_less_and_less_often():
    stand, pauses = Stand(), []
    for _ in range(12):
        stand = stand.failed("gone", now=100.0)
        pauses.append(stand.look_at - 100.0)
    assert pauses == sorted(pauses) and pauses[0] < 1.0 and pauses[-1] == LONGEST_PAUSE_S
    assert stand.well(200.0) == Stand(look_at=200.0 + LOOK_S)
