"""Asks the unseen questions of our search, of the BM25 floor and of peers: figures by repository and kind of question.

    python benchmarks/unseen.py [--number N] [--lost]

--number: questions of each kind and repository. --lost lists those that the floor ranks better than we do: what is to
be learned from, never to be fitted to one by one.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from code_questions.floor import Floor  # noqa: E402 - scripts and benchmarks are programs, not packages
from code_questions.scoring import HEADER, Scores, mean, score  # noqa: E402
from peers.contender import OURS, Contender, Kind, running  # noqa: E402
from peers.corpus import written  # noqa: E402
from unseen_questions.questions import Question  # noqa: E402
from unseen_questions.repositories import REPOSITORIES, made  # noqa: E402

NUMBER = 60
HITS = 30
FLOOR = "BM25 floor"


@dataclass(frozen=True)
class Asked:
    """A question, and the files that each one who was asked ranked for it, best first."""

    question: Question
    ranked: dict[str, list[str]]

    def scores(self, who: str) -> Scores:
        return score(self.ranked[who], self.question.files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=NUMBER)
    parser.add_argument("--lost", action="store_true")
    options = parser.parse_args()
    asked = list(every([OURS], options.number))
    print(f"{'':39}{'questions':>9}  {HEADER}")
    for name, some in groups(asked).items():
        for who in (FLOOR, OURS.name):
            print(f"{name:36}{who:11}{len(some):>4}  {mean([one.scores(who) for one in some]).row()}")
    if options.lost:
        for one in sorted(filter(lost, asked), key=lambda one: one.question):
            print(told(one))


def every(kinds: Sequence[Kind], number: int = NUMBER) -> Iterator[Asked]:
    """All questions asked of these tools and the floor. Raises NotInstalled, Refused."""
    with ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="unseen-")))
        tools = [undo.enter_context(running(kind, folder)) for kind in kinds]
        for repository in REPOSITORIES:
            what = made(repository, number)
            floor = Floor(what.documents)
            root = written(what.documents, folder / "corpora" / repository.package)
            for tool in tools:
                tool.index(root, folder / tool.kind.script / repository.package)
            yield from (asked(one, tools, floor) for one in what.questions)


def asked(question: Question, tools: Sequence[Contender], floor: Floor) -> Asked:
    ranked = {tool.kind.name: tool.search(question.text, HITS).files for tool in tools}
    ranked[FLOOR] = floor.files(question.text)[:HITS]
    return Asked(question, ranked)


def groups(every_one: Sequence[Asked]) -> dict[str, list[Asked]]:
    """By repository and kind, then by kind over all repositories."""
    found: dict[str, list[Asked]] = {}
    for one in every_one:
        for name in (f"{one.question.package}: {one.question.kind}", one.question.kind):
            found.setdefault(name, []).append(one)
    return dict(sorted(found.items(), key=lambda item: (":" not in item[0], item[0])))


def lost(one: Asked) -> bool:
    return one.scores(FLOOR).mrr > one.scores(OURS.name).mrr


def told(one: Asked) -> str:
    """A lost question with its answer, at which rank each has it (0: not at all), and what we gave instead."""
    question, ranks = (
        one.question,
        [round(1 / mrr) if (mrr := one.scores(who).mrr) else 0 for who in (OURS.name, FLOOR)],
    )
    instead = one.ranked[OURS.name][:3]
    return (
        f"{question.package}, {question.kind}: {question.text}\n"
        f"    answer {', '.join(question.files)}: ours {ranks[0]}, floor {ranks[1]}; first {', '.join(instead)}"
    )


if __name__ == "__main__":
    main()
