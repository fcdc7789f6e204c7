import re
import subprocess
import sys

SCRIPT = """
import logging
from leveret.server.log_setup import configure_logging

logging.basicConfig(format="replaced %(message)s")
configure_logging("info")
logging.getLogger("leveret.broker.session").info("vhost=%s", "a\\nb\\x1b[0m\\u2028é")
logging.getLogger("leveret.broker.session").debug("below the level")
logging.getLogger("asyncio").error("not ours")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("leveret").exception("caught")
"""


def test_a_record_is_one_line_with_its_traceback_behind() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", SCRIPT],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    first, second, third, *traceback = done.stderr.split("\n")
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert re.fullmatch(time + re.escape(" INFO broker.session vhost=a\\nb\\x1b[0m\\u2028é"), first)
    assert re.fullmatch(f"{time} ERROR asyncio not ours", second)
    assert re.fullmatch(f"{time} ERROR leveret caught", third)
    assert traceback[0] == "Traceback (most recent call last):"
    assert traceback[-2] == "ZeroDivisionError: division by zero"
    assert done.stdout == ""
