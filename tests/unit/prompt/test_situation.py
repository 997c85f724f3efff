"""The circumstances of a turn, in words, pinned while they hold."""

import pytest

from formatters.context import SigilView
from orchestrator.prompt.situation import Levels, environment_of, may_use, renewed, sigil_of
from orchestrator.service import Principal

OWNER = SigilView(name="owner", uid=1000, scopes=frozenset({"admin"}))
GUEST = SigilView(name="guest", uid=1001, scopes=frozenset({"query", "tools:search_archive"}))
CALM = Levels(memory="calm", power="normal", network="online")


def test_the_environment_states_levels_and_allowed_tools() -> None:
    around = environment_of(CALM, GUEST, ["search_archive", "expand_detail"], branch="main")
    assert (around.vram, around.power, around.network, around.branch) == ("calm", "normal", "online", "main")
    assert around.available_tools == ("search_archive",)


def test_the_owner_may_use_every_tool() -> None:
    assert environment_of(CALM, OWNER, ["b", "a"]).available_tools == ("a", "b")
    assert may_use(OWNER, "anything")
    assert not may_use(GUEST, "anything")


def test_a_model_without_tools_is_told_of_none() -> None:
    assert environment_of(CALM, OWNER).available_tools is None


def test_a_sigil_is_who_the_kernel_says() -> None:
    peer = Principal(uid=1001, gid=100, pid=7, sigil="guest", scopes=frozenset({"query"}))
    assert sigil_of(peer) == SigilView(name="guest", uid=1001, scopes=frozenset({"query"}))


def test_a_pinned_environment_is_kept_while_it_holds() -> None:
    pinned = environment_of(CALM, OWNER)
    renewal = renewed(pinned, environment_of(CALM, OWNER))
    assert renewal.environment is pinned
    assert renewal.why == ""


def test_a_level_that_changed_rewrites_it_and_says_so() -> None:
    pinned, now = environment_of(CALM, OWNER), environment_of(Levels("high", "normal", None), OWNER)
    renewal = renewed(pinned, now)
    assert renewal.environment is now
    assert renewal.why == "vram changed from calm to high, network changed from online to unknown"


def test_what_a_client_brought_is_not_repeated_in_the_reason() -> None:
    pinned, now = environment_of(CALM, OWNER), environment_of(CALM, OWNER, client_system=["be brief"])
    assert renewed(pinned, now).why == "client_system changed"


def test_a_new_conversation_takes_what_there_is() -> None:
    assert renewed(None, environment_of(CALM, OWNER)).why == ""


def test_a_number_is_no_level() -> None:
    with pytest.raises(ValueError, match="vram"):
        environment_of(Levels(memory="93 %"), OWNER)
