"""What every refusal that a person reads has in common."""

import subprocess
from itertools import dropwhile


def refusal(done: "subprocess.CompletedProcess[str]", status: int) -> str:
    """The words of a refused command: that exit status, one or two lines behind what was told of its way, no traceback."""
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    told = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("{")]
    words = list(dropwhile(lambda line: not line.startswith("lore: "), told)) or told
    assert 1 <= len(words) <= 2, words
    return "\n".join(words)
