"""What a fleet would need, on paper: the table of docs/scale.md, from a model's shape and assumptions that stand here.

Nothing of it was run. `python scripts/scale_on_paper.py` prints the table; a test compares it with the page.
"""

from dataclasses import dataclass
from math import ceil

USERS = (10, 100, 1_000)
CODICES = (1, 10, 100)


@dataclass(frozen=True)
class Assumed:
    """Of a model of 8 billion weights in 16 bits with grouped keys, and of a card of 80 GB. Units: bytes, seconds, FLOP."""

    weights: float = 8.0e9
    layers: int = 32
    kv_heads: int = 8
    head: int = 128
    width: int = 4_096
    kv_value: float = 2.0  # bytes of one value; q8_0: 34 / 32
    floor: int = 100_000  # tokens of a codex
    own: int = 1_000  # tokens that a question computes behind its floor
    answer: int = 300  # tokens
    kept: int = 4_000  # tokens of a conversation that stay in the cache
    active: float = 0.2  # of the users have such a conversation
    asks: float = 6 / 3_600  # questions a second of a user at the busiest hour
    card: float = 80e9
    usable: float = 0.9  # of the card
    rate: float = 300e12  # FLOP a second, that a prefill reaches
    reads: float = 2.0e12  # bytes a second, that a decode reaches
    batch: int = 8  # answers in one step
    load: float = 0.7  # of a server's time: above it, questions queue
    id_bytes: float = 6.0  # of one token id in JSON


def kv_token(a: Assumed) -> float:
    """Bytes of KV of one token."""
    return 2 * a.layers * a.kv_heads * a.head * a.kv_value


def prefill(a: Assumed, tokens: int, before: int = 0) -> float:
    """Seconds to compute tokens behind others: the weights once each, and attention over all that stands before."""
    seen = before * tokens + tokens**2 / 2
    return (2 * a.weights * tokens + 4 * a.layers * a.width * seen) / a.rate


def question(a: Assumed) -> float:
    """Seconds of a server for a question about a floor that is in its cache: each token read the weights, shared by a
    batch, and its own KV."""
    token = (2 * a.weights / a.batch + kv_token(a) * (a.floor + a.own)) / a.reads
    return prefill(a, a.own, a.floor) + a.answer * token


def room(a: Assumed) -> float:
    """Bytes for KV on a server of one card."""
    return a.card * a.usable - 2 * a.weights


@dataclass(frozen=True)
class Need:
    floors: float  # bytes
    conversations: float  # bytes
    resident: int  # servers that hold all of both
    busy: int  # servers that answer, were every floor in the cache
    hits: float  # share of questions whose floor must be there, with one server more than `busy`


def need(a: Assumed, users: int, codices: int) -> Need:
    floors = codices * a.floor * kv_token(a)
    conversations = users * a.active * a.kept * kv_token(a)
    rate = users * a.asks
    busy = max(1, ceil(rate * question(a) / a.load))
    spare = a.load * (busy + 1) / rate - question(a)
    hits = max(0.0, 1 - spare / prefill(a, a.floor))
    return Need(floors, conversations, max(busy, ceil((floors + conversations) / room(a))), busy, hits)


def upload(a: Assumed) -> float:
    """Bytes that a question sends to a server: the whole prompt as ids."""
    return (a.floor + a.own) * a.id_bytes


def table(a: Assumed | None = None) -> str:
    a = a or Assumed()
    rows = [
        "| users | codices | KV of the floors | KV of conversations | servers, all in the cache "
        "| servers for the answers alone | hit ratio with one more | sent at the busiest hour |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for users in USERS:
        for codices in CODICES:
            found = need(a, users, codices)
            hits = "any" if found.hits == 0 else f"{100 * found.hits:.0f} %"
            sent = f"{users * a.asks * upload(a) / 1e6:.2f} MB/s"
            sizes = f"{found.floors / 1e9:,.0f} GB | {found.conversations / 1e9:,.0f} GB"
            rows.append(f"| {users:,} | {codices} | {sizes} | {found.resident} | {found.busy} | {hits} | {sent} |")
    return "\n".join(rows)


if __name__ == "__main__":
    given = Assumed()
    print(table(given))
    print(f"{kv_token(given):,.0f} B a token, {room(given) / 1e9:.0f} GB for KV")
    print(f"first prefill {prefill(given, given.floor):.1f} s")
    print(f"a warm question {question(given):.2f} s of a server, {upload(given) / 1e6:.2f} MB sent")
