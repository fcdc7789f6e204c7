"""Tenants: users and vhosts of a case's own, by the broker's management API."""

import itertools
import os

from pamqp import commands

from leveret.conformance.cases.steps import open_channel, remove
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import Wire, method, start_ok

PASSWORD = "conformance"  # of users that exist for the time of one case
_numbers = itertools.count()


def new_vhost(ground: Ground) -> str:
    """Make a vhost that we may do anything in; answers its name."""
    name = f"conformance-{os.getpid()}-v{next(_numbers)}"
    ground.manage("PUT", "vhosts", name)
    remove(ground, "vhosts", name)
    permit(ground, ground.facilities.address.user, name)
    return name


def new_user(ground: Ground) -> str:
    """Make a user who may do nothing yet; answers the name."""
    name = f"conformance-{os.getpid()}-u{next(_numbers)}"
    ground.manage("PUT", "users", name, body={"password": PASSWORD, "tags": ""})
    remove(ground, "users", name)
    return name


def permit(
    ground: Ground,
    user: str,
    vhost: str,
    configure: str = ".*",
    write: str = ".*",
    read: str = ".*",
) -> None:
    """Let a user into a vhost, with these patterns of names."""
    body = {"configure": configure, "write": write, "read": read}
    ground.manage("PUT", "permissions", vhost, user, body=body)


def arrive(ground: Ground, vhost: str, user: str | None = None) -> Wire:
    """A connection that has asked to enter a vhost and has no answer yet."""
    wire = ground.raw()
    wire.shake_hands(start_ok(user, PASSWORD) if user else None)
    wire.send(method(0, commands.Connection.Open(vhost)))
    return wire


def enter(ground: Ground, vhost: str, user: str | None = None, *channels: int) -> Wire:
    """A connection into a vhost, with these channels."""
    wire = arrive(ground, vhost, user)
    wire.expect(commands.Connection.OpenOk, 0)
    for channel in channels:
        open_channel(wire, channel)
    return wire
