"""The command line: speaks HTTP to the daemon and loads no engine, so that `lore --help` is instant.

Here is the entry point alone. All else is imported by it: a Ctrl-C that comes before would end in a traceback.
"""

import os
import signal
import sys

INTERRUPTED = 130


def main() -> None:
    """The entry point `lore`. Ctrl-C ends it with 130: at once before and after a command, which may have work to end."""
    raising = signal.getsignal(signal.SIGINT)
    leaving = raising if raising is signal.SIG_IGN else lambda *_: os._exit(INTERRUPTED)  # ignored by who started us
    signal.signal(signal.SIGINT, leaving)
    from orchestrator.cli.commands import run

    signal.signal(signal.SIGINT, raising)
    try:
        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        signal.signal(signal.SIGINT, leaving)
