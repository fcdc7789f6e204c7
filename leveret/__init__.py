"""leveret: an AMQP 0-9-1 broker with segment logs under its queues."""

__version__ = "0.1.0"
