"""An identity changes: the old floor answers until the new one is resident, so that nobody waits who did not before.

Also over a restart, for several codices, with a file that cannot be read, and where the memory holds one floor and not two.
"""

import os
import signal

import pytest
from support.house import (
    CODES,
    ask,
    cached_whole,
    codebase,
    counters,
    engine_child,
    living,
    question,
    reply,
    shown,
    until,
)

BRIEF = "You are brief. Name path:line of what you rest on.\n"
LONG = "You explain at length what stands in the codebase, and name path:line of what you rest on.\n"


@pytest.fixture(scope="module")
def running(models):
    with living(models) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults", functions=60), "--wait").returncode == 0
        yield daemon


@pytest.fixture
def house(running):
    """The codex's floor stands under the identity that ships, and nothing is being prepared."""
    identity_file(running).unlink(missing_ok=True)
    settled(running)
    return running


def identity_file(daemon, name="lorekeep"):
    folder = daemon.folder / "config" / "lorekeep" / "identities"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.md"


def settled(daemon, codex="vaults"):
    """Returns when the newest version answers, on a floor that stands."""
    until(lambda: not (now := shown(daemon, codex))["identity"]["preparing"] and not now["prefill"])
    return shown(daemon, codex)["identity"]["version"]


def right(answer, vault="zebra"):
    return answer["answer"].strip().startswith(CODES[vault])


def pools(daemon):
    return {pool["name"] for pool in reply(daemon, "/v1/status")["engine"]["pools"]}


def test_a_question_behind_the_change_is_answered_on_the_old_floor_and_says_so(house):
    old = settled(house)
    identity_file(house).write_text(BRIEF)
    answer = ask(house, "zebra")
    assert right(answer)
    assert cached_whole(answer["lore"], "identity", "codex")
    identity = answer["lore"]["identity"]
    assert (identity["name"], identity["version"]) == ("lorekeep", old)
    assert identity["preparing"] not in (None, old)
    assert any("identity lorekeep has changed" in notice for notice in answer["lore"]["notices"])


def test_while_the_new_floor_is_computed_the_pages_say_so(house):
    old = settled(house)
    os.kill(engine_child(house), signal.SIGSTOP)  # so that it is not there before anybody has looked
    try:
        identity_file(house).write_text(BRIEF)
        until(lambda: "is being prepared" in house.lore("codex", "show", "vaults").stdout)
        assert "its new identity" in house.lore("status").stdout
    finally:
        os.kill(engine_child(house), signal.SIGCONT)
    until(lambda: settled(house) != old)


def test_when_nobody_asks_the_new_floor_is_computed_and_answers_and_the_old_one_is_freed(house):
    old = settled(house)
    first = ask(house, "zebra")
    identity_file(house).write_text(LONG)
    assert ask(house, "walrus")["lore"]["identity"]["version"] == old
    new = settled(house)
    assert new != old
    answer = ask(house, "walrus", session=first["lore"]["session"])
    assert right(answer, "walrus")
    assert answer["lore"]["identity"] == {"name": "lorekeep", "version": new, "preparing": None, "fault": ""}
    assert answer["lore"]["broke_at"]["block"] == "identity"
    assert cached_whole(answer["lore"], "identity", "codex")
    assert ask(house, "zebra", session=first["lore"]["session"])["lore"]["broke_at"] is None
    until(lambda: pools(house) == {f"lorekeep@{new}/vaults"})


def test_a_question_that_comes_while_the_new_floor_is_computed_waits_for_none(house):
    old = settled(house)
    identity_file(house).write_text(BRIEF * 2)
    until(lambda: reply(house, "/v1/status")["engine"]["prefills"] or settled(house) != old)
    answer = ask(house, "zebra")
    assert right(answer)
    assert cached_whole(answer["lore"], "identity", "codex"), "on whichever floor"
    assert settled(house) != old


def test_a_change_that_is_taken_back_computes_nothing(house):
    old = settled(house)
    ask(house, "zebra")
    identity_file(house).write_text(BRIEF * 3)
    assert ask(house, "zebra")["lore"]["identity"]["preparing"]
    before = counters(house)["computed_tokens"]
    identity_file(house).unlink()
    answer = ask(house, "zebra")
    assert answer["lore"]["identity"] == {"name": "lorekeep", "version": old, "preparing": None, "fault": ""}
    assert counters(house)["computed_tokens"] - before < 100


