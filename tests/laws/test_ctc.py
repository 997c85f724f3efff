"""The laws of truncation and compression: within the budget or refused, pinned untouched, more room is never worse."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from governor.ctc import GIST_SHARE, NEVER_CUT, SACRIFICES, Action, Claim, ClaimKind, PromptLimits, Verdict, settle


@st.composite
def claim_lists(draw: st.DrawFn) -> list[Claim]:
    claims = []
    for at in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(list(ClaimKind)))
        tokens = draw(st.integers(0, 500))
        claims.append(
            Claim(
                id=f"{kind}-{at}",
                kind=kind,
                tokens=tokens,
                characters=draw(st.integers(0, 2_500)) if tokens else 0,
                weight=draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])),
                stub=draw(st.integers(0, tokens)),
                turn=draw(st.none() | st.integers(0, 6)),
            )
        )
    return claims


limits = st.builds(PromptLimits, st.integers(0, 4_000), st.integers(0, 20_000), st.integers(1, 8), st.integers(0, 300))


@given(claim_lists(), limits)
def test_what_is_granted_fits_or_the_prompt_is_refused_whole(claims: list[Claim], limits: PromptLimits) -> None:
    settled = settle(claims, limits)
    if settled.refusal is None:
        assert sum(verdict.tokens for verdict in settled.verdicts) + settled.gist_tokens <= limits.tokens
        assert sum(verdict.characters for verdict in settled.verdicts) + settled.gist_characters <= limits.characters
    else:
        assert all(verdict.action is Action.KEEP for verdict in settled.verdicts)


@given(claim_lists(), limits)
def test_kinds_that_are_never_cut_stay_whole(claims: list[Claim], limits: PromptLimits) -> None:
    for claim, verdict in zip(claims, settle(claims, limits).verdicts, strict=True):
        if claim.kind in NEVER_CUT:
            assert verdict == Verdict(claim.id, Action.KEEP, claim.tokens, claim.characters)


@given(claim_lists(), limits, st.integers(0, 2_000), st.integers(0, 9_000))
def test_a_larger_budget_grants_no_claim_less(
    claims: list[Claim], limits: PromptLimits, tokens: int, chars: int
) -> None:
    larger = replace(limits, tokens=limits.tokens + tokens, characters=limits.characters + chars)
    small, large = settle(claims, limits), settle(claims, larger)
    if small.refusal is not None:
        return
    assert large.refusal is None
    for less, more in zip(small.verdicts, large.verdicts, strict=True):
        assert less.tokens <= more.tokens
        assert less.characters <= more.characters


@given(claim_lists(), limits)
def test_the_same_claims_and_limits_give_the_same_verdicts(claims: list[Claim], limits: PromptLimits) -> None:
    assert settle(claims, limits) == settle(list(claims), replace(limits))


@given(claim_lists(), limits)
def test_it_is_refused_only_when_even_the_shortest_forms_do_not_fit(claims: list[Claim], limits: PromptLimits) -> None:
    left = [claim for claim in claims if claim.kind in NEVER_CUT]
    tokens, characters = sum(claim.tokens for claim in left), sum(claim.characters for claim in left)
    for claim in claims:
        if claim.kind is ClaimKind.SUPERSEDED and claim.tokens:
            tokens, characters = tokens + claim.stub, characters + claim.characters * claim.stub // claim.tokens
    enough = PromptLimits(tokens, characters)
    assert settle(claims, enough).refusal is None
    if settle(claims, replace(limits, depth=None)).refusal is not None:
        assert tokens > limits.tokens or characters > limits.characters


@given(claim_lists(), limits)
def test_nothing_is_cut_when_all_fits_but_turns_beyond_the_depth(claims: list[Claim], limits: PromptLimits) -> None:
    room = PromptLimits(sum(claim.tokens for claim in claims), sum(claim.characters for claim in claims), limits.depth)
    turns = sorted({claim.turn for claim in claims if claim.turn is not None})[-limits.depth :]
    for claim, verdict in zip(claims, settle(claims, room).verdicts, strict=True):
        if claim.turn is None or claim.turn in turns or claim.kind in NEVER_CUT:
            assert verdict.action is Action.KEEP
        else:
            assert verdict.tokens == 0


@given(claim_lists(), limits)
def test_no_row_is_touched_before_every_row_above_it_is_exhausted(claims: list[Claim], limits: PromptLimits) -> None:
    settled = settle(claims, limits)
    if settled.refusal is not None:
        return
    rows = [sacrifice.name for sacrifice in SACRIFICES]
    lowest = max((rows.index(verdict.reason) for verdict in settled.verdicts if verdict.reason in rows), default=0)
    above = {sacrifice.kind: sacrifice for sacrifice in SACRIFICES[:lowest]}
    for claim, verdict in zip(claims, settled.verdicts, strict=True):
        if claim.kind in above:
            assert verdict.tokens <= (claim.stub if above[claim.kind].stubbed else 0)


@given(claim_lists(), limits)
def test_a_gist_is_short_and_stands_only_where_turns_went(claims: list[Claim], limits: PromptLimits) -> None:
    settled = settle(claims, limits)
    went = [
        claim
        for claim, verdict in zip(claims, settled.verdicts, strict=True)
        if claim.kind is ClaimKind.TURN and verdict.action is not Action.KEEP
    ]
    assert 0 <= settled.gist_tokens <= min(limits.gist, sum(claim.tokens for claim in went) * GIST_SHARE)
    assert 0 <= settled.gist_characters <= sum(claim.characters for claim in went) * GIST_SHARE


def test_turns_go_until_the_next_ones_need_no_cut_and_evidence_stays_where_it_fits() -> None:
    turns = [Claim(f"turn {at}", ClaimKind.TURN, 100, 400, weight=at, turn=at) for at in range(10)]
    claims = [
        Claim("floor", ClaimKind.FLOOR, 1_000, 4_000),
        *turns,
        Claim("a.py", ClaimKind.EVIDENCE, 200, 800),
    ]
    settled = settle(claims, PromptLimits(2_199, 100_000, gist=40))
    kept = [verdict.id for verdict in settled.verdicts if verdict.action is Action.KEEP]
    assert kept == [
        "floor",
        *(f"turn {at}" for at in range(4, 10)),
        "a.py",
    ]  # 399 tokens free: a gist and 299 for turns
    assert settled.gist_tokens == 40
