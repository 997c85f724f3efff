"""Memories that stand whatever is asked: constraints, the user's lists and traits, and the names of procedures.

Each is a context node of the gate with a place of its own in the prompt. They are looked up when a block is built, and are
pinned with it: an entry that comes later waits for the next block, so that no prefix breaks for it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from orchestrator.karma.records import MemoryRecord
from orchestrator.karma.schema import CURRENT, VISIBLE
from orchestrator.karma.store import MemoryStore


@dataclass(frozen=True)
class StandingNode:
    """`condition` and `order` choose records of one user, for one codex or none; `shown` is the text of one of them;
    `most` are tokens of the node together, beside those of what is verbatim, which always stands. A `forced` node takes its
    room before any other memory. One of `names` tells no texts."""

    name: str
    condition: str
    order: str
    most: int
    shown: Callable[[MemoryRecord], str]
    forced: bool = False
    of_codex: bool = False  # of the question's codex alone
    names: bool = False


def _summary(record: MemoryRecord) -> str:
    return record.text if record.verbatim else record.summary


def _of_list(record: MemoryRecord) -> str:
    return f"{record.subject.partition(':')[2]}: {_summary(record)}"


_ABOUT = "kind = 'fact' AND subject <> '' AND"  # as the index of subjects has it


CONSTRAINTS = "censors"
STANDING = (
    StandingNode(CONSTRAINTS, "kind = 'censor'", "number DESC", 1_200, _summary, forced=True),
    StandingNode("active_lists", f"{_ABOUT} subject GLOB 'list:?*'", "subject, number", 700, _of_list),
    StandingNode("user_traits", f"{_ABOUT} subject = 'user' AND attribute GLOB 'trait:?*'", "number", 200, _summary),
    StandingNode(
        "communication_style",
        f"{_ABOUT} subject = 'user' AND attribute GLOB 'style:?*'",
        "number",
        150,
        _summary,
    ),
    StandingNode(
        "available_skills",
        "kind = 'procedure'",
        "effectiveness DESC, activations DESC, number",
        200,
        lambda record: record.micro,
        of_codex=True,
        names=True,
    ),
)
"""In the order in which they take their room. That of constraints holds the 12 longest that are not verbatim. None is
dropped for the room of others, and of those that have none the user is told."""
STANDING_NODES = tuple(node.name for node in STANDING)
MOST = 1_000  # of a node: whether one of a domain or a verbatim one stands is known only when it was read
LEAST = 4  # tokens: nothing is as short


def standing(
    store: MemoryStore,
    uid: int,
    codex: str | None,
    room: int,
    wants: Callable[[str], bool],
    count: Callable[[str], int],
    holds: Callable[[str], bool] = bool,
) -> tuple[Sequence[tuple[str, MemoryRecord, str]], Counter[str]]:
    """The node, the record and its text, of nodes that are wanted; and how many of each node have no room, constraints not
    even in one line. `room`: tokens for those that are not forced; `holds`: whether a domain is that of the
    question, asked of constraints. What is verbatim takes no room of others. Raises LoreError."""
    chosen: list[tuple[str, MemoryRecord, str]] = []
    without_room = Counter[str]()
    for node in STANDING:
        if not wants(node.name):
            continue
        left = node.most if node.forced else min(node.most, room)
        for record in _records(store, uid, codex, node):
            if node.name == CONSTRAINTS and record.domain and not holds(record.domain):
                continue
            if record.verbatim and not node.names:
                chosen.append((node.name, record, node.shown(record)))
                continue
            text = next((one for one in _texts(node, record) if left >= LEAST and count(one) <= left), None)
            if text is None:
                without_room[node.name] += 1
                left = left if node.forced else 0  # those of a list stand in its order
                continue
            tokens = count(text)
            left, room = left - tokens, room - (0 if node.forced else tokens)
            chosen.append((node.name, record, text))
    return chosen, without_room


def _texts(node: StandingNode, record: MemoryRecord) -> Sequence[str]:
    """Of one record, the longest first: what has to stand stands in one line where there is no room for more."""
    return (node.shown(record), record.micro) if node.forced else (node.shown(record),)


def in_domain(domain: str, tags: Iterable[str], paths: Iterable[str]) -> bool:
    """Whether a question is in a domain: its tag, or a file or folder that holds one of its paths."""
    folder = domain.strip("/")
    return domain in tags or any(f"/{path.strip('/')}/".find(f"/{folder}/") >= 0 for path in paths)


def _records(store: MemoryStore, uid: int, codex: str | None, node: StandingNode) -> Sequence[MemoryRecord]:
    if node.of_codex and codex is None:
        return ()
    whose = "uid = ? AND codex = ?" if node.of_codex else VISIBLE
    condition = f"{whose} AND {CURRENT} AND {node.condition}"
    return store.records(f"{condition} ORDER BY {node.order} LIMIT ?", uid, codex, MOST)