def test_a_file_that_cannot_be_read_is_told_and_the_old_one_goes_on_answering(house):
    old = settled(house)
    identity_file(house).write_bytes(b"\xff\xfe\xfd")
    answer = ask(house, "zebra")
    assert right(answer)
    assert cached_whole(answer["lore"], "identity", "codex")
    assert answer["lore"]["identity"]["version"] == old
    assert answer["lore"]["identity"]["fault"].startswith("identity 'lorekeep' cannot be read")
    assert any("cannot be read" in notice for notice in answer["lore"]["notices"])
    assert "identity 'lorekeep' cannot be read" in house.lore("status").stdout
    assert "cannot be read" in house.lore("codex", "show", "vaults").stdout


def test_a_named_identity_is_computed_when_it_is_asked_first_and_prepared_when_it_changes(house):
    identity_file(house, "reviewer").write_text("You review code.\n")
    first = ask(house, "zebra", identity="reviewer")
    assert (first["lore"]["identity"]["name"], first["lore"]["identity"]["preparing"]) == ("reviewer", None)
    assert not cached_whole(first["lore"], "codex")
    identity_file(house, "reviewer").write_text("You review code and tests.\n")
    second = ask(house, "zebra", identity="reviewer")
    assert second["lore"]["identity"]["version"] == first["lore"]["identity"]["version"]
    assert cached_whole(second["lore"], "identity", "codex")
    until(lambda: "of identity reviewer" in house.log.read_text())
    third = ask(house, "zebra", identity="reviewer")
    assert third["lore"]["identity"]["version"] == second["lore"]["identity"]["preparing"]
    assert cached_whole(third["lore"], "identity", "codex")
    identity_file(house, "reviewer").unlink()


def test_codices_are_redone_in_order_of_last_use(house):
    other = codebase(house.folder / "cellars", {"badger": "7135508"}, functions=2)
    assert house.lore("load", other, "--wait").returncode == 0
    settled(house, "cellars")
    ask(house, "badger", codex="cellars")
    ask(house, "zebra", codex="vaults")
    begun = len(house.log.read_text())
    identity_file(house).write_text(BRIEF * 4)
    for name in ("cellars", "vaults"):
        assert shown(house, name)["identity"]["preparing"]
    settled(house, "cellars")
    settled(house, "vaults")
    told = house.log.read_text()[begun:]
    assert told.index("codex vaults is asked under") < told.index("codex cellars is asked under")
    assert house.lore("codex", "drop", "cellars").returncode == 0


# -- over a restart


@pytest.fixture
def stopped(house):
    """A daemon that stopped after an answer; its identity may be changed before it is started again."""
    house.answered = ask(house, "zebra")
    house.stop()
    return house


def test_what_changed_while_no_daemon_ran_is_prepared_behind_the_first_answer(stopped):
    identity_file(stopped).write_text(BRIEF)
    stopped.start()
    answer = ask(stopped, "walrus")
    assert right(answer, "walrus")
    assert answer["lore"]["identity"]["version"] == stopped.answered["lore"]["identity"]["version"]
    assert cached_whole(answer["lore"], "identity", "codex")
    assert settled(stopped) == answer["lore"]["identity"]["preparing"]
    assert cached_whole(ask(stopped, "zebra")["lore"], "identity", "codex")


def test_a_broken_file_found_at_the_start_leaves_the_old_one_answering(stopped):
    identity_file(stopped).write_bytes(b"\xff")
    stopped.start()
    answer = ask(stopped, "walrus")
    assert right(answer, "walrus")
    assert answer["lore"]["identity"]["version"] == stopped.answered["lore"]["identity"]["version"]
    assert "cannot be read" in answer["lore"]["identity"]["fault"]
    assert cached_whole(answer["lore"], "identity", "codex")


def test_a_broken_file_where_nothing_ever_stood_is_refused_with_what_to_do(models):
    with living(models) as daemon:
        identity_file(daemon).write_bytes(b"\xff")
        done = daemon.lore("ask", question("zebra"))
        assert done.returncode == 2
        assert "identity 'lorekeep' cannot be read" in done.stderr
        assert f"mend or remove {identity_file(daemon)}" in done.stderr
