"""The application of tasks.py with quorum queues, set up as Celery's guide says."""

from tasks import app

app.conf.task_default_queue = "quorum"
app.conf.task_default_queue_type = "quorum"
app.conf.task_default_exchange_type = "topic"
app.conf.broker_transport_options = {"confirm_publish": True}
