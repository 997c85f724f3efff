"""Eight conversations on each of three codices: little memory, small files, kills, restarts, damaged checkpoints.

Each codex and each conversation has a secret that stands nowhere else. What is asked is one's own secret, or another's,
which nobody may be told. Some questions are asked twice: out of the cache, and computed whole in a context of its own. At
the end each conversation is asked once more, and again by a new process without checkpoints.
"""

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from private_daemon import PrivateDaemon
from report import Row, at_most
from support.endurance.parts import MIB, Amount, Counts, Peaks, Said, asked, asks, at_least, messages, opens, watched
from support.house import codebase, counters, engine_child, living, reply, revived, until
from support.lives import corrupt

CODICES, EACH, AT_ONCE = 3, 8, 4
LONGEST = 40  # turns of a conversation; then another one begins in its place
LIMIT, CHECKPOINTS, TRACES = 330_000_000, 20_000_000, 20_000_000  # bytes
MOST_TRACES = TRACES * 1.05 + 2 * MIB  # they are swept at 5 % more, and SQLite's log has a megabyte
# The limit plans KV beside what is fixed as the first pool opens. Python's heap grows afterwards, and segments that wait
# for the disk are in neither: about 256 MiB at most (docs/engine.md).
MOST_OWN = LIMIT + 256 * MIB
MOST_RESIDENT = MOST_OWN + 300 * MIB  # libraries are mapped in both processes
CONFIG = f"""
[model]
context = 4096
[governor]
vram_limit = {LIMIT}
[storage]
checkpoint_disk = {CHECKPOINTS}
[traces]
bytes = {TRACES}
"""
AWAY = {"paused", "not_ready", "loading", "not_ready_in_time", "engine_failed"}
CASE = "conversations"


@dataclass
class Talk:
    """A session on one codex; `told` once its own secret is in it, `kept` are its questions that were answered."""

    session: str
    codex: int
    vault: str
    secret: str
    told: bool = False
    kept: list[str] = field(default_factory=list)


