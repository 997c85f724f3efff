"""Names of conversations: easy to read aloud and to type."""

import random
import re
from collections.abc import Callable

from orchestrator.errors import InvalidRequest


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ADJECTIVES = words(
    """
    amber bold brave bright brisk calm clear clever cosy crisp dapper deft eager early fair fleet fond frank fresh
    gentle glad golden grand happy hardy honest humble jolly keen kind light lively lucid merry mild modest neat
    nimble noble patient plain proud quick quiet rapid ready round silent silver smart solid spry steady still sunny
    swift tidy true vivid warm wise witty young
    """
)
NOUNS = words(
    """
    acorn alder anchor aspen badger beacon birch bison brook cedar cliff clover comet coral crane creek dune eagle
    ember falcon fern finch fjord forest garnet glade harbor hazel heron hill island ivy juniper kestrel lagoon
    lantern larch linden lynx maple marsh meadow moss oak opal otter owl pebble pine plover pond quartz raven reed
    river robin sage sparrow spruce stone swan thistle tulip valley willow wren
    """
)
VALID = re.compile(r"[^\W_][\w.-]{0,63}\Z")


def fresh(taken: Callable[[str], bool]) -> str:
    """A name that is free: two words, and a number once those are used up."""
    for attempt in range(1000):
        name = f"{random.choice(ADJECTIVES)}-{random.choice(NOUNS)}"  # noqa: S311 - a name, not a secret
        name += f"-{attempt}" if attempt >= 10 else ""
        if not taken(name):
            return name
    raise AssertionError("a thousand names in a row were taken")


def checked(name: str) -> str:
    """Raises InvalidRequest for what could not be typed as one word."""
    if not VALID.match(name):
        raise InvalidRequest(f"{name!r} is no name for a session", "use letters, digits, - . _ (at most 64)")
    return name
