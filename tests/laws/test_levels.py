"""Laws of the levels of a codex's files, over any files and budgets, beside a naive model."""

from hypothesis import example, given
from hypothesis import strategies as st

from codex.outline.coverage import FileLevel, FileSigns, GradedFile, levels, values

TOLD = (0.0, 0.05, 0.6, 1.0)  # of a body's value, by level
COSTS = st.lists(st.integers(0, 60), min_size=1, max_size=3).map(tuple)
FILES = st.lists(
    st.builds(GradedFile, st.text("abc", min_size=1, max_size=3), st.floats(0.01, 9), COSTS), max_size=8
).map(lambda files: list({one.path: one for one in files}.values()))
BUDGETS = st.integers(0, 400)


def spent(files, chosen):
    return sum(one.cost(chosen[one.path]) for one in files)


def worth(files, chosen):
    return sum(one.value * TOLD[chosen[one.path]] for one in files)


def raises(files, chosen):
    """What each raise of one file costs, with the file and its level behind it."""
    for one in files:
        for level in list(FileLevel)[chosen[one.path] + 1 : len(one.costs) + 1]:
            yield one.cost(level) - one.cost(chosen[one.path]), one, level


def naive(files, budget, least=FileLevel.NOTHING):
    """All raises are looked at again for each one that is made."""
    chosen = {one.path: least for one in files}

    def merit(found):
        cost, one, level = found
        value = one.value * (TOLD[level] - TOLD[chosen[one.path]])
        return (-(value / cost if cost > 0 else float("inf")), one.path, level)

    while fitting := [one for one in raises(files, chosen) if one[0] <= budget - spent(files, chosen)]:
        _, best, level = min(fitting, key=merit)
        chosen[best.path] = level
    return chosen


@given(FILES, BUDGETS)
@example([GradedFile("a", 1.0, (10, 12, 11)), GradedFile("b", 1.0, (3,))], 12)
def test_levels_are_those_of_the_naive_model_in_whatever_order_files_are_given(files, budget):
    chosen = levels(files, budget)
    assert chosen == naive(files, budget)
    assert levels(files[::-1], budget) == chosen


@given(FILES, BUDGETS)
def test_no_more_than_the_budget_is_used_and_what_is_left_is_less_than_any_raise_takes(files, budget):
    """So 95 % are used wherever a raise of at most 5 % of the budget is left."""
    chosen = levels(files, budget)
    left = budget - spent(files, chosen)
    assert left >= 0
    assert all(cost > left for cost, _, _ in raises(files, chosen))
    smallest = min((cost for cost, _, _ in raises(files, chosen)), default=None)
    assert smallest is None or smallest > 0.05 * budget or left < 0.05 * budget


@given(FILES, BUDGETS, BUDGETS)
def test_a_larger_budget_never_has_less_value(files, budget, more):
    assert worth(files, levels(files, budget + more)) >= worth(files, levels(files, budget)) - 1e-9


@given(FILES, BUDGETS)
def test_no_file_is_below_the_level_that_all_have(files, budget):
    files = [one for one in files if len(one.costs) >= FileLevel.SKELETON]
    least = sum(one.cost(FileLevel.SKELETON) for one in files)
    chosen = levels(files, least + budget, {one.path: FileLevel.SKELETON for one in files})
    assert all(level >= FileLevel.SKELETON for level in chosen.values())
    assert spent(files, chosen) <= least + budget
    assert chosen == naive(files, least + budget, FileLevel.SKELETON)


SIGN = st.just(0.0) | st.floats(0.001, 9)


@given(st.lists(st.builds(FileSigns, st.text("abc", min_size=1), *[SIGN] * 3, st.floats(0.1, 1)), max_size=6))
def test_every_file_has_a_value_and_a_reason_more_never_lowers_it(signs):
    signs = list({one.path: one for one in signs}.values())
    found = values(signs)
    assert all(value > 0 for value in found.values())
    for one in signs:
        for other in signs:
            same = (one.centrality, one.churn, one.touched) == (other.centrality, other.churn, other.touched)
            if same and one.role >= other.role:
                assert found[one.path] >= found[other.path]
