"""Our codex and archive beside other code search: taking in 10 MB, and finding what questions ask for.

Each tool runs in a process of its own on a copy of its own of the same files. It has the machine to itself, seconds are
its own (no start of Python), searches are counted after a few that warm it up. `docs/codex-peers.md` says what each does.
"""

import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import httpx2
from answers import Refused
from cases_daemon import client, load
from cases_engine import Bench
from code_questions.corpora import documents
from code_questions.floor import Floor
from code_questions.scoring import Scores, mean, score
from peers.contender import OURS, PEERS, Contender, Kind, running
from peers.corpus import first_bytes, written
from peers.environments import NotInstalled
from private_daemon import private_daemon
from report import Row, at_most
from unseen import FLOOR, HITS, every, groups

from codex.documents import Document

TEN_MB = 10_000_000
MIB = 2**20
QUESTIONS = Path(__file__).parent / "code_questions" / "questions.jsonl"
PATIENCE_S = 30.0
WARMING, TIMED_S = 3, 20.0  # searches before the clock, and the longest that searches of one tool are timed
GOALS = {"recall@10": 0.88, "MRR": 0.85, "hit@1": 0.78}
Asking = dict[str, list[Scores]]


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    return {
        "code search, ingest": ingest,
        "code search, a saved file": saved,
        "code search, 141 questions": questions,
        "code search, unseen questions": unseen,
    }


# ---- taking in 10 MB -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ingested:
    """Seconds, bytes. `changed_s` is None for a tool that did not find what was written."""

    first_s: float
    unchanged_s: float
    changed_s: float | None
    search_s: float
    stored: int
    peak: int


def ingest(bench: Bench) -> Iterator[Row]:
    """Django's own sources and the first of its tests, 10 MB in all."""
    corpus = first_bytes(documents("django", "5.2.6"), TEN_MB)
    case = f"code search, {sum(one.size for one in corpus) / 1e6:.0f} MB in {len(corpus):,} files"
    ours = ingested(OURS, corpus, bench.runs)
    yield at_most(case, "first index", ours.first_s, 60, "s")
    yield at_most(case, "nothing changed", ours.unchanged_s, 1, "s")
    yield at_most(case, "one file changed until found", ours.changed_s or 0.0, 1, "s")
    yield Row(case, "search, p50", 1_000 * ours.search_s, unit="ms")
    for kind in PEERS:
        beside = f"{case}, beside {kind.name}"
        try:
            yield from compared(beside, ours, ingested(kind, corpus, bench.runs))
        except (NotInstalled, Refused) as error:
            yield Row(beside, str(error)[:120], None, note="no figures")


def compared(case: str, ours: Ingested, theirs: Ingested) -> Iterator[Row]:
    yield beside(case, "first index", ours.first_s, theirs.first_s, "s")
    yield beside(case, "nothing changed", ours.unchanged_s, theirs.unchanged_s, "s")
    if ours.changed_s is None or theirs.changed_s is None:
        yield Row(case, "one file changed until found", ours.changed_s, unit="s", note="not found by them")
    else:
        yield beside(case, "one file changed until found", ours.changed_s, theirs.changed_s, "s")
    yield beside(case, "search, p50", 1_000 * ours.search_s, 1_000 * theirs.search_s, "ms")
    yield beside(case, "index on disk", ours.stored / MIB, theirs.stored / MIB, "MiB")
    yield beside(case, "peak memory", ours.peak / MIB, theirs.peak / MIB, "MiB")


def beside(case: str, figure: str, ours: float, theirs: float, unit: str) -> Row:
    return Row(case, figure, ours, theirs, unit, ours / theirs if theirs else None)


