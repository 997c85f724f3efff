"""The engine ends while a codex must get a new generation before anybody can ask about it."""

import os
import signal

from support.house import CODES, begun, codebase, engine_child, living, question, shown, until


def test_a_question_waits_for_the_new_generation_that_the_engines_end_has_interrupted(models):
    with living(models, "[model]\ncontext = 4096\n") as daemon:
        folder = codebase(daemon.folder / "vaults")
        assert daemon.lore("load", folder, "--wait").returncode == 0
        bodies = [f"def stride_{number}(value):\n    return value - {number}\n" for number in range(200)]
        (folder / "steps.py").write_text("\n\n".join(bodies))
        until(lambda: "gets a new generation" in daemon.log.read_text())
        os.kill(engine_child(daemon), signal.SIGKILL)
        asked = begun(daemon, "ask", question("zebra"), "-c", "vaults", "--max-tokens", "10", "--json")
        until(lambda: shown(daemon, "vaults")["generation"] == 2)
        codex = shown(daemon, "vaults")
        assert codex["generation_reason"]
        assert codex["generation_reason"] in daemon.log.read_text()
        out, err = asked.communicate(timeout=120)
        assert asked.returncode == 0, err
        assert question("zebra") not in err
        assert CODES["zebra"] in out
        assert "context_length_exceeded" not in daemon.log.read_text()
        daemon.stop()
        daemon.start()
        until(lambda: shown(daemon, "vaults")["tier"])
        again = shown(daemon, "vaults")
        assert (again["generation"], again["generation_reason"]) == (2, codex["generation_reason"])
