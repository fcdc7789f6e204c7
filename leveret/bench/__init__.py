"""Load generator over raw sockets and the comparison of two brokers."""
