"""An archive on object storage: where a codex's tables lie, whether they can be reached, and who may write to them.

Many machines read one index, and one at a time writes to it. Who writes holds a lease: the one row of a table beside the
codex's own, with the holder's name and an expiry. It is taken before a write, lengthened by further ones, and given back
when the archive is closed; that of a process that was killed runs out, or is taken again by the same holder. It keeps two
machines with other files from undoing each other's work. The index does not depend on it: LanceDB commits by a conditional
write, so of two writers whose clocks disagree one fails with a conflict.

LanceDB tries each request again, for up to a minute, while a server is silent. Therefore a cheap question is asked first,
with a time of its own, and what it found is believed for a few seconds. No message here has the words of a server: they
may quote a key.
"""

import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from codex.archive.folders import stem
from codex.archive.lance import LANCE_ERRORS, LanceSession, lancedb, panics_as_errors, retried
from codex.errors import ArchiveAway, ArchiveError, ArchiveHeld
from codex.settings import RemoteArchive

_ASKED = 0.3  # of the time of a request: as long may the question take whether it is there
_BELIEVED_S = 5.0  # an answer to it, good or bad
_LEASE = "lease"
_CODE = re.compile(r"<Code>([A-Za-z]{3,60})</Code>")
_WHY = (  # the first that a message holds; the words are ours
    ("nosuchbucket", "there is no such bucket"),
    ("signaturedoesnotmatch", "it refuses the keys"),
    ("invalidaccesskeyid", "it refuses the keys"),
    ("expiredtoken", "the keys have expired"),
    ("failed to get aws credentials", "no keys were found (AWS_ACCESS_KEY_ID, or archive.key_file)"),
    ("accessdenied", "the keys do not permit it"),
    ("status: 403", "the keys do not permit it"),
    ("403 forbidden", "the keys do not permit it"),
    ("slowdown", "it asks for fewer requests"),
    ("dns error", "its name cannot be resolved"),
    ("timeout", "it does not answer"),
    ("timed out", "it does not answer"),
    ("urlschemeisnotallowed", "http:// needs the option allow_http=true"),
    ("url scheme is not allowed", "http:// needs the option allow_http=true"),
    ("kind: connect", "nobody listens there"),
    ("connection refused", "nobody listens there"),
    ("error sending request", "the connection failed"),
    ("http error", "the connection failed"),
    ("connection", "the connection failed"),
    ("request error", "the connection failed"),
    ("status: 5", "it fails"),
    ("server error", "it fails"),
)


def why_away(error: BaseException) -> str:
    """Why the storage did not do what was asked, in words of ours; '' where it did, and something else is wrong. Pure."""
    if isinstance(error, TimeoutError):
        return "it does not answer"
    text = str(error).lower()
    return next((words for sign, words in _WHY if sign in text), "")


def unreadable(error: BaseException) -> str:
    """What else is wrong, as far as it can be told without a server's words. Pure."""
    text = str(error)
    if code := _CODE.search(text):
        return f"the storage answers {code[1]}"
    lost = "not found" in text.lower()
    return "a file of it is gone" if lost else f"what is stored is not what LanceDB wrote ({type(error).__name__})"


