"""`make endurance`: half an hour of a real daemon under kills, damage, full disks and little memory; a table, and JSON.

    python tests/soak/endurance.py [--minutes N] [--turns N] [--seed N] [--only TEXT]

Each part does a number of things (1,000 turns, 100 kills, 2,000 turns) times minutes / 30, or fewer where its share of the
time ends first, which its row then says. The exit status is 1 where a bound is missed or a part fails. Where memory is
not counted, daemons are forks of one process, as in the tests; with REAL_PROCESSES=1 each is started as a user does.
"""

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / place) for place in ("tests", "scripts", "benchmarks")]

from llama_sources import build_cache  # noqa: E402 - found through the line above
from machine import machine, sentence  # noqa: E402
from report import FAILED, Row, save, table  # noqa: E402
from support.endurance.conversations import conversations  # noqa: E402
from support.endurance.disks import disks  # noqa: E402
from support.endurance.kills import kills  # noqa: E402
from support.endurance.parts import Amount  # noqa: E402
from support.endurance.turns import turns  # noqa: E402

FULL = 30  # minutes
# What each part does in that time, and its share of it.
PARTS: dict[str, tuple[Callable[[Amount], Iterator[Row]], int, float]] = {
    "conversations": (conversations, 1_000, 0.35),
    "kills": (kills, 100, 0.35),
    "disks": (disks, 60, 0.05),
    "turns": (turns, 2_000, 0.25),
}


def main() -> None:
    options = arguments()
    about = machine()
    rows: list[Row] = []
    for name in PARTS:
        if options.only in name:
            rows += run(name, amount(name, options.minutes, options.turns, options.seed))
    path = ROOT / "build" / "endurance" / f"{time.strftime('%Y-%m-%d-%H%M%S')}.json"
    save(path, {**about, "minutes": options.minutes, "seed": options.seed}, rows)
    print(f"\n{sentence(about)}\n\n{table(rows)}\n\nkept in {path.relative_to(ROOT)}")
    if missed := [row for row in rows if row.met is False]:
        sys.exit(f"{len(missed)} bounds are missed")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=FULL)
    parser.add_argument("--turns", type=int, default=0, help="of the conversations; default: 1,000 times minutes / 30")
    parser.add_argument("--seed", type=int, default=1, help="of an earlier run: the same chances")
    parser.add_argument("--only", default="", metavar="TEXT", help=f"parts whose name holds it: {', '.join(PARTS)}")
    return parser.parse_args()


def amount(name: str, minutes: float, turns: int = 0, seed: int = 1) -> Amount:
    _, number, share = PARTS[name]
    if name == "conversations" and turns:
        return Amount(turns, minutes * 60 * share, build_cache() / "models", seed)
    number = max(8, round(number * minutes / FULL))
    return Amount(number, minutes * 60 * share, build_cache() / "models", seed)


def run(name: str, much: Amount) -> Iterator[Row]:
    """A part that fails is a row that says so: the others still run."""
    begun = time.monotonic()
    print(f"{name} …", file=sys.stderr, flush=True)
    try:
        for row in PARTS[name][0](much):
            print(f"  {row.figure}: {row.ours} {row.unit} {row.goal}", file=sys.stderr, flush=True)
            yield row
    except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
        traceback.print_exc()
        yield Row(name, (str(error) or type(error).__name__)[:200], None, met=False, note=FAILED)
    print(f"  {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
