"""SQLite files that are encrypted: SQLCipher under SQLite's interface. Pages, log and indexes of words are all encrypted.

    file  =  LOREDB01 │ key's id │ pages, each with a nonce and a MAC of its own        AES-256-CBC, HMAC-SHA512

SQLCipher keeps a salt in the first 16 bytes. The key here is as long as the cipher's and random, so no salt has to
strengthen it: these bytes tell what the file is and which key it wants. A wrong key is then no damage.
"""

import hmac
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from codex.errors import CatalogError

try:
    from sqlcipher3 import dbapi2 as _cipher
except ImportError:  # an extra: who sets no key needs none
    _cipher = None

# SQLCipher's exceptions are no subclasses of these. SQLite may quote damaged bytes in what it complains of.
ERRORS: tuple[type[Exception], ...] = (sqlite3.Error, UnicodeDecodeError, *((_cipher.Error,) if _cipher else ()))
CONFLICTS: tuple[type[Exception], ...] = (sqlite3.IntegrityError, *((_cipher.IntegrityError,) if _cipher else ()))

_MAGIC = b"LOREDB01"
_SALT_BYTES = 16
_PLAIN = b"SQLite format 3\0"
_WAIT_S = 10.0


class OtherKey(CatalogError):
    """The file is encrypted, with another key or while none is set. It is left untouched."""


class TrackedConnection(sqlite3.Connection):
    """`file`: device and inode of the file that was opened; None when they could not be read."""

    file: tuple[int, int] | None = None


if _cipher is not None:

    class _SealedConnection(_cipher.Connection):  # type: ignore[misc]  # it ships no types
        file: tuple[int, int] | None = None


def connect(path: Path, key: bytes, **options: Any) -> TrackedConnection:
    """A connection; makes a file where there is none. `key`: 32 bytes, empty for a plain file. Raises OtherKey."""
    begins = _beginning(path)
    if begins.startswith(_MAGIC) and begins != (_salt(key) if key else b""):
        raise OtherKey(
            f"{path} is encrypted, and {'with another key' if key else 'no key is set'}; set security.encrypt and the key "
            "that it was made with, or move the file away and begin anew: without that key nobody can read it"
        )
    if not key:
        return sqlite3.connect(path, factory=TrackedConnection, **options)
    database = cast(TrackedConnection, _cipher.connect(str(path), factory=_SealedConnection, **options))
    database.execute("PRAGMA cipher_log_level = NONE")  # it would write to stderr what is raised as well
    database.execute(f'PRAGMA key = "{_literal(key)}"')
    return database


def is_plain(path: Path) -> bool:
    """Whether an SQLite file lies there that is not encrypted."""
    return _beginning(path) == _PLAIN


def is_sealed(path: Path) -> bool:
    """Whether the file says that it is encrypted."""
    return _beginning(path).startswith(_MAGIC)


def seal(path: Path, key: bytes) -> None:
    """Encrypts a plain file, and the copies that migrations made of it. Nobody else may have it open.

    The encrypted file is made beside it and takes its name when it is whole. What an interrupted call leaves is encrypted,
    and the next one begins anew. Where the blocks of the plain file were, the disk may still have them.
    """
    for copy in path.parent.glob(f"{path.name}.before-*"):
        if is_plain(copy):
            _replace(copy, key)
    _replace(path, key)  # the last: while it is plain all of this is done again


def _replace(path: Path, key: bytes) -> None:
    sealed = path.with_name(f"{path.name}.sealing")
    for leftover in (sealed, sealed.with_name(f"{sealed.name}-journal")):
        leftover.unlink(missing_ok=True)
    with closing(_cipher.connect(str(path), timeout=_WAIT_S, isolation_level=None)) as plain, _unless_done(sealed):
        # The log goes into the file and away: SQLite would play it into the encrypted one.
        if plain.execute("PRAGMA journal_mode = DELETE").fetchone() != ("delete",):
            raise CatalogError(f"{path} cannot be encrypted: another program has it open; end that one, and try again")
        plain.execute("PRAGMA locking_mode = EXCLUSIVE")
        plain.execute(f'ATTACH ? AS sealed KEY "{_literal(key)}"', (str(sealed),))
        plain.execute("PRAGMA sealed.auto_vacuum = INCREMENTAL")
        plain.execute("SELECT sqlcipher_export('sealed')")
        for number in ("user_version", "application_id"):
            plain.execute(f"PRAGMA sealed.{number} = {plain.execute(f'PRAGMA main.{number}').fetchone()[0]}")
        plain.execute("DETACH sealed")
        sealed.chmod(0o600)
        sealed.replace(path)
    _sync(path.parent)


@contextmanager
def _unless_done(unfinished: Path) -> Iterator[None]:
    """A disk that is full gets its room back."""
    try:
        yield
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _salt(key: bytes) -> bytes:
    return _MAGIC + hmac.digest(key, b"id", "sha256")[: _SALT_BYTES - len(_MAGIC)]


def _literal(key: bytes) -> str:
    """Key and salt as SQLCipher takes them unchanged."""
    return f"x'{key.hex()}{_salt(key).hex()}'"


def _beginning(path: Path) -> bytes:
    with suppress(OSError), path.open("rb") as file:
        return file.read(_SALT_BYTES)
    return b""
