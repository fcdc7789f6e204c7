"""Asking the broker that runs on a data directory."""

import json
import socket
from pathlib import Path

from leveret.server.control_address import SOCKET_NAME, socket_address
from leveret.server.failure import Failure


def ask(data_dir: Path, command: str, **arguments: object) -> object:
    """Have the broker run *command*; answers its result.

    Arguments that are None are not sent. Raises Failure.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    request = json.dumps({"command": command, "arguments": given}).encode() + b"\n"
    try:
        with socket_address(data_dir) as address, socket.socket(socket.AF_UNIX) as connection:
            connection.connect(address)
            connection.sendall(request)
            with connection.makefile("rb") as answers:
                line = answers.readline()
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        raise Failure(f"no broker is running on data directory {data_dir}") from None
    except OSError as error:
        raise Failure(f"{data_dir / SOCKET_NAME}: {error.strerror}") from None
    if not line.endswith(b"\n"):
        raise Failure("the broker ended before it answered")
    answer = json.loads(line)
    if "error" in answer:
        # RabbitMQ's texts have their reason behind an empty line.
        raise Failure(answer["error"].replace("\n\n", ": "))
    return answer["result"]
