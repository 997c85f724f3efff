"""How many generated examples a law gets that takes long: few in each run of the suite, twenty times as many at night."""

import os

from hypothesis import settings

TIMES = 20 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 1


def few(examples: int) -> settings:
    """More than find a fault cost each run and find no other. For five laws `examples` is several times what it took until
    code that was broken on purpose was noticed; for the others it is judged."""
    return settings(max_examples=TIMES * examples)
