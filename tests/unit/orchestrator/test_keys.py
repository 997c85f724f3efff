"""The key comes whole from where it was said to be, or a sentence says what is wrong with it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import SettingsError
from orchestrator.keys import CREDENTIAL, KEYRING_NAME, Key, read_key, subkey

pytest.importorskip("cryptography", reason="the extra `encryption` is not installed")
SECRET = bytes(range(32))


def given(folder: Path, secret: bytes) -> dict[str, str]:
    (folder / CREDENTIAL).write_bytes(secret)
    return {"CREDENTIALS_DIRECTORY": str(folder)}


def test_no_key_is_read_where_nothing_is_encrypted(tmp_path: Path) -> None:
    assert read_key("off", given(tmp_path, SECRET)) is None
    assert subkey(None, "databases") == b""


def test_a_credential_of_systemd_is_the_key(tmp_path: Path) -> None:
    assert read_key("credential", given(tmp_path, SECRET)) == Key(SECRET, "credential")


@pytest.mark.parametrize("secret", [b"", SECRET[:-1], SECRET + b"\n", SECRET.hex().encode()], ids=len)
def test_a_key_of_another_length_is_refused_and_not_told(tmp_path: Path, secret: bytes) -> None:
    with pytest.raises(SettingsError, match=f"{CREDENTIAL} has {len(secret)} bytes, not 32") as refused:
        read_key("credential", given(tmp_path, secret))
    assert refused.value.hint
    assert not secret or secret.decode("latin-1") not in str(refused.value)


def test_a_credential_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="CREDENTIALS_DIRECTORY is not set"):
        read_key("credential", {})
    with pytest.raises(SettingsError, match=f"{CREDENTIAL}: No such file"):
        read_key("credential", {"CREDENTIALS_DIRECTORY": str(tmp_path)})


def test_a_library_that_is_not_installed_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.keys.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match="cryptography is not installed") as refused:
        read_key("credential", {})
    assert "lorekeepd[encryption]" in refused.value.hint


def test_each_use_has_a_key_of_its_own_and_none_is_shown() -> None:
    key, other = Key(SECRET, "credential"), Key(SECRET[::-1], "credential")
    keys = {subkey(key, "databases"), subkey(key, "checkpoints"), subkey(other, "databases"), SECRET}
    assert ({len(one) for one in keys}, len(keys)) == ({32}, 4)
    assert "\\x01" not in repr(key)


# A keyring of its own: in a session, or beside it in the user's, where only who links that to himself may read it.
IN_KEYRING = """
import ctypes, os, sys
from orchestrator.errors import SettingsError
from orchestrator.keys import _SYSCALLS, read_key
request_key, keyctl = _SYSCALLS[os.uname().machine]
library, (where, size) = ctypes.CDLL(None, use_errno=True), map(int, sys.argv[1:])
if library.syscall(keyctl, 1, None) < 0:
    sys.exit("refused: " + os.strerror(ctypes.get_errno()))
made = library.syscall(request_key - 1, b"user", b"lorekeep", bytes(range(size)), size, where) if size else 0
if made < 0:
    sys.exit("refused: " + os.strerror(ctypes.get_errno()))
try:
    print(read_key("keyring", {}).secret.hex())
except SettingsError as error:
    print(error.message, "|", error.hint)
"""
SESSION, USER = -3, -4


def in_keyring(where: int, size: int) -> str:
    """What is read, in a user namespace: the keyring of whoever runs the tests is not touched."""
    command = ["unshare", "--user", sys.executable, "-P", "-c", IN_KEYRING, str(where), str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    if "refused" in done.stderr or "unshare" in done.stderr:
        pytest.skip(f"a container may forbid keyrings: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("where", [SESSION, USER], ids=["session", "user"])
def test_a_key_in_the_kernels_keyring_is_read(where: int) -> None:
    assert in_keyring(where, 32) == SECRET.hex()


def test_a_key_of_another_length_in_the_keyring_is_refused() -> None:
    assert "the key lorekeep has 16 bytes, not 32" in in_keyring(SESSION, 16)
    assert "the key lorekeep has 40 bytes, not 32" in in_keyring(SESSION, 40)


def test_a_keyring_without_the_key_is_refused_with_what_adds_it() -> None:
    said = in_keyring(SESSION, 0)
    assert "no key lorekeep can be read: Required key not available" in said
    assert f"keyctl padd user {KEYRING_NAME} @u" in said
