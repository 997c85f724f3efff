"""One question through stillwarm, as its documentation shows; run by the Python of its own environment.

A line of JSON on stdin: url, folder (llama-server's --slot-save-path), model_sum, cells, swa_full, slot, conversation,
prompt, tokens. A line of JSON on stdout: seconds to the end of the completion, seconds until the caller has it, prompt
tokens computed, the text.
"""

import json
import sys
import time
from typing import Any

from stillwarm import LlamaServer, ServerProfile, Session


class Timed(LlamaServer):
    """Notes when the answer itself was there: the library then saves the slot and lets the model write a probe."""

    answered = 0.0

    def completion(self, *args: Any, **named: Any) -> Any:
        result = super().completion(*args, **named)
        self.answered = self.answered or time.perf_counter()
        return result


def main() -> None:
    asked = json.loads(sys.stdin.readline())
    server = Timed(asked["url"])
    profile = ServerProfile(asked["model_sum"], "on", "f16", "f16", asked["swa_full"], asked["cells"])
    session = Session(server, profile, asked["folder"], id_slot=asked["slot"])
    begun = time.perf_counter()
    result = session.ask(asked["conversation"], asked["prompt"], asked["tokens"])
    ended = time.perf_counter()
    said = {"first_s": server.answered - begun, "whole_s": ended - begun}
    print(json.dumps({**said, "computed": result.prompt_n, "text": result.content}))


if __name__ == "__main__":
    main()