@dataclass
class Life:
    daemon: PrivateDaemon
    chance: random.Random
    alone_every: int = 4
    done: Counts = field(default_factory=Counts)
    secrets: dict[str, str] = field(default_factory=dict)  # vault: code, of codices
    talks: list[Talk] = field(default_factory=list)
    over: list[Talk] = field(default_factory=list)
    broken: bool = False  # a turn ago: what was killed may be noticed a moment later
    wrong: list[str] = field(default_factory=list)

    # -- what happens

    def begin(self) -> None:
        for number in range(CODICES):
            self.secrets[f"zebra{number}"] = self.secret()
            place = self.daemon.folder / f"vaults{number}"
            codebase(place, {f"zebra{number}": self.secrets[f"zebra{number}"]}, 40)
            assert self.daemon.lore("load", place, "--wait").returncode == 0
        self.talks = [self.talk(number % CODICES) for number in range(CODICES * EACH)]

    def secret(self) -> str:
        return str(self.chance.randrange(10**6, 10**7))

    def talk(self, codex: int) -> Talk:
        self.done.one("conversations")
        number = self.done["conversations"]
        return Talk(f"talk-{number}", codex, f"heron{number}", self.secret())

    def turn(self, number: int) -> None:
        some = self.chance.sample(range(len(self.talks)), AT_ONCE)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            asking = [pool.submit(self.ask, self.talks[at], random.Random(self.chance.random())) for at in some]
            harmed = self.event(number)
            for one in asking:
                one.result()
        self.broken = harmed
        revived(self.daemon)
        for at in some:
            if len(self.talks[at].kept) >= LONGEST:
                self.over.append(self.talks[at])
                self.talks[at] = self.talk(self.talks[at].codex)

    def event(self, number: int) -> bool:
        """Whether something was killed, so that questions may go unanswered."""
        if number % 10 == 9:
            return self.kill_daemon(everything=number % 20 == 19)
        if number % 10 == 4:
            return self.restart()
        if number % 10 == 7:
            return self.kill_engine()
        if number % 3 == 0:
            self.done.one("damaged files")
            for folder in {path.parent for path in (self.daemon.folder / "cache").rglob("*.kv")}:
                corrupt(self.chance, folder)
        return False

    def kill_daemon(self, *, everything: bool) -> bool:
        self.leaving("kills of the daemon")
        assert self.daemon.process is not None
        if everything:
            os.killpg(self.daemon.process.pid, signal.SIGKILL)
        self.daemon.kill()
        return True

    def restart(self) -> bool:
        self.leaving("restarts")
        self.daemon.stop()
        return True

    def kill_engine(self) -> bool:
        if reply(self.daemon, "/v1/status")["engine"]["pid"] is None:
            return False
        self.leaving("kills of the engine")
        os.kill(engine_child(self.daemon), signal.SIGKILL)
        return True

    def leaving(self, how: str) -> None:
        """Before a process goes: what it counted goes with it."""
        self.broken = True
        self.done.one(how)
        self.count_refused()

    def count_refused(self) -> None:
        engine = counters(self.daemon)
        self.done["checkpoints refused"] += int(engine["tier_damaged"])
        self.done["tokens evicted"] += int(engine["evicted_tokens"])

    # -- questions

    def ask(self, talk: Talk, chance: random.Random) -> None:
        self.done.one("turns")
        at = at_of(talk)
        if not talk.told:
            told = f"{asks(talk.vault)} {talk.secret}."
            said = self.checked(talk, told, None, asked(self.daemon, told, **at))
            talk.told = not said.error
            return
        vault, code = chance.choice([*self.own(talk), (self.foreign(talk, chance), None)])
        alone = None
        if chance.randrange(self.alone_every) == 0:
            alone = asked(self.daemon, asks(vault), **at, record=False, cache=False)
        said = self.checked(talk, asks(vault), code, asked(self.daemon, asks(vault), **at))
        if alone:
            assert alone.error or alone.lore["prompt"]["cached"] == 0
            self.compare(talk, vault, alone, said, "alone")

    def ask_a_fresh_engine(self) -> None:
        told = [talk for talk in self.talks if talk.told]
        before = [self.aside(talk) for talk in told]
        self.daemon.stop()
        for path in (self.daemon.folder / "cache").rglob("*.kv"):
            path.unlink()
        self.daemon.start()
        for talk, said in zip(told, before, strict=True):
            self.compare(talk, talk.vault, self.aside(talk), said, "by a fresh engine")

    def aside(self, talk: Talk) -> Said:
        """Its own secret once more, which its session does not keep."""
        said = asked(self.daemon, asks(talk.vault), **at_of(talk), record=False)
        return self.checked(talk, asks(talk.vault), talk.secret, said, recorded=False)

    def own(self, talk: Talk) -> list[tuple[str, str]]:
        vault = f"zebra{talk.codex}"
        return [(vault, self.secrets[vault]), (talk.vault, talk.secret)]

    def foreign(self, talk: Talk, chance: random.Random) -> str:
        other = chance.choice([one for one in self.talks if one is not talk])
        return chance.choice([other.vault, f"zebra{(talk.codex + chance.randint(1, 2)) % CODICES}"])

    # -- what must be so

    def checked(self, talk: Talk, text: str, code: str | None, said: Said, *, recorded: bool = True) -> Said:
        if said.error:
            put_off = self.broken and said.error in {"gone", *AWAY}
            self.note("put off" if put_off else "refused", f"{talk.session}: {said.error}", wrong=not put_off)
            return said
        if recorded:
            self.done.one("answered")
        if any(block["from"] == "disk" for block in said.lore["blocks"]):
            self.done.one("restored from checkpoints")
        mine = {secret for _, secret in self.own(talk)}
        every = {*self.secrets.values(), *(one.secret for one in (*self.talks, *self.over))}
        if any(secret in said.text for secret in every - mine):
            self.note("foreign secrets", f"{talk.session} was told {said.text!r} for {text!r}")
        if code is not None and not opens(said, code):
            self.note("wrong answers", f"{talk.session}: {said.text!r} for {text!r}, which {code} answers")
        if recorded and not said.lore.get("not_kept"):
            talk.kept.append(text)
        return said

    def compare(self, talk: Talk, vault: str, other: Said, said: Said, how: str) -> None:
        if other.error or said.error:
            return
        if other.lore["prompt"]["tokens"] != said.lore["prompt"]["tokens"]:
            self.done.one("other prompts")  # the machine's level changed between the two, or files did
            return
        self.done.one(f"compared {how}")
        if other.text != said.text:
            self.note("unlike", f"{talk.session}: {said.text!r}, {how} {other.text!r}, for {vault}")

    def note(self, what: str, words: str, *, wrong: bool = True) -> None:
        self.done.one(what)
        if wrong:
            self.wrong.append(f"{what}: {words}")

    def lost(self) -> int:
        """Questions that were answered, and that their sessions do not hold."""
        missing = 0
        for talk in (*self.talks, *self.over):
            there = Counter(messages(self.daemon, talk.session))
            missing += (Counter(talk.kept) - there).total()
        return missing


