"""What of a conversation says nothing new: results, and the calls that they belong to."""

from formatters.blocks import Role
from formatters.context import CallView, TurnView
from orchestrator.prompt.filler import calls_of


def test_a_result_is_named_by_the_call_of_its_id_whatever_form_the_model_writes_calls_in():
    calls = (CallView(id="a", name="look", arguments="{}"), CallView(id="b", name="find", arguments="{}"))
    said = TurnView(role=Role.ASSISTANT, text="[TOOL_CALLS]…", calls=calls)
    results = [TurnView(role=Role.TOOL, text="x", answers=one) for one in ("b", "a")]
    assert calls_of([said, *results]) == ["", "find {}", "look {}"]
