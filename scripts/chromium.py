"""A headless Chromium that is driven through the DevTools protocol, over a pipe: JSON messages that end with a NUL byte.
Tests, pictures and benchmarks share it.

Nothing is waited for by the clock: a page is asked for a promise that its own mutations keep. Knows nothing of Lorekeep.
"""

import base64
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "google-chrome")
OPTIONS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--hide-scrollbars", "--force-color-profile=srgb"),
)
PATIENCE_S = 60.0
# Resolves with the value of the expression as soon as that is true, looked at after each change of the document.
SEEN = """new Promise((done) => {
  const watch = new MutationObserver(() => look());
  const look = () => { const value = (EXPRESSION); if (value) { watch.disconnect(); done(value); } };
  watch.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
  look();
})"""

Message = Mapping[str, Any]


class ChromiumError(AssertionError):
    """What the browser refused, what the page threw, or what did not happen in time."""


class Chromium:
    """One process. `events`: what it told by itself."""

    def __init__(self, folder: Path) -> None:
        program = next(filter(None, map(shutil.which, NAMES)), None)
        assert program, "no Chromium: scripts/system_packages.sh tests installs it"
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        nothing = os.open(os.devnull, os.O_RDWR)
        actions: list[tuple[int, ...]] = [(os.POSIX_SPAWN_DUP2, nothing, number) for number in (0, 1, 2)]
        # First above 4: either of ours may be 3 or 4 itself.
        actions += [(os.POSIX_SPAWN_DUP2, theirs_in, 1003), (os.POSIX_SPAWN_DUP2, theirs_out, 1004)]
        actions += [(os.POSIX_SPAWN_DUP2, 1003, 3), (os.POSIX_SPAWN_DUP2, 1004, 4)]
        actions += [(os.POSIX_SPAWN_CLOSE, number) for number in (1003, 1004)]
        command = [program, *OPTIONS, f"--user-data-dir={folder}", "about:blank"]
        environment = {**os.environ, "HOME": str(folder)}
        self.pid = os.posix_spawn(program, command, environment, file_actions=actions, setpgroup=0)
        for number in (theirs_in, theirs_out, nothing):
            os.close(number)
        self._rest, self._last = b"", 0
        self.events: list[Message] = []

    def call(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        """The result. Raises ChromiumError."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        data = json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        deadline = time.monotonic() + PATIENCE_S
        while True:
            told = self._message(deadline, method)
            if told.get("id") == self._last:
                if "error" in told:
                    raise ChromiumError(f"{method}: {told['error']}")
                return told["result"]
            self.events.append(told)

    def page(self, width: int = 1280, height: int = 900) -> "Page":
        target = self.call("Target.createTarget", url="about:blank", newWindow=True)["targetId"]
        return Page(self, target, width, height)

    def close(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._to)
        os.close(self._from)

    def _message(self, deadline: float, what: str) -> Message:
        while b"\0" not in self._rest:
            if not select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise ChromiumError(f"{what}: no answer within {PATIENCE_S:.0f} s")
            part = os.read(self._from, 1 << 20)
            if not part:
                raise ChromiumError(f"{what}: the browser has ended")
            self._rest += part
        raw, _, self._rest = self._rest.partition(b"\0")
        found: Message = json.loads(raw)
        return found


class Page:
    """One tab."""

    def __init__(self, browser: Chromium, target: str, width: int, height: int) -> None:
        self._browser, self._target = browser, target
        self._session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def call(self, method: str, **parameters: Any) -> Any:
        return self._browser.call(method, self._session, **parameters)

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def resize(self, width: int, height: int = 900) -> None:
        shape = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", **shape)

    def prefer(self, scheme: str) -> None:
        """`light` or `dark`."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def value(self, expression: str) -> Any:
        """Of JavaScript; of a promise, what it resolves to."""
        how = {"awaitPromise": True, "returnByValue": True, "allowUnsafeEvalBlockedByCSP": False}
        told = self.call("Runtime.evaluate", expression=expression, **how)
        if "exceptionDetails" in told:
            raise ChromiumError(f"{expression}: {told['exceptionDetails']}")
        return told["result"].get("value")

    def seen(self, expression: str) -> Any:
        """The expression's value, once it is true."""
        return self.value(SEEN.replace("EXPRESSION", expression))

    def text(self, selector: str = "body") -> str:
        return str(self.value(f"document.querySelector({json.dumps(selector)}).innerText"))

    def says(self, words: str, selector: str = "body") -> None:
        """Waits until the text is there."""
        self.seen(f"document.querySelector({json.dumps(selector)})?.innerText.includes({json.dumps(words)})")

    def press(self, key: str) -> None:
        typed = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        code = {"windowsVirtualKeyCode": {"Enter": 13, "Escape": 27, "Tab": 9}.get(key, 0)}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **code, **typed)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def picture(self) -> bytes:
        """What is seen of it; a PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot")["data"])

    def events(self, *methods: str) -> list[Message]:
        """What this page told, of these kinds."""
        return [
            one for one in self._browser.events if one.get("sessionId") == self._session and one["method"] in methods
        ]

    def faults(self) -> list[str]:
        """Exceptions that nothing caught, and what the console has as an error, refusals of the policy among them. Not the
        status of a request: what that means is the page's to say."""
        thrown = [str(one["params"]["exceptionDetails"]) for one in self.events("Runtime.exceptionThrown")]
        entries = [one["params"]["entry"] for one in self.events("Log.entryAdded")]
        return thrown + [
            f"{one['text']} {one.get('url', '')}"
            for one in entries
            if one["level"] == "error" and one["source"] != "network"
        ]

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)


@contextmanager
def chromium() -> Iterator[Chromium]:
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as folder:
        browser = Chromium(Path(folder))
        try:
            yield browser
        finally:
            browser.close()