def ingested(kind: Kind, corpus: Sequence[Document], runs: int) -> Ingested:
    """Raises NotInstalled, Refused."""
    with tempfile.TemporaryDirectory(prefix="codex-") as name, running(kind, Path(name)) as tool:
        root = written(corpus, Path(name) / "django")
        store = Path(name) / "store"
        before = size(root)
        first = tool.index(root, store)
        stored = size(store) + size(root) - before  # some keep their index in the repository
        unchanged = median(tool.index(root, store) for _ in range(runs))
        changes = [changed(tool, root, store, corpus[at * len(corpus) // runs].path) for at in range(runs)]
        known = [taken for taken in changes if taken is not None]
        found = median(known) if len(known) == len(changes) else None
        return Ingested(first, unchanged, found, searches(tool), stored, tool.peak())


def changed(tool: Contender, root: Path, store: Path, path: str) -> float | None:
    """Seconds to take in a file that got a function, and to find the function by its name; None when it is not found."""
    name = write_function(root / path)
    indexed = tool.index(root, store)
    found = tool.search(name, HITS)
    return indexed + found.seconds if path in found.files else None


def searches(tool: Contender) -> float:
    """Median seconds of a search, over the 141 questions or as many as twenty seconds allow."""
    texts = [one["question"] for one in asked_by_people()]
    for text in texts[:WARMING]:
        tool.search(text, HITS)
    taken: list[float] = []
    for text in texts:
        taken.append(tool.search(text, HITS).seconds)
        if sum(taken) > TIMED_S:
            break
    return median(taken)


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def saved(bench: Bench) -> Iterator[Row]:
    """What a user meets: an editor saves a file, nobody is told, and a search finds what is new.

    Its floor is being computed meanwhile, as it is for a user who has just loaded something.
    """
    corpus = first_bytes(documents("django", "5.2.6"), TEN_MB)
    with private_daemon(model="builtin:noise-s", models=bench.model.parent) as daemon, client(daemon) as http:
        root = written(corpus, daemon.folder / "django")
        begun = time.perf_counter()
        load(daemon, root, "django")
        case = "code search, 10 MB in the daemon"
        yield at_most(case, "lore load, until it can be searched", time.perf_counter() - begun, 60, "s")
        taken = [found_after_save(http, root, corpus[at * len(corpus) // bench.runs].path) for at in range(bench.runs)]
        yield at_most(case, "saved until found", median(taken), 1, "s")


def found_after_save(http: httpx2.Client, root: Path, path: str) -> float:
    """Seconds from the save of a file until a search finds it. Raises Refused after half a minute."""
    name = write_function(root / path)
    begun = time.perf_counter()
    while time.perf_counter() - begun < PATIENCE_S:
        answer = http.post("/v1/search", json={"query": name, "codex": "django"})
        answer.raise_for_status()
        if any(hit["path"] == path for hit in answer.json()["hits"]):
            return time.perf_counter() - begun
    raise Refused(f"a function written to {path} was not found in {PATIENCE_S:.0f} s")


def write_function(path: Path) -> str:
    """Its name, which nothing else has."""
    name = f"written_by_benchmark_{time.monotonic_ns()}"
    with path.open("a", encoding="utf-8") as file:
        file.write(f"\n\ndef {name}(value):\n    return {name}(value - 1)\n")
    return name


# ---- finding ---------------------------------------------------------------------------------------------------------


def questions(bench: Bench) -> Iterator[Row]:
    """The 141 questions, scored alike for all."""
    del bench
    case = "code search, 141 questions"
    everybody = asked_by_people()
    ours = mean(answered(OURS, everybody))
    yield from (
        Row(case, figure, value, goal=f"≥ {GOALS[figure]:g}", met=value >= GOALS[figure])
        for figure, value in figures(ours).items()
    )
    yield from beside_all(f"{case}, beside the {FLOOR}", ours, mean(floor_scores(everybody)))
    for kind in PEERS:
        try:
            yield from beside_all(f"{case}, beside {kind.name}", ours, mean(answered(kind, everybody)))
        except (NotInstalled, Refused) as error:
            yield Row(f"{case}, beside {kind.name}", str(error)[:120], None, note="no figures")


def unseen(bench: Bench) -> Iterator[Row]:
    """Questions made by rule from larger repositories. aider's map takes seconds a question there and is left out."""
    del bench
    fast = [kind for kind in PEERS if not kind.slow and installed(kind)]
    for name, some in groups(list(every([OURS, *fast]))).items():
        if ":" in name:
            continue
        ours = mean([one.scores(OURS.name) for one in some])
        for who in (FLOOR, *(kind.name for kind in fast)):
            theirs = mean([one.scores(who) for one in some])
            yield from beside_all(f"unseen, {name} ({len(some)}), beside {who}", ours, theirs)


def installed(kind: Kind) -> bool:
    try:
        kind.python()
    except NotInstalled:
        return False
    return True


def beside_all(case: str, ours: Scores, theirs: Scores) -> Iterator[Row]:
    other = figures(theirs)
    for figure, value in figures(ours).items():
        yield beside(case, figure, value, other[figure], "")


def figures(scores: Scores) -> dict[str, float]:
    return {"recall@10": scores.recall_10, "hit@1": scores.hit_1, "MRR": scores.mrr}


def answered(kind: Kind, everybody: Sequence[dict[str, str]]) -> list[Scores]:
    """Raises NotInstalled, Refused."""
    with tempfile.TemporaryDirectory(prefix="codex-") as name, running(kind, Path(name)) as tool:
        found = []
        for (package, version), some in by_package(everybody).items():
            root = written(documents(package, version), Path(name) / package)
            tool.index(root, Path(name) / "stores" / package)
            found += [score(tool.search(one["question"], HITS).files, one["files"]) for one in some]
        return found


def floor_scores(everybody: Sequence[dict[str, str]]) -> list[Scores]:
    found = []
    for (package, version), some in by_package(everybody).items():
        floor = Floor(documents(package, version))
        found += [score(floor.files(one["question"])[:HITS], one["files"]) for one in some]
    return found


def asked_by_people() -> list[dict[str, str]]:
    return [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]


def by_package(everybody: Sequence[dict[str, str]]) -> dict[tuple[str, str], list[dict[str, str]]]:
    found = defaultdict(list)
    for one in everybody:
        found[one["package"], one["version"]].append(one)
    return found
