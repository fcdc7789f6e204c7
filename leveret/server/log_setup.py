"""Logging of the process: one line a record on stderr.

2026-11-21T02:58:00.123Z INFO server.launcher listening on 127.0.0.1:5672
"""

import logging
import time


def configure_logging(level: str) -> None:
    """Send records of *level* ("debug", "info", "warning", "error") and above to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(_LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class _LineFormatter(logging.Formatter):
    """UTC times, loggers without the name of the package; a traceback follows its line."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def formatMessage(self, record: logging.LogRecord) -> str:
        logger_name = record.name.removeprefix("leveret.")
        line = f"{self.formatTime(record)} {record.levelname} {logger_name} {record.message}"
        # Names in it come from clients: a line feed in one must not forge a second record.
        return "".join(
            char if char.isprintable() else char.encode("unicode_escape").decode() for char in line
        )
