"""What is said to an operator whose request cannot be met. The text is for people."""


class RequestError(Exception):
    """The request cannot be met."""


class InvalidRequest(RequestError):
    """It makes no sense, or asks for what is not allowed."""


class NoSuchObject(RequestError):
    """What it names is not there."""


class AlreadyExists(RequestError):
    """What it would make is there already."""
