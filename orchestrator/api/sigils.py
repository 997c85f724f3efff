"""Who asks: from a connection's peer, by the kernel's word, to a Principal. Deny by default; the daemon's owner may all.

A peer carries one sigil: the first rule, in the configuration's order, that names its user, else the first that names
one of its groups. A rule for one peer therefore changes nothing for another.
"""

import grp
import hashlib
import hmac
import pwd
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from orchestrator.service import Principal
from orchestrator.settings import SettingsError
from orchestrator.settings.model import OWNER, Settings, SigilRule

CREDENTIALS = struct.Struct("3i")
SO_PEERGROUPS = 59  # asm-generic/socket.h; Python's socket module does not name it
GROUPS_BUFFER = 1024  # bytes; socket.getsockopt refuses larger buffers
STATE_KEY = "lore.peer"
NOBODY = "none"
EVERYTHING = frozenset({"admin"})
TOKEN_UIDS = 1 << 32  # token holders have no uid; theirs lie above all that the kernel gives

Granted = tuple[str, frozenset[str], tuple[str, ...]]  # a sigil, its scopes, and patterns of codices


@dataclass(frozen=True)
class Peer:
    """Credentials at the time of connect(). The pid may have been given to another process since: for display only."""

    pid: int
    uid: int
    gid: int
    groups: tuple[int, ...] = ()


@dataclass(frozen=True)
class Rule:
    """A sigil with names resolved to numbers."""

    sigil: str
    uids: frozenset[int]
    gids: frozenset[int]
    scopes: frozenset[str]
    codices: tuple[str, ...] = ()

    @property
    def grant(self) -> Granted:
        return self.sigil, self.scopes, self.codices


@dataclass(frozen=True)
class Token:
    name: str
    sha256: str
    sigil: str


@dataclass(frozen=True)
class Sigils:
    """Everything that decides who may do what."""

    owner: int
    rules: tuple[Rule, ...] = ()
    tokens: tuple[Token, ...] = ()

    @staticmethod
    def of(settings: Settings, owner: int) -> "Sigils":
        """Raises SettingsError for a user, group or sigil that does not exist: silence would lock somebody out."""
        rules = tuple(resolved(name, rule) for name, rule in settings.sigils.items())
        for name, token in settings.tokens.items():
            wrong = settings.unknown_sigil(token.sigil)
            if wrong:
                raise SettingsError(f"tokens.{name}.sigil: {wrong}", "name one of them, or write its table")
        tokens = tuple(Token(name, token.sha256, token.sigil) for name, token in settings.tokens.items())
        return Sigils(owner, rules, tokens)

    def principal(self, peer: Peer) -> Principal:
        return Principal(peer.uid, peer.gid, peer.pid, peer.groups, *self.granted(peer))

    def granted(self, peer: Peer) -> Granted:
        if peer.uid == self.owner:
            return OWNER, EVERYTHING, ()
        groups = {peer.gid, *peer.groups}
        named = [rule for rule in self.rules if peer.uid in rule.uids]
        grouped = [rule for rule in self.rules if groups & rule.gids]
        return next((rule.grant for rule in (*named, *grouped)), (NOBODY, frozenset(), ()))

    def bearer(self, token: str) -> Principal | None:
        """The holder of a token, or None. Every known hash is compared, so that time tells nothing."""
        digest = token_hash(token)
        found = [known for known in self.tokens if hmac.compare_digest(known.sha256, digest)]
        if not found:
            return None
        by_name: Mapping[str, Granted] = {rule.sigil: rule.grant for rule in self.rules}
        grant = (OWNER, EVERYTHING, ()) if found[0].sigil == OWNER else by_name[found[0].sigil]
        return Principal(TOKEN_UIDS + int(digest[:8], 16), -1, 0, (), *grant)


def token_hash(token: str) -> str:
    """Tokens are 256 random bits: a plain hash cannot be guessed back."""
    return hashlib.sha256(token.encode()).hexdigest()


def resolved(name: str, rule: SigilRule) -> Rule:
    if name in (OWNER, NOBODY):
        raise SettingsError(f"sigils.{name}: this name is taken", "choose another")
    users, groups = f"{name}.users", f"{name}.groups"
    uids = frozenset(number_of(users, "user", one, lambda user: pwd.getpwnam(user).pw_uid) for one in rule.users)
    gids = frozenset(number_of(groups, "group", one, lambda group: grp.getgrnam(group).gr_gid) for one in rule.groups)
    return Rule(name, uids, gids, frozenset(rule.scopes), rule.codices)


def number_of(place: str, kind: str, named: str | int, look_up: Callable[[str], int]) -> int:
    """Of a user or a group. Raises SettingsError where there is none of the name."""
    try:
        return named if isinstance(named, int) else look_up(named)
    except KeyError:
        raise SettingsError(f"sigils.{place}: no {kind} {named}", "name one that exists, or its number") from None


def peer_of(connection: socket.socket) -> Peer | None:
    """None for connections that carry no credentials (TCP)."""
    if connection.family != socket.AF_UNIX:
        return None
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, uid, gid = CREDENTIALS.unpack(raw)
    return Peer(pid, uid, gid, groups_of(connection))


def groups_of(connection: socket.socket) -> tuple[int, ...]:
    """Supplementary groups; none where the kernel does not tell, or has more than fit: no group, no scope."""
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, GROUPS_BUFFER)
    except OSError:
        return ()
    return struct.unpack(f"{len(raw) // 4}I", raw)