def at_of(talk: Talk) -> dict[str, Any]:
    """Where its questions are asked."""
    return {"session": talk.session, "codex": f"vaults{talk.codex}", "timeout_s": 60}


def conversations(amount: Amount) -> Iterator[Row]:
    with living(amount.models, CONFIG, real=True) as daemon:
        life = Life(daemon, amount.chance())
        life.begin()
        with watched(daemon) as peaks:
            for number in amount.times():
                life.turn(number)
                if life.done["turns"] >= amount.number:
                    break
        until(lambda: reply(daemon, "/v1/status")["queue"] == {"running": 0, "waiting": 0})
        life.count_refused()
        engine = counters(daemon)
        life.ask_a_fresh_engine()
        yield from told(life, amount, life.lost(), engine["broken_pools"] + engine["pool_failures"])
        yield from footprint(peaks)


def told(life: Life, amount: Amount, lost: int, failures: float) -> Iterator[Row]:
    done = life.done
    what = f"{CASE}: {EACH} at a time on each of {CODICES} codices"
    yield at_least(what, "turns asked", done["turns"], amount.number)
    yield Row(what, "of these answered; put off by a kill or restart", done["answered"], done["put off"])
    for event in (
        "kills of the daemon",
        "kills of the engine",
        "restarts",
        "damaged files",
        "tokens evicted",
        "restored from checkpoints",
        "checkpoints refused",
    ):
        yield at_least(what, event, done[event], 1)
    yield at_most(what, "answers with a foreign secret", done["foreign secrets"], 0, "")
    yield at_most(what, "answers that are wrong", done["wrong answers"], 0, "")
    yield at_least(
        what, "answers compared with the same prompt computed alone, without a cache", done["compared alone"], 1
    )
    yield at_least(what, "answers compared with those of a fresh engine", done["compared by a fresh engine"], 1)
    yield at_most(what, "of these unlike", done["unlike"], 0, "")
    yield at_most(what, "refused without a kill or restart", done["refused"], 0, "")
    yield at_most(what, "answered questions that a session lost", lost, 0, "")
    yield at_most(what, "failed or broken pools of the last engine", failures, 0, "")
    for words in life.wrong[:20]:
        yield Row(what, words[:200], None, met=False)


def footprint(peaks: Peaks) -> Iterator[Row]:
    what = "memory and disk while that is written"
    yield at_least(what, "looks", peaks.looks, 1)
    yield at_most(what, "peak of private memory, daemon and engine", peaks.own / 1e6, MOST_OWN / 1e6, "MB")
    yield Row(what, "of this above vram_limit", max(0, peaks.own - LIMIT) / 1e6, unit="MB")
    resident = peaks.daemon_resident + peaks.engine_resident
    yield at_most(what, "peak RSS, daemon and engine", resident / 1e6, MOST_RESIDENT / 1e6, "MB")
    yield Row(what, "of this the daemon; the engine, MB", peaks.daemon_resident / 1e6, peaks.engine_resident / 1e6)
    yield at_most(what, "peak of checkpoints on disk", peaks.checkpoints / 1e6, CHECKPOINTS / 1e6, "MB")
    yield at_most(what, "peak of traces on disk", peaks.traces / 1e6, MOST_TRACES / 1e6, "MB")
