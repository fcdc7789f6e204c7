"""The application of tasks.py with a queue of priorities; run as a program, it sends tasks there.

Arguments: the file that the tasks write to, and the priority of each.
"""

import sys

from kombu import Queue
from tasks import app, note

app.conf.task_queues = [Queue("ranked", routing_key="ranked", max_priority=10)]
app.conf.task_default_queue = "ranked"

if __name__ == "__main__":
    for priority in sys.argv[2:]:
        note.apply_async((sys.argv[1], priority), priority=int(priority))
