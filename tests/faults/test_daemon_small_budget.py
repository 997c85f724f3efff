"""The memory holds one floor of a codex and not two: its new generation takes the old one's place, and answers go on."""

import pytest
from support.house import CODES, ask, begun, codebase, living, question, reply, until
from support.nvml import GIB, StandIn, compiled

TOTAL, FREE, OWN = 8 * GIB, 7 * GIB, GIB // 4
CEILING = TOTAL - GIB // 2  # the margin
KV = 10_000_000  # about 3,000 cells: a floor of 1,900 tokens and a conversation
SETTINGS = '[governor]\ngpu = "0"\nworse_after = 3600\nbetter_after = 3600\nsensor_busy = 0.05\nsensor_idle = 0.1\n'


@pytest.fixture
def house(models, tmp_path):
    driver = StandIn(tmp_path, compiled(models.parent))
    driver.show(total=TOTAL, free=FREE)
    with living(models, SETTINGS, environment=driver.environment) as daemon:
        driver.show(processes=f"{daemon.process.pid}:{OWN}")
        assert daemon.lore("load", codebase(daemon.folder / "vaults", functions=110), "--wait").returncode == 0
        weights = daemon.json("model", "list")["models"][0]["bytes"]
        driver.show(free=KV + weights - CEILING + TOTAL - OWN)
        until(lambda: reply(daemon, "/v1/status")["governor"]["cells"] < 4_096)
        yield daemon


def rewritten(house):
    """So much of the codex changes that neither its log nor a second floor fits beside the first."""
    bodies = [f"def stride_{number}(value):\n    return value - {number}\n" for number in range(110)]
    (house.folder / "vaults" / "steps.py").write_text("\n\n".join(bodies))


def right(answer):
    return answer["answer"].strip().startswith(CODES["zebra"])


def test_a_log_that_no_conversation_fits_behind_is_rebased_at_once_and_a_question_waits_for_that(house):
    assert right(ask(house, "zebra"))
    other = begun(house, "ask", "-c", "none", "tick tock tick tock tick tock tick tock tick", "--max-tokens", "600")
    rewritten(house)
    until(lambda: "taken in" in house.log.read_text())
    answer = ask(house, "zebra", "-c", "vaults")
    assert right(answer)
    assert answer["lore"]["codex"]["generation"] == 2
    assert answer["lore"]["codex"]["amendments"] == []
    other.communicate(timeout=120)
    status = reply(house, "/v1/status")
    assert status["engine"]["restarts"] == 0
    assert all(pool["size"] <= status["governor"]["cells"] for pool in status["engine"]["pools"])
    found = house.json("search", "stride_100", "-c", "vaults", "-n", "1")["hits"]
    assert "stride_100" in found[0]["snippet"]
    assert question("zebra") in house.lore("plan", question("zebra"), "--prompt").stdout
