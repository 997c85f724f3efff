"""systemd's notifications: ready, status, alive, stopping. Without systemd every call does nothing."""

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass

EXTENSION_US = 15 * 60 * 1_000_000


@dataclass(frozen=True)
class Notifier:
    """`address` is $NOTIFY_SOCKET, `watchdog_s` the time within which systemd wants to hear from us (0: never)."""

    address: str = ""
    watchdog_s: float = 0.0

    @staticmethod
    def of(environ: Mapping[str, str]) -> "Notifier":
        microseconds = environ.get("WATCHDOG_USEC", "0")
        return Notifier(environ.get("NOTIFY_SOCKET", ""), int(microseconds) / 1e6 if microseconds.isdigit() else 0.0)

    def ready(self) -> None:
        self.send("READY=1")

    def starting(self) -> None:
        """Readiness may take longer than the unit says: as long as this is said again and again within EXTENSION_US."""
        self.send(f"EXTEND_TIMEOUT_USEC={EXTENSION_US}")

    def status(self, text: str) -> None:
        self.send(f"STATUS={text}".replace("\n", " "))

    def alive(self) -> None:
        self.send("WATCHDOG=1")

    def stopping(self) -> None:
        self.send("STOPPING=1")

    async def keep_alive(self) -> None:
        """Tells systemd twice in each interval that the event loop still turns. Runs until cancelled."""
        while self.watchdog_s > 0:
            self.alive()
            await asyncio.sleep(self.watchdog_s / 2)

    def send(self, message: str) -> None:
        if not self.address:
            return
        address = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            try:
                out.sendto(message.encode(), address)
            except OSError:
                return  # a supervisor that does not listen is no reason to stop answering
