"""What every refusal that a person reads has in common."""

import subprocess


def refusal(done: "subprocess.CompletedProcess[str]", status: int) -> str:
    """The words of a refused command: that exit status, one or two lines, no traceback."""
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    words = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("{")]
    assert 1 <= len(words) <= 2, words
    return "\n".join(words)
