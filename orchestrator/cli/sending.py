"""`lore load` of a user whom the daemon opens no path for: this user's process reads the files and sends them.

    walk and rules (codex) ─▶ offer: names and digests ─▶ the digests that the daemon lacks ─▶ their bytes ─▶ load

The walk, what is ignored and what is kept secret are the daemon's own code, with this user's settings. With `--watch` the
command stays and sends what changes.
"""

import hashlib
import queue
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.cli import local
from orchestrator.cli.client import Daemon, Event, Failure, route_part
from orchestrator.cli.terminal import clear_progress, count, note, plural, progress
from orchestrator.wire import faults

if TYPE_CHECKING:
    from codex.settings import LibrarySettings
    from codex.trees.opening import MultiRootTree
    from codex.trees.port import CandidateFile
    from codex.trees.sources import LoadSpec

BATCH = 8 << 20  # bytes in one request: well below serve.max_body
TRIES = 3  # a file that is being written is read again


@dataclass(frozen=True)
class ReadFile:
    """A file as it was read: its digest, or why it is left out. Same stamp: it need not be read again."""

    stamp: str
    size: int
    sha256: str = ""
    left_out: str = ""


@dataclass
class Sender:
    """Sends one codex to the daemon behind `socket`, at first whole, later what changed."""

    socket: str | None
    spec: "LoadSpec"
    settings: "LibrarySettings"
    named: frozenset[str] = frozenset()  # files that the user named one by one: taken whatever they hold
    known: dict[str, ReadFile] = field(default_factory=dict)

    def send(self) -> tuple[str, int]:
        """The codex's whole name, and how many files went over. Raises Failure."""
        for _ in range(TRIES):
            with local.translated(), closing(self.opened()) as tree:
                offer, candidates = self.offer(tree)
                reply = Daemon(self.socket).call("POST", "/v1/sent", offer)
                name, wanted = str(reply["codex"]), reply["wanted"]
                sent = sum(self.taken(name, body) for body in self.bodies(tree, candidates, wanted))
            if sent == len(wanted):
                clear_progress()
                return name, sent
        raise Failure(faults.FAILED, "files change while they are read", "load again when nothing writes to them")

    def opened(self) -> "MultiRootTree":
        from codex.trees.opening import open_tree
        from codex.trees.sources import resolve
        from orchestrator.errors import translated

        with translated():
            folder = Path.cwd()
            return open_tree(resolve(self.spec, folder), self.spec, self.settings, folder, lambda: False)

    def offer(self, tree: "MultiRootTree") -> tuple[dict[str, Any], dict[str, "CandidateFile"]]:
        """The body, and by its digest a file that has these bytes."""
        scan = tree.scan()
        progress("reading files")
        found = {one.path: self.read(tree, one) for one in scan.candidates}
        self.known = found
        volatility, state = tree.volatility(scan.candidates), tree.state()
        taken = [one for one in scan.candidates if found[one.path].sha256]
        skipped = Counter(scan.reasons()) + Counter(one.left_out for one in found.values() if one.left_out)
        files = [
            {
                "path": one.path,
                "size": found[one.path].size,
                "sha256": found[one.path].sha256,
                "volatility": volatility.get(one.path, 0),
            }
            for one in taken
        ]
        body: dict[str, Any] = {"name": self.spec.name, "files": files, "skipped": dict(skipped)}
        body |= {"branch": state.branch, "revision": state.revision, "dirty": state.dirty}
        return body, {found[one.path].sha256: one for one in taken}

    def read(self, tree: "MultiRootTree", one: "CandidateFile") -> ReadFile:
        """As it is now, or as it was read before where its stamp is the same."""
        from codex.ingest import inspect

        before = self.known.get(one.path)
        if before is not None and before.stamp and before.stamp == one.stamp:
            return before
        try:
            read = tree.read(one)
        except FileNotFoundError:
            return ReadFile("", 0, left_out="vanished")
        except OSError:
            return ReadFile("", 0, left_out="unreadable")
        reason, notice = inspect(read.raw, self.settings, named=one.path in self.named)
        if reason is not None:
            if notice:
                note(f"{one.path}:{notice}")
            return ReadFile(read.stamp, len(read.raw), left_out=str(reason))
        return ReadFile(read.stamp, len(read.raw), hashlib.sha256(read.raw).hexdigest())

    def bodies(
        self, tree: "MultiRootTree", candidates: Mapping[str, "CandidateFile"], wanted: Sequence[str]
    ) -> Iterator[list[bytes]]:
        """Files of which the daemon lacks the bytes, in requests of bounded size; those that changed since are left out."""
        from codex.trees.sent import frame

        batch: list[bytes] = []
        for at, digest in enumerate(wanted):
            raw = tree.read(candidates[digest]).raw
            if hashlib.sha256(raw).hexdigest() != digest:
                self.known.pop(candidates[digest].path, None)
                continue
            if batch and sum(map(len, batch)) + len(raw) > BATCH:
                progress(f"sending files {count(at)}/{count(len(wanted))}")
                yield batch
                batch = []
            batch.append(frame(digest, raw))
        if batch:
            yield batch

    def taken(self, name: str, batch: list[bytes]) -> int:
        reply = Daemon(self.socket).send(f"/v1/sent/{route_part(name)}/files", b"".join(batch))
        return int(reply["taken"])


def sender_of(socket: str | None, body: Mapping[str, Any]) -> Sender:
    """For the body of a load that the daemon has refused. Raises Failure."""
    from codex.reload_match import name_from
    from codex.trees.ignore import Globs
    from codex.trees.sources import LoadSpec, resolve
    from orchestrator.errors import translated

    if body["dry_run"]:
        raise Failure(faults.USAGE, "a dry run reads files as the daemon's user", "leave out --dry-run")
    spec = LoadSpec(
        (body["path"], *body["more"]),
        globs=Globs(include=tuple(body["include"]), exclude=tuple(body["exclude"])),
        revision=body["revision"],
        load_secrets=body["secrets"],
    )
    with local.translated(), translated():
        settings = local.settings().settings.for_library()
        source = resolve(spec, Path.cwd())
    name = body["name"] or name_from(source.suggested_name)
    return Sender(socket, replace(spec, name=name), settings, source.named(spec.globs))


def load_events(sender: Sender, body: Mapping[str, Any]) -> Iterator[Event]:
    """The daemon's load of what was sent."""
    name, sent = sender.send()
    note(f"read as you, and sent to the daemon: {plural(sent, 'file')}")
    asked = {key: body[key] for key in ("path", "secrets", "replace", "tier", "wait")}
    return Daemon(sender.socket).stream("/v1/codices", {**asked, "name": name, "watch": False, "sent": True})


def follow(sender: Sender) -> None:
    """Sends what changes, until Ctrl-C."""
    from codex.following.gathering import ChangeBatch
    from codex.following.watch import Watcher

    batches: queue.SimpleQueue[ChangeBatch] = queue.SimpleQueue()
    with closing(sender.opened()) as tree:
        watcher = Watcher(tree, sender.settings.watch, batches.put, note)
        watcher.start()
        note("following changes, until Ctrl-C")
        try:
            while True:
                batches.get()
                name, sent = sender.send()
                Daemon(sender.socket).call("POST", f"/v1/sent/{route_part(name)}/changed")
                note(f"sent {plural(sent, 'changed file')}")
        finally:
            watcher.stop()
