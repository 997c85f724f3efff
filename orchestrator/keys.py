"""The key that checkpoints and databases are encrypted with: where it comes from, and what is made of it.

    credential   $CREDENTIALS_DIRECTORY/lorekeep.key, which systemd decrypts for the service alone
    keyring      the key `lorekeep` of type user in the kernel's keyring of the daemon's user

One secret of 32 bytes; each use has a key of its own, from which neither the secret nor another one follows. Knows no
cipher.
"""

import ctypes
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from orchestrator.errors import SettingsError
from orchestrator.wire.places import KeySource

SECRET_BYTES = 32
CREDENTIAL = "lorekeep.key"
KEYRING_NAME = "lorekeep"
LIBRARIES = ("cryptography", "sqlcipher3")
INSTALL = "pip install 'lorekeepd[encryption]'"
ADD_CREDENTIAL = "docs/security.md says how to make one; `lore service install` names it in the unit"
ADD_KEYRING = f"keyctl padd user {KEYRING_NAME} @u < FILE, which has {SECRET_BYTES} bytes"
# keyctl(2), by number: no library that every machine has wraps it. Of x86-64 and of AArch64.
_SYSCALLS = {"x86_64": (249, 250), "aarch64": (218, 219)}  # request_key, keyctl
_READ, _LINK = 11, 8
_PROCESS_KEYRING, _USER_KEYRING = -2, -4


@dataclass(frozen=True)
class Key:
    """`secret` never leaves the process but as keys made of it."""

    secret: bytes = field(repr=False)
    source: KeySource


def read_key(source: KeySource, environ: Mapping[str, str]) -> Key | None:
    """None where nothing is encrypted. Raises SettingsError for a key that is not there or cannot be used."""
    if source == "off":
        return None
    if missing := [name for name in LIBRARIES if find_spec(name) is None]:
        raise SettingsError(f"security.encrypt is {source}, and {missing[0]} is not installed", INSTALL)
    where, secret = credential(environ) if source == "credential" else keyring()
    if len(secret) != SECRET_BYTES:
        hint = ADD_CREDENTIAL if source == "credential" else ADD_KEYRING
        raise SettingsError(f"security.encrypt is {source}: {where} has {len(secret)} bytes, not {SECRET_BYTES}", hint)
    return Key(secret, source)


def subkey(key: Key | None, use: str) -> bytes:
    """32 bytes for this use alone, empty where nothing is encrypted: HMAC-SHA256, HKDF's second step for one block
    (RFC 5869)."""
    return hmac.digest(key.secret, f"lorekeep 1 {use}".encode(), "sha256") if key else b""


def credential(environ: Mapping[str, str]) -> tuple[str, bytes]:
    """Where it lies, and its bytes."""
    folder = environ.get("CREDENTIALS_DIRECTORY", "")
    if not folder:
        raise SettingsError(
            "security.encrypt is credential, and systemd gave none: $CREDENTIALS_DIRECTORY is not set", ADD_CREDENTIAL
        )
    path = Path(folder) / CREDENTIAL
    try:
        return str(path), path.read_bytes()
    except OSError as error:
        raise SettingsError(f"security.encrypt is credential: {path}: {error.strerror}", ADD_CREDENTIAL) from error


def keyring() -> tuple[str, bytes]:
    """What it is called, and its bytes; of one that has another size than a secret, zeros of that size.

    A key in a user's keyring may be read by who possesses it, not by who only has its user: the keyring is linked to this
    process first. A service of systemd has it in its own where the unit says KeyringMode=shared.
    """
    numbers, library = _SYSCALLS.get(os.uname().machine), ctypes.CDLL(None, use_errno=True)
    if numbers is None:
        raise SettingsError(
            f"security.encrypt is keyring, which is not known on {os.uname().machine}", "use credential"
        )
    request_key, keyctl = numbers
    library.syscall(keyctl, _LINK, _USER_KEYRING, _PROCESS_KEYRING)  # refused where there is none; then none is found
    found = library.syscall(request_key, b"user", KEYRING_NAME.encode(), None, 0)
    buffer = ctypes.create_string_buffer(SECRET_BYTES + 1)
    size = library.syscall(keyctl, _READ, found, buffer, len(buffer)) if found != -1 else -1
    if size < 0:
        why = os.strerror(ctypes.get_errno())
        raise SettingsError(f"security.encrypt is keyring: no key {KEYRING_NAME} can be read: {why}", ADD_KEYRING)
    return f"the key {KEYRING_NAME}", buffer.raw[:SECRET_BYTES] if size == SECRET_BYTES else bytes(size)
