"""A fold of many words holds a part of them at a time."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from codex.archive.lance import lancedb

FOLDED = """
import json, random, sys
from codex.archive.lance import LanceSession
from pathlib import Path
from codex.archive import queries, tables

def row(number):
    words = " ".join(f"w{draw.randrange(3_000)}" for _ in range(50))
    text = dict.fromkeys(tables._STRINGS, "")
    return {**text, "id": str(number), "path": str(number), "card": str(number), "words": words, "start": 1}

draw = random.Random(7)
opened = tables.create_tables(Path(sys.argv[1]), LanceSession())
tables.write(opened.chunks, [row(number) for number in range(14_000)], ())
words = [(f"w{n}", f"w{n + 1}") for n in range(20)]
found = [queries._run(queries._ranked(opened.chunks, opened.row_cache, two, 10, None)) for two in words]
print(json.dumps([[round(score, 4) for _, score in sorted(rows, key=lambda one: -one[1])] for rows in found]))
"""


def folded(folder: Path, mebibytes: int) -> tuple[int, Any]:
    """How many parts a fold wrote that holds so much at a time, and the scores that searches find in them."""
    folder.mkdir()
    environment = {**os.environ, "LANCE_FTS_PARTITION_SIZE": str(mebibytes)}
    run = subprocess.run(
        [sys.executable, "-P", "-c", FOLDED, str(folder)],
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
        timeout=120,
    )
    return len(list(folder.glob("chunks.lance/_indices/*/part_*_invert.lance"))), json.loads(run.stdout)


def test_a_fold_that_may_hold_less_writes_more_parts_and_searches_find_the_same(tmp_path: Path) -> None:
    """LanceDB's own setting, and no document of it that binds: this notices a version that no longer heeds it."""
    one, whole = folded(tmp_path / "whole", 64)
    several, parts = folded(tmp_path / "parts", 1)
    assert (one, several > 1) == (1, True)
    assert whole == parts


def test_a_fold_is_bounded_unless_somebody_says_otherwise() -> None:
    lancedb()  # asks for it before anything is read
    assert int(os.environ["LANCE_FTS_PARTITION_SIZE"]) <= 64
