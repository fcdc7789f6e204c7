"""Ground: what a case has to work with: connections, names of its own, and a time limit.

Whatever a case leaves behind is removed, no matter how it ends.
"""

import itertools
import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import quote

from pamqp import commands

from leveret.conformance.case import Need, Unmet
from leveret.conformance.raw_client import Address, CaseTimeout, Refusal, Wire

_RUN = f"{os.getpid():x}{time.time_ns() & 0xFFFFFF:x}"
_numbers = itertools.count()
_CLEANING_S = 5.0


@dataclass(frozen=True, slots=True)
class Facilities:
    """The broker under test, and what else was given."""

    address: Address
    management_url: str = ""
    restart_command: str = ""

    @property
    def available(self) -> frozenset[Need]:
        """What cases may need and have."""
        given = {Need.RESTART: self.restart_command, Need.MANAGEMENT: self.management_url}
        return frozenset(need for need, value in given.items() if value)


class Ground:
    """The ground of one case; `close` tidies up."""

    def __init__(self, facilities: Facilities, limit_s: float) -> None:
        self.facilities = facilities
        self.transcript: list[str] = []
        """What was sent and received, a line a frame."""
        self._deadline = time.monotonic() + limit_s
        self._wires: list[Wire] = []
        self._queues: list[str] = []
        self._exchanges: list[str] = []
        self._undo: list[Callable[[], None]] = []

    # ---- connections

    def raw(self) -> Wire:
        """A connected socket on which nothing has been said."""
        name = f"connection {len(self._wires) + 1}"
        wire = Wire(self.facilities.address, self._deadline, self.transcript, name)
        self._wires.append(wire)
        return wire

    def wire(self, *channels: int, vhost: str | None = None, **tuning: int) -> Wire:
        """An open connection with these channels."""
        return self.raw().open(*channels, vhost=vhost, **tuning)

    # ---- names

    def queue_name(self) -> str:
        """A name for a queue; what is declared by it is deleted afterwards."""
        self._queues.append(_name("q"))
        return self._queues[-1]

    def exchange_name(self) -> str:
        """A name for an exchange; what is declared by it is deleted afterwards."""
        self._exchanges.append(_name("x"))
        return self._exchanges[-1]

    def queue(self, wire: Wire, channel: int = 1, **declare: object) -> str:
        """Declare a queue with these properties; answers its name.

        Exclusive unless it is said to be durable or otherwise: a broker may refuse other
        transient queues.
        """
        name = self.queue_name()
        options = {"exclusive": not declare.get("durable", False)} | declare
        request = commands.Queue.Declare(queue=name, **options)  # type: ignore[arg-type]
        wire.call(channel, request, commands.Queue.DeclareOk)
        return name

    def exchange(self, wire: Wire, kind: str, channel: int = 1, **declare: object) -> str:
        """Declare an exchange; answers its name."""
        name = self.exchange_name()
        request = commands.Exchange.Declare(
            exchange=name,
            exchange_type=kind,
            **declare,  # type: ignore[arg-type]
        )
        wire.call(channel, request, commands.Exchange.DeclareOk)
        return name

    # ---- the broker

    def restart(self) -> None:
        """Restart the broker; every connection is gone then. Raises CaseTimeout."""
        command = self.facilities.restart_command
        try:
            subprocess.run(command, shell=True, check=True, capture_output=True, timeout=60)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise Unmet(f"{Need.RESTART} failed: {error}") from None
        while True:
            try:
                self.wire()
            except (OSError, Unmet):
                if time.monotonic() > self._deadline:
                    raise CaseTimeout("the broker does not come back") from None
                time.sleep(0.1)
            else:
                return

    def manage(self, method: str, *path: str, body: object = None) -> object:
        """Ask the management API; answers its JSON. Raises Unmet if it refuses."""
        address = self.facilities.address
        url = "/".join((self.facilities.management_url, "api", *(quote(p, safe="") for p in path)))
        request = urllib.request.Request(url, method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        manager = urllib.request.HTTPPasswordMgrWithDefaultRealm()
        manager.add_password(None, url, address.user, address.password)
        opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(manager))
        try:
            with opener.open(request, timeout=10) as response:
                answer = response.read()
        except urllib.error.URLError as error:
            raise Unmet(f"{method} {url}: {error}") from None
        return json.loads(answer) if answer else None

    def afterwards(self, undo: Callable[[], None]) -> None:
        """Have *undo* called when the case is over."""
        self._undo.append(undo)

    # ---- the end

    def close(self) -> None:
        """Hang up everywhere and remove what was declared."""
        for wire in self._wires:
            wire.close()
        with suppress(OSError, Unmet, CaseTimeout):
            self._delete()
        for undo in reversed(self._undo):
            with suppress(OSError, Unmet, CaseTimeout):
                undo()

    def _delete(self) -> None:
        if not self._queues and not self._exchanges:
            return
        deadline = time.monotonic() + _CLEANING_S
        wire = Wire(self.facilities.address, deadline, [], "cleaning")
        try:
            wire.open()
            for number, name in enumerate([*self._queues, *self._exchanges], start=1):
                is_queue = number <= len(self._queues)
                delete = commands.Queue.Delete if is_queue else commands.Exchange.Delete
                wire.call(number, commands.Channel.Open(), commands.Channel.OpenOk)
                if not isinstance(wire.answer(number, delete(0, name)), Refusal):
                    close = commands.Channel.Close(200, "", 0, 0)
                    wire.call(number, close, commands.Channel.CloseOk)
        finally:
            wire.close()


def _name(kind: str) -> str:
    return f"conformance-{_RUN}-{kind}{next(_numbers)}"
