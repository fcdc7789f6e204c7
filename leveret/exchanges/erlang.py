"""Values as RabbitMQ prints them in its reply texts: Erlang terms."""


def as_erlang(value: object) -> str:
    """Return the commoner kinds of value as the Erlang term that they are in RabbitMQ."""
    match value:
        case "" | b"":
            return "<<>>"
        case str():
            return f'<<"{value}">>'
        case bytes():
            return f'<<"{value.decode("utf-8", "replace")}">>'
        case bool():
            return str(value).lower()
        case None:
            return "undefined"
    return str(value)
