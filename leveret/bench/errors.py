"""What ends a run early."""


class BenchError(Exception):
    """The broker cannot be reached, refuses the work, or breaks the protocol. One line of text."""
