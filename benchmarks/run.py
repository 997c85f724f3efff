"""`make bench`: runs the cases, prints a table, keeps the figures as JSON under build/bench.

    python benchmarks/run.py [--quick] [--real [FILE|gemma|smollm2]] [--only TEXT] [--runs N] [--locomo FILE]
                             [--history PATH]... [--repository NAME=PATH]... [--schemas PATH]...

With --quick floors are 2k tokens instead of 8k and 32k: it shows that everything runs, not what it costs. --only runs
the cases whose name holds TEXT. --real measures a model that people use: the GGUF file that is named, smollm2 (SmolLM2
135M Instruct), or Gemma 3 270M. --locomo also measures recall, on the conversations of that file; --history also measures
which memories turn suspect, over the history of that git repository. --repository reads a package of the case `coverage`
from a checkout instead of from its source distribution. --schemas measures answers that fit schemas, on those of a
checkout (`cases_schemas`).
The exit status is 1 where a case failed; a missed goal is no failure.
"""

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import cases_calls  # noqa: E402
import cases_codex  # noqa: E402 - scripts and benchmarks are programs, not packages
import cases_coverage  # noqa: E402
import cases_daemon  # noqa: E402
import cases_engine  # noqa: E402
import cases_floor  # noqa: E402
import cases_limits  # noqa: E402
import cases_load  # noqa: E402
import cases_meaning  # noqa: E402
import cases_memory  # noqa: E402
import cases_memory_times  # noqa: E402
import cases_page  # noqa: E402
import cases_parts  # noqa: E402
import cases_real  # noqa: E402
import cases_relevance  # noqa: E402
import cases_remembered  # noqa: E402
import cases_remote  # noqa: E402
import cases_schemas  # noqa: E402
import cases_search  # noqa: E402
import cases_shapes  # noqa: E402
import cases_slot_files  # noqa: E402
import cases_staleness  # noqa: E402
import cases_symbols  # noqa: E402
from answers import Refused  # noqa: E402
from cases_engine import ROOM, Bench, stopping  # noqa: E402
from llama_sources import build_cache  # noqa: E402
from machine import machine, sentence  # noqa: E402
from ours import Ours  # noqa: E402
from private_daemon import DaemonError  # noqa: E402
from real_model import NoModel, real_model  # noqa: E402
from report import FAILED, Row, save, table  # noqa: E402

from orchestrator.engine.builtin import ensure  # noqa: E402

REAL_DEPTH = 6_192  # tokens: with real weights two cores take a minute for it
Case = Callable[[Bench], Iterator[Row]]
log = logging.getLogger("benchmarks")


def main() -> None:
    options = arguments()
    cases = chosen(
        options.only,
        real=options.real is not None,
        locomo=options.locomo,
        histories=options.history,
        checkouts=dict(options.repository),
        schemas=options.schemas,
    )
    if not cases:
        sys.exit(f"no figures: no case has {options.only!r} in its name")
    about = machine()
    try:
        bench = bench_of(options)
    except (NoModel, Refused) as error:
        sys.exit(f"no figures: {error}")
    rows: list[Row] = []
    path = ROOT / "build" / "bench" / f"{time.strftime('%Y-%m-%d-%H%M%S')}.json"
    for name, case in cases.items():
        rows += run(name, case, bench)
        save(path, about, rows)  # a run of an hour that is stopped keeps the cases that ended
    print(f"\n{sentence(about)}\n\n{table(rows)}\n\nkept in {path.relative_to(ROOT)}")
    if failed := [row.case for row in rows if row.note == FAILED]:
        sys.exit(f"failed: {', '.join(failed)}")


def bench_of(options: argparse.Namespace) -> Bench:
    """Raises NoModel, or Refused where the engine does not load the model: said once, before the first case."""
    real = options.real is not None
    model = real_model(options.real) if real else ensure("builtin:noise-s", build_cache() / "models")
    with stopping(Ours(model, ROOM)):
        pass
    depths = (2_048,) if options.quick else (REAL_DEPTH,) if real else (8_158, 32_446)
    return Bench(model, os.cpu_count() or 1, options.runs, depths, real)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--real", nargs="?", const="", metavar="FILE")
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="questions that a median is taken over")
    parser.add_argument(
        "--locomo", type=Path, metavar="FILE", help="locomo10.json, which this repository does not hold"
    )
    parser.add_argument(
        "--history", type=Path, metavar="PATH", action="append", default=[], help="a git repository; may be repeated"
    )
    parser.add_argument(
        "--repository", type=checkout, metavar="NAME=PATH", action="append", default=[], help="may be repeated"
    )
    parser.add_argument("--schemas", type=Path, metavar="PATH", action="append", default=[], help="may be repeated")
    return parser.parse_args()


def checkout(text: str) -> tuple[str, Path]:
    """Raises ArgumentTypeError where it is no name and folder."""
    name, _, path = text.partition("=")
    if not name or not Path(path or "/dev/null").is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is no package and folder, as in sqlalchemy=/src/sqlalchemy")
    return name, Path(path)


def chosen(
    text: str,
    *,
    real: bool,
    locomo: Path | None = None,
    histories: Sequence[Path] = (),
    checkouts: Mapping[str, Path] = MappingProxyType({}),
    schemas: Sequence[Path] = (),
) -> dict[str, Case]:
    every = (
        {**cases_real.cases(), **cases_slot_files.cases(), **cases_relevance.prompts()}
        if real
        else {
            **cases_daemon.cases(),
            **cases_load.cases(),
            **cases_limits.cases(),
            **cases_page.cases(),
            **cases_parts.cases(),
            **cases_relevance.cases(),
            **cases_memory.cases(locomo),
            **cases_memory_times.cases(),
            **cases_remembered.cases(),
            **cases_staleness.cases(histories),
            **cases_codex.cases(),
            **cases_coverage.cases(checkouts),
            **cases_search.cases(),
            **cases_meaning.cases(),
            **cases_engine.cases(),
            **cases_remote.cases(),
            **cases_floor.cases(),
            **cases_shapes.cases(),
            **cases_symbols.cases(),
            **cases_schemas.cases(schemas),
            **cases_calls.cases(),
        }
    )
    return {name: case for name, case in every.items() if text in name}


def run(name: str, case: Case, bench: Bench) -> Iterator[Row]:
    """A case that fails is a row that says so, however it fails: the others still run."""
    begun = time.monotonic()
    print(f"{name} …", file=sys.stderr, flush=True)
    try:
        for row in case(bench):
            print(
                f"  {row.case}: {row.figure}: {row.ours} {row.unit} against {row.theirs}", file=sys.stderr, flush=True
            )
            yield row
    except Exception as error:
        log.warning("%s failed", name, exc_info=not isinstance(error, Refused | DaemonError))
        yield Row(name, (str(error) or type(error).__name__)[:120], None, met=False, note=FAILED)
    print(f"  {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
