"""What counts as crossed: functions of ours that a process calls, not what an import runs."""

import os
import subprocess
import sys

from question_files import HOOK, ours


def test_functions_of_ours_are_counted_and_bodies_of_modules_and_classes_are_not(tmp_path):
    hook, calls = tmp_path / "hook", tmp_path / "calls"
    hook.mkdir()
    calls.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK)
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            "import json\nfrom orchestrator.errors import instead\njson.dumps(instead('a', [], '', ''))",
        ],
        env={**os.environ, "PYTHONPATH": str(hook), "QUESTION_FOLDER": str(calls), "QUESTION_AT_EXIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (written,) = calls.iterdir()
    assert ours(written) == {("orchestrator/errors.py", "instead")}
