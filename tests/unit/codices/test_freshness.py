"""How fresh a codex is, in words: what is said first, and what a search is told it may not see."""

import time

import pytest

from orchestrator.codices.freshness import Freshness, WatchStatus, differing

LIMIT = "/x: the kernel gave 5 file watches and no more; raise fs.inotify.max_user_watches (sysctl -w ...)"
WATCHED = WatchStatus(watched=True)
NOT_IN = "what changed on disk is not in it"
NOON = time.mktime((2026, 11, 21, 12, 0, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("state", "word", "unseen"),
    [
        (Freshness("a", WATCHED), "watched", ""),
        (Freshness("a"), "not watched", f"a: not followed: {NOT_IN}"),
        (Freshness("a", since=NOON), "not watched", f"a: not followed since 2026-11-21 12:00: {NOT_IN}"),
        (Freshness("a", WatchStatus(still=True)), "not watched", ""),
        (
            Freshness("a", WatchStatus(watched=True, compared=False, applying=True, pending=2)),
            "being compared with the disk",
            "a: being compared with the disk",
        ),
        (Freshness("a", WatchStatus(watched=True, polled=True, notice=LIMIT)), "polled", ""),
        (
            Freshness("a", WatchStatus(watched=True, applying=True)),
            "changes are being taken in",
            "a: changes are being taken in",
        ),
        (
            Freshness("a", WatchStatus(watched=True, applying=True, pending=1)),
            "1 changed file is being taken in",
            "a: 1 changed file is being taken in",
        ),
        (
            Freshness("a", WatchStatus(watched=True, applying=True, pending=1500)),
            "1,500 changed files are being taken in",
            "a: 1,500 changed files are being taken in",
        ),
        (
            Freshness("a", WatchStatus(watched=True, failing=True, notice="/x is gone")),
            "changes cannot be taken in",
            "changes of a cannot be taken in: /x is gone",
        ),
        (
            Freshness("a", WATCHED, loading="a is being indexed", loaded=False),
            "being loaded",
            "a is being indexed",
        ),
        (Freshness("a", loaded=False), "not loaded to the end", ""),
        (Freshness("a", WATCHED, rebasing=True), "watched, a new generation is on its way", ""),
        (
            Freshness("a", WATCHED, indexing="the archive is being indexed again"),
            "watched",
            "the archive is being indexed again",
        ),
    ],
)
def test_the_first_that_holds_is_said(state, word, unseen):
    assert (state.word, state.unseen) == (word, unseen)


def test_a_notice_names_the_limit_the_load_that_ended_early_and_the_archive():
    state = Freshness(
        "a", WatchStatus(watched=True, polled=True, notice=LIMIT), failed="no room left", archive="1 file indexed again"
    )
    assert state.notice == f"its load ended early: no room left; {LIMIT}; 1 file indexed again"
    assert Freshness("a", WATCHED).notice == ""


def test_one_that_was_never_loaded_to_the_end_says_how_it_goes_on():
    again = "load again: it continues; or take it out: lore codex drop a"
    assert Freshness("a", loaded=False).notice == again
    assert Freshness("a", loaded=False, failed="no room left").notice == f"its load ended early: no room left; {again}"
    assert Freshness("a", loaded=False, loading="a is being indexed").notice == ""


@pytest.mark.parametrize(
    ("state", "behind"),
    [
        (Freshness("a", WATCHED), False),
        (Freshness("a", WatchStatus(watched=True, applying=True)), True),
        (Freshness("a", WatchStatus(watched=True, compared=False)), True),
        (Freshness("a", WatchStatus(watched=True, compared=False, failing=True)), False),
        (Freshness("a", loading="a is being indexed"), True),
        (Freshness("a", WATCHED, indexing="the archive is being indexed again"), True),
        (Freshness("a", since=NOON), False),
    ],
)
def test_it_is_being_indexed_whatever_is_taken_in(state, behind):
    assert state.is_behind is behind


def test_of_the_files_that_differ_three_are_named():
    assert differing(()) == ""
    assert differing(("a.py",)) == "1 file that is shown differs on disk: a.py"
    assert differing(tuple("abcde")) == "5 files that are shown differ on disk: a, b, c and 2 more"
