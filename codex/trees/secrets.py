"""Finds private keys, tokens and passwords in a file's bytes, so that they are not put into a prompt.

The rules are those of Kingfisher's catalog (MongoDB, Apache-2.0) with high confidence; its maintainers follow the formats
of the issuers. `secret_rules.yml` adds the few that the catalog lacks. There is no rule for bare passwords or high entropy:
those find more test data than secrets.

All rules are one automaton (Vectorscan): the time grows with the text only, and the interpreter's lock is released. It is
compiled once on a machine, in about four seconds, and kept in the user's cache. Only the scanner of that library is used:
it opens no connection, and no secret is tried out.
"""

import re
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from codex.errors import CodexError

if TYPE_CHECKING:
    from kingfisher_sdk import Scanner

_OWN = Path(__file__).with_name("secret_rules.yml")
# Values that are marked as examples; the last is the continuation of the best-known sample of a JSON web token.
_EXAMPLE = re.compile(r"EXAMPLE|example|XXXX|xxxx|0000000000|1234567890|abcdefghij|\.eyJzdWIiOiIxMjM0NTY3ODkw")
_compiling = threading.Lock()


@dataclass(frozen=True, slots=True)
class Finding:
    """The kind of a secret and its line (from 1), without the secret itself."""

    kind: str
    line: int


def compile_rules() -> bool:
    """Makes the scanner: seconds for the first load on a machine. False where the rules cannot be used on it."""
    try:
        with _compiling:
            _scanner()
    except CodexError:
        return False
    return True


def find_secret(raw: bytes) -> Finding | None:
    """The first secret in a file, or None. Safe to call from several threads.

    Raises CodexError where the rules cannot be used on this machine.
    """
    with _compiling:
        scanner = _scanner()
    found = [
        Finding(_kind(one.rule_id), one.location["line"])
        for one in scanner.scan(raw)
        if one.visible and not _EXAMPLE.search(one.secret)
    ]
    return min(found, key=lambda one: one.line, default=None)


def _kind(rule: str) -> str:
    """`lorekeep.aws-access-key` is an aws access key."""
    return rule.rpartition(".")[2].rpartition("/")[2].replace("-", " ")


@cache
def _scanner() -> "Scanner":
    """The scanner of this process, made when the first file is looked at: most commands look at none."""
    from kingfisher_sdk import Rules, Scanner  # 50 ms and 13 MB

    try:
        return Scanner(Rules([_OWN], confidence="high"), base64=False)
    except (OSError, RuntimeError, ValueError) as error:
        raise CodexError(f"files cannot be searched for secrets: {error}; --with-secrets loads without it") from error
