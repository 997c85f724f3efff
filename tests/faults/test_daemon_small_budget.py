"""The memory holds one floor of a codex and not two: its new generation takes the old one's place, and answers go on."""

import pytest
from support.house import CODES, ask, begun, codebase, question, reply, until
from support.scarce_memory import scarce

KV = 10_000_000  # about 3,000 cells: a floor of 1,900 tokens and a conversation


@pytest.fixture
def house(models, tmp_path):
    def load(daemon):
        assert daemon.lore("load", codebase(daemon.folder / "vaults", functions=110), "--wait").returncode == 0

    with scarce(models, tmp_path, KV, load) as daemon:
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
    until(lambda: "change applied" in house.log.read_text())
    answer = ask(house, "zebra", codex="vaults")
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
