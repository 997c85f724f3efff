"""Where a model's chat template puts the six blocks, in words."""

from typing import Any

from formatters.conversation import Way
from formatters.probe import Placement

WORDS = {
    Way.SYSTEM: "one system message holds Identity to Karma",
    Way.FIRST_USER: "Identity to Karma stand at the head of the first user message",
    Way.NONE: "the template is not used; plain role lines stand in for it",
}


def placement_report(placement: Placement) -> dict[str, Any]:
    return {
        "way": placement.way.value,
        "words": WORDS[placement.way],
        "reason": placement.reason,
        "keeps_answers": placement.keeps_answers,
        "no_think": placement.no_think.value,
    }
