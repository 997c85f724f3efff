"""`lore load`: what is sent and what is printed; the directory where it is typed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

from orchestrator.cli.terminal import step
from orchestrator.wire.places import PHASES, ChangePhase, LoadPhase, MeasurePhase

ROOT = Path(__file__).parents[3]
LORE = Path(sys.executable).parent / "lore"


def test_load_prints_its_summary_and_as_json_every_event(lore, lorekeep, tmp_path):
    done = lore("load", str(tmp_path), "--name", "mine")
    assert done.returncode == 0
    assert "mine: 3 files of" in done.stdout
    assert "1 file or folder: 1 binary" in done.stdout
    assert "full 1,200, skeleton 300, map 90" in done.stdout
    assert "full: 1,200 tokens fit" in done.stdout
    events = [json.loads(line) for line in lore("load", str(tmp_path), "--json").stdout.splitlines()]
    assert [event["event"] for event in events] == ["progress", "loaded"]
    assert events[0]["eta_s"] == 1.0


def test_progress_says_in_words_what_is_done_and_to_how_many():
    event = {"phase": "count", "done": 1_100, "total": 2_000, "rate": 55.0, "eta_s": 17.0}
    assert step(event) == "counting tokens of files 1,100/2,000 · 55/s · 17 s left"
    assert step({"phase": "rules", "done": 0, "total": 0, "rate": 0.0}) == "preparing the search for secrets"


def test_every_phase_has_words_also_those_of_the_codex_which_does_not_know_the_wire():
    assert set(get_args(LoadPhase) + get_args(ChangePhase) + get_args(MeasurePhase)) == set(PHASES)
    text = "".join(path.read_text() for room in ("codex", "orchestrator") for path in (ROOT / room).rglob("*.py"))
    assert set(re.findall(r'(?:Meter|progress_at)\("(.+?)"', text)) == set(get_args(LoadPhase))


def test_load_sends_an_absolute_path_and_its_options(lore, lorekeep):
    lore("load", "--no-watch", "--include", "*.py", "--exclude", "x", "--exclude", "y", "--tier", "map", "--wait")
    (request,) = lorekeep.service.loads
    assert request.path == str(Path.cwd())
    assert (request.watch, request.include, request.exclude) == (False, ("*.py",), ("x", "y"))
    assert (request.tier, request.wait, request.dry_run) == ("map", True, False)


def test_a_working_directory_that_is_gone_is_said_so(lorekeep, folder):
    (folder / "gone").mkdir()
    script = "cd gone && rmdir ../gone && exec $LORE load ."
    environment = {**os.environ, "LORE": str(LORE), "LORE_SOCKET": str(folder / "lore.sock")}
    done = subprocess.run(
        ["sh", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "is gone" in done.stderr) == (2, True)
