"""SIGKILL at a random moment of six kinds of work; then the daemon starts, answers right, and has what it promised.

load      of a codex anew           edit     of a watched file          rebase   another branch is checked out
ask       of several questions      start    of the daemon              yield    lore pause, lore resume
"""

import os
import random
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from private_daemon import PrivateDaemon
from report import Row, at_most
from support.endurance.parts import Amount, Said, asked, asks, at_least, messages, opens
from support.house import codebase, living, over_socket, reply, shown, until, write_vault

CASE = "kills"
FILES = 60
BRANCHES = {"main": "1000001", "other": "2000002"}
AT_ONCE = 3
SETTINGS = "[codex]\npoll = 0.5\n[model]\ncontext = 8192\n"
CHANCE_S = 1.5  # the longest from the beginning of a work to the kill: each of them is over by then on a quiet machine
PATIENCE_S = 120.0


@dataclass
class Killing:
    daemon: PrivateDaemon
    chance: random.Random
    branch: str = "main"
    code: str = BRANCHES["main"]  # that of the vault zebra, as it lies on disk
    edits: int = 0
    extra: int = 0
    kept: Counter[str] = field(default_factory=Counter)  # questions that were answered and kept
    loaded: set[str] = field(default_factory=set)  # codices of which a load ended well
    done: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.daemon.folder / "vaults"

    def begin(self) -> None:
        codebase(self.folder, {"zebra": BRANCHES["main"], "walrus": "9273645"}, functions=5)
        for number in range(FILES):
            (self.folder / f"module{number:02}.py").write_text(f"def module{number:02}():\n    return 'main'\n")
        self.git("init", "-q", "-b", "main")
        self.commit("one")
        self.git("checkout", "-q", "-b", "other")
        write_vault(self.folder, "zebra", BRANCHES["other"])
        for number in range(FILES):
            (self.folder / f"module{number:02}.py").write_text(f"def module{number:02}():\n    return 'other'\n")
        self.commit("two")
        self.git("checkout", "-q", "main")
        assert self.daemon.lore("load", self.folder, "--wait").returncode == 0
        self.loaded.add("vaults")

    def git(self, *arguments: str) -> None:
        (self.folder / ".git" / "index.lock").unlink(missing_ok=True)
        who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", "-C", self.folder, *who, *arguments], check=True, capture_output=True)

    def commit(self, message: str) -> None:
        self.git("add", ".")
        self.git("commit", "-q", "-m", message)

    # -- one kill

    def kill_in(self, work: Callable[[], None]) -> None:
        """At a random moment of the work; every second time the engine is killed with it."""
        if work == self.start:
            self.start()
        else:
            with ThreadPoolExecutor(1) as pool:
                working = pool.submit(work)
                threading.Event().wait(self.chance.random() * CHANCE_S)
                self.end(working.done())
                with suppress(httpx2.HTTPError, AssertionError):  # the daemon went
                    working.result()
        self.daemon.start()
        reply(self.daemon, "/v1/resume", {})  # a pause outlasts the daemon
        self.check(work.__name__)

    def end(self, over: bool) -> None:
        process = self.daemon.process
        assert process is not None
        self.done["work was over"] += over
        if self.chance.random() < 0.5:
            os.killpg(process.pid, signal.SIGKILL)
        self.daemon.kill()

    # -- the works

    def works(self) -> tuple[Callable[[], None], ...]:
        return self.load, self.ask, self.edit, self.rebase, self.start, self.giving_way

    def load(self) -> None:
        """One codex after another, until the daemon goes."""
        while self.load_one():
            pass

    def load_one(self) -> bool:
        self.extra += 1
        name = f"extra{self.extra % 4}"
        folder = codebase(self.daemon.folder / name, {f"heron{self.extra % 4}": str(self.extra + 7_000_000)}, 60)
        (folder / "note.txt").write_text(f"load {self.extra}\n")
        is_loaded = self.daemon.lore("load", folder, "--no-watch").returncode == 0
        if is_loaded:
            self.loaded.add(name)
        return is_loaded

    def ask(self) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            asking = [pool.submit(self.ask_one, at) for at in range(AT_ONCE)]
            for one in asking:
                one.result()

    def ask_one(self, at: int, most: int = 100) -> None:
        """Until the daemon goes."""
        for number in range(most):
            text = f"{self.done.total()}.{number}: {asks('walrus')}"
            said = asked(self.daemon, text, session=f"talk-{at}", codex="vaults")
            if said.error:
                return
            self.promise(f"talk-{at}", text, said)

    def promise(self, session: str, text: str, said: Said) -> None:
        if not said.lore.get("not_kept"):
            self.kept[f"{session}: {text}"] += 1
        if not opens(said, "9273645"):
            self.wrong.append(f"{text!r} was answered {said.text!r}")

    def edit(self) -> None:
        self.edits += 1
        self.code = f"{self.edits + 3000:04}503"
        write_vault(self.folder, "zebra", self.code)
        with suppress(AssertionError, httpx2.HTTPError):
            until(lambda: self.zebra().text.startswith(self.code), CHANCE_S)

    def rebase(self) -> None:
        self.git("checkout", "-q", "-f", "main" if self.branch == "other" else "other")
        self.branch = "main" if self.branch == "other" else "other"
        self.code = BRANCHES[self.branch]
        with suppress(AssertionError, httpx2.HTTPError):
            until(lambda: self.zebra().text.startswith(self.code), CHANCE_S)

    def start(self) -> None:
        self.daemon.stop()
        process = self.daemon.launch((), {})
        threading.Event().wait(self.chance.random() * CHANCE_S)
        with suppress(ProcessLookupError):  # it leads no group yet
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait(PATIENCE_S)

    def giving_way(self) -> None:
        """Again and again, until the daemon goes."""
        while True:
            reply(self.daemon, "/v1/pause", {"why": "endurance"})
            reply(self.daemon, "/v1/resume", {})

    # -- what must be so

    def settled(self) -> bool:
        """A new generation comes when nobody asks. Until then a file that is as before has an amendment that says so in
        words, which the quoting model cannot follow."""
        told = shown(self.daemon, "vaults")
        return (told["fresh"], told["unseen"]) == ("watched", "")

    def zebra(self) -> Said:
        return asked(self.daemon, asks("zebra"), codex="vaults", record=False)

    def check(self, work: str) -> None:
        self.done[work] += 1
        self.check_codices(work)
        said = asked(self.daemon, asks("walrus"), codex="vaults", record=False)
        if not opens(said, "9273645"):
            self.wrong.append(f"{work}: the first answer is {said.text!r} {said.error}")
        try:
            until(lambda: self.settled() and opens(self.zebra(), self.code), PATIENCE_S)
        except AssertionError:
            told = shown(self.daemon, "vaults")
            about = (told["fresh"], told["fresh_notice"], told["unseen"], told["generation"], told["amendments"])
            self.wrong.append(f"{work}: not {self.code} but {self.zebra().text!r}; {about}")

    def check_codices(self, work: str) -> None:
        with over_socket(self.daemon) as http:
            there = {one["name"] for one in http.get("/v1/codices").json()["codices"]}
        for name in self.loaded - there:
            self.wrong.append(f"{work}: the codex {name} is gone")

    def lost(self) -> int:
        there: Counter[str] = Counter()
        for at in range(AT_ONCE):
            there += Counter(f"talk-{at}: {text}" for text in messages(self.daemon, f"talk-{at}"))
        return (Counter(self.kept) - there).total()


def kills(amount: Amount) -> Iterator[Row]:
    with living(amount.models, SETTINGS) as daemon:
        life = Killing(daemon, amount.chance())
        life.begin()
        life.ask_one(0, most=3)
        works = life.works()
        done, lost = 0, 0
        for number in amount.times():
            life.kill_in(works[number % len(works)])
            done += 1
            lost = max(lost, life.lost())
        yield from found(life, done, amount, lost)


def found(life: Killing, done: int, amount: Amount, lost: int) -> Iterator[Row]:
    yield at_least(CASE, "SIGKILLs", done, amount.number)
    for work in life.works():
        yield at_least(CASE, f"of these in {work.__name__.replace('_', ' ')}", life.done[work.__name__], 1)
    yield Row(CASE, "of these after the work was over", life.done["work was over"])
    yield at_least(CASE, "turns kept before one", sum(life.kept.values()), 1)
    yield at_most(CASE, "of these lost", lost, 0, "")
    yield at_most(CASE, "wrong answers, and codices that are gone", len(life.wrong), 0, "")
    for words in life.wrong[:20]:
        yield Row(CASE, words[:200], None, met=False)
