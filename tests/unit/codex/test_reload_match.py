import pytest

from codex.reload_match import free_name, name_from, valid_name


@pytest.mark.parametrize(
    ("text", "name"),
    [("flask", "flask"), ("My Project!", "My-Project"), (".hidden", "hidden"), ("日本", "codex"), ("none", "none-1")],
)
def test_any_text_leads_to_a_name_that_can_be_used(text: str, name: str) -> None:
    assert valid_name(name_from(text)) == name


def test_a_proposed_name_is_free() -> None:
    assert free_name("a", {"a", "a-2"}) == "a-3"
    assert len(free_name("x" * 64, {"x" * 64})) <= 64
