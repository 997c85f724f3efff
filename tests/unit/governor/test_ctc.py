"""The order of sacrifice, row by row, and what a refusal says."""

from governor.ctc import Action, Claim, ClaimKind, PromptLimits, Settlement, limits_of, settle
from governor.settings import ClaimSettings


def claim(name: str, kind: ClaimKind, tokens: int = 100, **more: object) -> Claim:
    fields: dict[str, object] = {"characters": tokens * 4} | more
    return Claim(name, kind, tokens, **fields)  # type: ignore[arg-type]


def prompt() -> list[Claim]:
    """One of each kind that may be cut and some beside, 100 tokens each but the floor's 1,000."""
    return [
        claim("codex", ClaimKind.FLOOR, 1_000),
        claim("identity", ClaimKind.INSTRUCTION),
        claim("old turn", ClaimKind.TURN, turn=1),
        claim("turn", ClaimKind.TURN, turn=2),
        claim("tool", ClaimKind.SUPERSEDED, turn=2, stub=8),
        claim("best", ClaimKind.EVIDENCE, weight=0.9),
        claim("poor", ClaimKind.EVIDENCE, weight=0.2),
        claim("log", ClaimKind.EVIDENCE, weight=0.5),
        claim("query", ClaimKind.QUERY, turn=3),
    ]


def under(tokens: int, depth: int = 2, characters: int = 1_000_000) -> Settlement:
    return settle(prompt(), PromptLimits(tokens, characters, depth))


def sizes(settled: Settlement) -> dict[str, int]:
    return {verdict.id: verdict.tokens for verdict in settled.verdicts}


ALL_KEPT = {
    "codex": 1_000,
    "identity": 100,
    "best": 100,
    "poor": 100,
    "old turn": 0,
    "turn": 100,
    "tool": 100,
    "log": 100,
    "query": 100,
}
TOTAL = sum(ALL_KEPT.values())


def test_with_room_only_the_turn_beyond_the_depth_goes() -> None:
    settled = under(TOTAL)
    assert sizes(settled) == ALL_KEPT
    cut = [verdict for verdict in settled.verdicts if verdict.action is not Action.KEEP]
    assert [(verdict.id, verdict.action, verdict.reason) for verdict in cut] == [
        ("old turn", Action.DROP, "message depth")
    ]


ORDER = ({"tool": 8}, {"turn": 0, "tool": 0}, {"poor": 0}, {"log": 0}, {"best": 0})


def test_one_token_too_many_costs_exactly_the_next_sacrifice_of_the_declared_order() -> None:
    left = dict(ALL_KEPT)
    for sizes_then in ORDER:
        too_many = sum(left.values()) - 1
        left |= sizes_then
        assert sizes(under(too_many)) == left, sizes_then


def test_too_many_characters_are_sacrificed_for_in_the_same_order() -> None:
    settled = under(1_000_000, characters=TOTAL * 4 - 1)
    assert sizes(settled) == ALL_KEPT | {"tool": 8}


def test_a_prompt_that_cannot_fit_is_refused_with_numbers_and_nothing_lost() -> None:
    settled = under(1_199)
    assert settled.refusal is not None
    assert settled.refusal.sentence == "the prompt needs at least 1,200 tokens and 1,199 can be held"
    assert settled.refusal.over == 1
    assert settled.refusal.hint.endswith("the largest part that may not be cut is codex with 1,000 tokens")
    assert all(verdict.action is Action.KEEP for verdict in settled.verdicts)
    assert under(1_200).refusal is None


def test_too_many_characters_to_fit_say_so() -> None:
    settled = settle([claim("query", ClaimKind.QUERY, characters=5_000)], PromptLimits(1_000, 4_000, 20))
    assert settled.refusal is not None
    assert settled.refusal.sentence == "the prompt has at least 5,000 characters and 4,000 are allowed"
    assert settled.refusal.over == 0


def test_limits_take_the_tighter_of_window_and_kv_and_many_characters_a_token() -> None:
    assert limits_of(10_000, 2_000, 50_000, ClaimSettings()) == PromptLimits(8_000, 160_000, None, 250)
    assert limits_of(10_000, 2_000, 5_000, ClaimSettings(depth=3, gist=50)) == PromptLimits(5_000, 160_000, 3, 50)
    assert limits_of(1_000, 2_000, 5_000, ClaimSettings(characters=9)) == PromptLimits(0, 9, None)