class Remote:
    """The object storage behind an archive. Thread-safe. Nothing is asked of it before the first use."""

    def __init__(
        self, given: RemoteArchive, local: Path, version: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`local`: a folder of this machine for what is noted about the codices' tables."""
        self.uri = given.uri.rstrip("/")
        self.given = given
        self._local = local
        self._version = version
        self._clock = clock
        self.ask_s = max(1.0, _ASKED * given.timeout_s)
        seconds = f"{given.timeout_s:.0f}s"
        usual = {
            "timeout": seconds,
            "connect_timeout": f"{self.ask_s:.0f}s",
            "client_max_retries": "2",
            "client_retry_timeout": f"{given.timeout_s:.0f}",
            "download_retry_count": "2",
        }
        self.options = {**usual, **given.options}
        self._session = LanceSession(self.options)
        self._looking = threading.Lock()
        self._looked: float | None = None
        self.away = ""
        self._leases: dict[str, float] = {}  # ours, by codex: until when, in seconds since 1970

    # -- places ----------------------------------------------------------------------------------------------------

    def of(self, codex: str) -> str:
        """Where its tables lie, or would. Those of other versions stay: other machines may read them."""
        return f"{self.uri}/{stem(codex)}.v{self._version}"

    def noted(self, codex: str) -> Path:
        """The folder of what this machine notes about them; made when missing."""
        folder = self._local / f"{stem(codex)}.v{self._version}"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def exists(self, codex: str) -> bool:
        """Raises what LanceDB raises."""
        names = self._session.connect(self.of(codex)).list_tables().tables
        return "chunks" in names and "files" in names

    # -- whether it is there ---------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises ArchiveAway within seconds where nothing can be asked of it."""
        with self._looking:
            if self._looked is None or self._clock() - self._looked > _BELIEVED_S:
                self._look()
            if self.away:
                raise ArchiveAway(self.uri, self.away)

    def _look(self) -> None:
        import asyncio

        async def asked() -> None:
            async with asyncio.timeout(self.ask_s):
                once = {**self.options, "client_max_retries": "0"}
                database = await lancedb().connect_async(self.uri, storage_options=once)
                await database.list_tables(limit=1)

        try:
            with panics_as_errors():
                lancedb()
                from lancedb.background_loop import LOOP

                LOOP.run(asked())
            self.away = ""
        except (*LANCE_ERRORS, TimeoutError) as error:
            self.away = why_away(error) or unreadable(error)
        self._looked = self._clock()

    def fault(self, codex: str, error: Exception) -> ArchiveError:
        """An error of LanceDB's as ours. What is stored is never removed: others read it."""
        if why := why_away(error):
            with self._looking:
                self.away, self._looked = why, self._clock()
            return ArchiveAway(self.uri, why)
        if "conflict" in str(error).lower():
            return ArchiveError(
                f"the archive of {codex!r} at {self.of(codex)}: another one wrote to it meanwhile; load again"
            )
        return ArchiveError(
            f"the archive of {codex!r} at {self.of(codex)} cannot be read: {unreadable(error)}; where that stays so, "
            f"delete everything under that place and load {codex} again"
        )

    # -- who writes ------------------------------------------------------------------------------------------------

    def holds(self, codex: str) -> bool:
        """Whether the lease is ours, as far as we know."""
        return self._leases.get(codex, 0.0) > time.time()

    def take(self, codex: str) -> bool:
        """Makes the lease ours for another while; True where it was not ours just before, so that somebody may have
        written. Raises ArchiveHeld, and what LanceDB raises."""
        given, now = self.given, time.time()
        if not given.writes:
            raise ArchiveHeld(codex, self.uri, "is not written from here (archive.writes is false)")
        mine = self._leases.get(codex, 0.0)
        if mine - now > given.lease_s / 2:
            return False
        table = self._lease_table(codex)
        holder, until = held_by(table)
        if holder != given.holder and until > now:
            raise self._held(codex, holder, until)
        whose = f"holder = {quoted(given.holder)} OR until <= {now!r}"
        row = {"holder": given.holder, "until": now + given.lease_s}
        retried(lambda: table.update(where=whose, values=row))
        holder, until = held_by(table)
        if holder != given.holder:
            raise self._held(codex, holder, until)
        self._leases[codex] = until
        if table.version % 64 == 0:
            retried(lambda: table.optimize(cleanup_older_than=timedelta(minutes=10)))
        return mine <= now

    def give_back(self) -> None:
        """The leases that are ours end now; where that cannot be said, they run out."""
        ours, self._leases = [codex for codex in self._leases if self.holds(codex)], {}
        for codex in ours:
            try:
                self.check()
                with panics_as_errors():
                    whose = f"holder = {quoted(self.given.holder)}"
                    self._lease_table(codex).update(where=whose, values={"until": 0.0})
            except (ArchiveError, *LANCE_ERRORS):
                return

    def _lease_table(self, codex: str) -> Any:
        """With its one row from the beginning: of two that make it, one does, and the other finds it."""
        import pyarrow as pa

        database = self._session.connect(self.of(codex), timedelta(0))
        if _LEASE in database.list_tables().tables:
            return database.open_table(_LEASE)
        schema = pa.schema([pa.field("holder", pa.string()), pa.field("until", pa.float64())])
        row = pa.Table.from_pylist([{"holder": "", "until": 0.0}], schema=schema)
        try:
            return database.create_table(_LEASE, row)
        except LANCE_ERRORS:
            return database.open_table(_LEASE)

    def _held(self, codex: str, holder: str, until: float) -> ArchiveHeld:
        when = datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return ArchiveHeld(codex, self.uri, f"is written by {holder}, until {when} at least", until)


def held_by(table: Any) -> tuple[str, float]:
    """Who holds the lease, and until when in seconds since 1970."""
    rows = table.search().select(["holder", "until"]).to_arrow().to_pylist()
    return (str(rows[0]["holder"]), float(rows[0]["until"])) if rows else ("", 0.0)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
