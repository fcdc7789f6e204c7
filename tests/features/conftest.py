from tests.clients.conftest import anyio_backend, channel, connect, name, shared_broker

__all__ = ["anyio_backend", "channel", "connect", "name", "shared_broker"]
