"""Finds private keys, tokens and passwords in a file's bytes, so that they do not end up in a prompt.

The formats are those of Kingfisher's catalog (MongoDB, Apache-2.0), which its maintainers keep up with the issuers'; of it
only the rules that it calls sure. `secret_rules.yml` adds the few that the catalog lacks. There is no rule for bare
passwords or high entropy: those find more test data than secrets.

All rules are one automaton (Vectorscan): time grows with the text alone, and the interpreter's lock is not held. It is
compiled once a machine, about four seconds, and kept in the user's cache. Only the scanner of that library is used: it
opens no connection, and nothing found is ever tried out.
"""

import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from codex.errors import CodexError

if TYPE_CHECKING:
    from kingfisher_sdk import Scanner

_OWN = Path(__file__).with_name("secret_rules.yml")
# Values that say themselves that they are examples; the last is how the best-known sample of a JSON web token goes on.
_EXAMPLE = re.compile(r"EXAMPLE|example|XXXX|xxxx|0000000000|1234567890|abcdefghij|\.eyJzdWIiOiIxMjM0NTY3ODkw")


@dataclass(frozen=True, slots=True)
class Finding:
    """What kind of secret stands at which line (from 1). The secret itself is never carried along."""

    kind: str
    line: int


def find_secret(raw: bytes) -> Finding | None:
    """The first secret in a file, or None. Safe to call from several threads.

    Raises CodexError where the rules cannot be used on this machine.
    """
    found = [
        Finding(_kind(one.rule_id), one.location["line"])
        for one in _shared.scanner().scan(raw)
        if one.visible and not _EXAMPLE.search(one.secret)
    ]
    return min(found, key=lambda one: one.line, default=None)


def _kind(rule: str) -> str:
    """`lorekeep.aws-access-key` is an aws access key."""
    return rule.rpartition(".")[2].rpartition("/")[2].replace("-", " ")


class _Shared:
    """The scanner of this process, made when the first file is looked at: most commands look at none."""

    def __init__(self) -> None:
        self._made: Scanner | None = None
        self._making = threading.Lock()

    def scanner(self) -> "Scanner":
        if self._made is None:
            with self._making:
                self._made = self._made or _compiled()
        return self._made


def _compiled() -> "Scanner":
    from kingfisher_sdk import Rules, Scanner  # 50 ms and 13 MB

    try:
        return Scanner(Rules([_OWN], confidence="high"), base64=False)
    except (OSError, RuntimeError, ValueError) as error:
        raise CodexError(f"files cannot be searched for secrets: {error}; --with-secrets loads without it") from error


_shared = _Shared()
