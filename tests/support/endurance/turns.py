"""Thousands of turns on one daemon that nobody ends: it holds no more afterwards than after the first third."""

from collections.abc import Iterator, Mapping, Sequence

from private_daemon import PrivateDaemon
from report import Row, at_most
from support.endurance.parts import MIB, Amount, Held, asked, asks, at_least, held, opens
from support.house import CODES, codebase, living, over_socket, reply, until

CASE = "turns of one daemon"
SESSIONS, LONGEST = 8, 25  # at a time, and turns of each; then it is deleted
WARM_UP = 0.35
MOST_GROWTH = 32  # MiB
MOST_FILES, MOST_THREADS = 8, 4


def turns(amount: Amount) -> Iterator[Row]:
    with living(amount.models, "[model]\ncontext = 4096\n[traces]\nbytes = 10000000\n", real=True) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
        done, wrong, before, began = 0, 0, None, 0
        for number in amount.times():
            wrong += not right(daemon, number)
            done += 1
            if number == int(amount.number * WARM_UP):
                before, began = at_rest(daemon), number
        yield at_least(CASE, "turns", done, amount.number)
        yield at_most(CASE, "answers that are wrong or missing", wrong, 0, "")
        after = at_rest(daemon)
        before = before or after
        pools = reply(daemon, "/v1/status")["engine"]["pools"]
        yield from compared(f"{CASE}: after {done:,}, beside after {began:,}", before, after, pools)


def compared(what: str, before: Held, after: Held, pools: Sequence[Mapping[str, int]]) -> Iterator[Row]:
    yield grown(what, "private memory of the daemon", before.daemon, after.daemon)
    yield grown(what, "private memory of the engine", before.engine, after.engine)
    yield at_most(what, "more open files", after.files - before.files, MOST_FILES, "")
    yield at_most(what, "more threads", after.threads - before.threads, MOST_THREADS, "")
    yield at_most(
        what, "cells that are leased or reserved at rest", sum(p["leased"] + p["reserved"] for p in pools), 0, ""
    )
    # A sequence stands for a conversation that is kept; those of the pools have a limit, and deleted sessions leave it.
    yield at_most(what, "sequences of the engine", sum(pool["sequences"] for pool in pools), 32 * len(pools), "")


def grown(case: str, figure: str, before: int, after: int) -> Row:
    growth = (after - before) / MIB
    return Row(
        case, f"{figure}, MiB", after / MIB, before / MIB, goal=f"≤ {MOST_GROWTH} more", met=growth <= MOST_GROWTH
    )


def right(daemon: PrivateDaemon, number: int) -> bool:
    session = f"talk-{number % SESSIONS}-{number // (SESSIONS * LONGEST)}"
    vault = sorted(CODES)[number % len(CODES)]
    said = asked(daemon, asks(vault), session=session, codex="vaults")
    if number // SESSIONS % LONGEST == LONGEST - 1:
        forget(daemon, session)
    return opens(said, CODES[vault])


def forget(daemon: PrivateDaemon, session: str) -> None:
    with over_socket(daemon) as http:
        assert http.delete(f"/v1/sessions/{session}").is_success


def at_rest(daemon: PrivateDaemon) -> Held:
    until(lambda: reply(daemon, "/v1/status")["queue"] == {"running": 0, "waiting": 0})
    return held(daemon)
