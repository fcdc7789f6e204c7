"""Configuration: defaults, overridden by a TOML file, the environment and the command line.

The fields of `Config` are the one table of options: each with its key in TOML, the kind of its
value and its help. The other names follow from the field's name: the variable of `data_dir` is
`LEVERET_DATA_DIR`, its flag on the command line `--data-dir`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from enum import StrEnum
from pathlib import Path

from leveret.broker.advertised import Advertise
from leveret.broker.timestamps import Timestamping
from leveret.server.option_kinds import (
    GIB,
    KIB,
    MIB,
    NONE,
    TIB,
    Choice,
    Folder,
    Integer,
    Kind,
    Optional,
    Share,
    Size,
    Text,
    format_size,
)
from leveret.storage.committer import SyncPolicy

VARIABLE_PREFIX = "LEVERET_"
KEYS_VARIABLE = "LEVERET_ENCRYPTION_KEY"
"""Has encryption keys themselves, so it is no option: those may be shown."""
COUNT_MAX = 1_000_000_000


class ConfigError(Exception):
    """A configuration that cannot be used; the message is one line for the operator."""


class LogLevel(StrEnum):
    """The least severe records that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def _about(key: str, kind: Kind[object], help_text: str) -> dict[str, object]:
    return {"key": key, "kind": kind, "help": help_text}


@dataclass(frozen=True, slots=True)
class Config:
    """Every option of the broker. Names end in their unit; sizes are in bytes."""

    host: str = field(
        default="127.0.0.1",
        metadata=_about(
            "listen.host",
            Text("a host name or an address"),
            "Address to accept connections on; 0.0.0.0 or :: for all.",
        ),
    )
    port: int = field(
        default=5672,
        metadata=_about("listen.port", Integer(0, 65535), "TCP port; 0 takes a free one."),
    )
    data_dir: Path = field(
        default=Path("leveret-data"),
        metadata=_about(
            "storage.data_dir",
            Folder(),
            "Directory of everything durable; made if missing, used by one broker at a time.",
        ),
    )
    sync: SyncPolicy = field(
        default=SyncPolicy.ALWAYS,
        metadata=_about(
            "storage.sync",
            Choice(SyncPolicy),
            "When messages are forced to the disk, and so what a publisher confirm promises.",
        ),
    )
    sync_interval_ms: int = field(
        default=100,
        metadata=_about(
            "storage.sync_interval_ms",
            Integer(1, 60_000),
            "Milliseconds between two forced writes when sync is interval.",
        ),
    )
    segment_bytes: int = field(
        default=64 * MIB,
        metadata=_about(
            "storage.segment_bytes",
            Size(MIB, GIB),
            "A queue's log goes on in a new segment file at this size.",
        ),
    )
    segment_age_s: int = field(
        default=7 * 24 * 3600,
        metadata=_about(
            "storage.segment_age_s",
            Integer(0, 10 * 365 * 24 * 3600),
            "The same at this age of the segment, in seconds; 0 for never.",
        ),
    )
    cache_bytes_per_queue: int = field(
        default=4 * MIB,
        metadata=_about(
            "storage.cache_bytes_per_queue",
            Size(64 * KIB, TIB),
            "Recent messages that one queue keeps in memory; older ones are read from disk.",
        ),
    )
    cache_bytes: int = field(
        default=64 * MIB,
        metadata=_about(
            "storage.cache_bytes", Size(64 * KIB, TIB), "The same for all queues together."
        ),
    )
    transient_bytes_per_queue: int = field(
        default=16 * MIB,
        metadata=_about(
            "storage.transient_bytes_per_queue",
            Size(64 * KIB, TIB),
            "Messages that one transient queue keeps in memory; those behind them go to disk.",
        ),
    )
    transient_bytes: int = field(
        default=128 * MIB,
        metadata=_about(
            "storage.transient_bytes",
            Size(64 * KIB, TIB),
            "The same for all transient queues together.",
        ),
    )
    encryption_key_file: Path | None = field(
        default=None,
        metadata=_about(
            "storage.encryption_key_file",
            Optional(Folder()),
            "File of the keys that messages on disk are encrypted with, the current one first.",
        ),
    )
    message_id_index_bytes: int = field(
        default=64 * MIB,
        metadata=_about(
            "storage.message_id_index_bytes",
            Size(0, TIB),
            "Memory for looking up messages by id, of all queues that were asked for one.",
        ),
    )
    frame_max: int = field(
        default=128 * KIB,
        metadata=_about(
            "amqp.frame_max",
            Size(4 * KIB, 128 * MIB),
            "Largest frame that is offered to clients; they may ask for less.",
        ),
    )
    channel_max: int = field(
        default=2047,
        metadata=_about(
            "amqp.channel_max", Integer(1, 2047), "Channels that one connection may have open."
        ),
    )
    connection_max: int = field(
        default=0,
        metadata=_about(
            "amqp.connection_max",
            Integer(0, COUNT_MAX),
            "Connections that may be open at a time; 0 for no limit.",
        ),
    )
    channel_max_per_node: int = field(
        default=0,
        metadata=_about(
            "amqp.channel_max_per_node",
            Integer(0, COUNT_MAX),
            "Channels that all connections together may have open; 0 for no limit.",
        ),
    )
    consumer_max_per_channel: int = field(
        default=0,
        metadata=_about(
            "amqp.consumer_max_per_channel",
            Integer(0, COUNT_MAX),
            "Consumers that one channel may have; 0 for no limit.",
        ),
    )
    exchange_max: int = field(
        default=0,
        metadata=_about(
            "amqp.exchange_max",
            Integer(0, COUNT_MAX),
            "Exchanges that all vhosts together may have, their seven own ones included; "
            "0 for no limit.",
        ),
    )
    heartbeat_s: int = field(
        default=60,
        metadata=_about(
            "amqp.heartbeat_s",
            Integer(0, 65535),
            "Heartbeat in seconds that is offered to clients; 0 for none.",
        ),
    )
    handshake_timeout_s: int = field(
        default=10,
        metadata=_about(
            "amqp.handshake_timeout_s",
            Integer(1, 3600),
            "Seconds that a client may take from connecting to an open connection.",
        ),
    )
    max_message_size: int = field(
        default=128 * MIB,
        metadata=_about(
            "amqp.max_message_size", Size(1, 512 * MIB), "Largest message body that is accepted."
        ),
    )
    timestamping: Timestamping = field(
        default=Timestamping.NEVER,
        metadata=_about(
            "amqp.timestamping",
            Choice(Timestamping),
            "Which messages get the time they came in as property timestamp and header "
            "timestamp_in_ms.",
        ),
    )
    advertise: Advertise = field(
        default=Advertise.LEVERET,
        metadata=_about(
            "amqp.advertise",
            Choice(Advertise),
            "Product and version to show to clients, some of which go by them.",
        ),
    )
    disk_free_limit: int = field(
        default=256 * MIB,
        metadata=_about(
            "alarms.disk_free_limit",
            Size(0, 1024 * TIB),
            "Free disk space below which publishers have to wait; 0 for never.",
        ),
    )
    disk_free_hard_limit: int = field(
        default=64 * MIB,
        metadata=_about(
            "alarms.disk_free_hard_limit",
            Size(0, 1024 * TIB),
            "The same below which messages with confirms are refused; at most disk_free_limit.",
        ),
    )
    memory_high_watermark: float = field(
        default=0.6,
        metadata=_about(
            "alarms.memory_high_watermark",
            Share(Size(16 * MIB, TIB)),
            "Memory of the broker above which publishers have to wait.",
        ),
    )
    memory_hard_limit: float = field(
        default=0.8,
        metadata=_about(
            "alarms.memory_hard_limit",
            Share(Size(16 * MIB, TIB)),
            "The same above which messages with confirms are refused.",
        ),
    )
    log_level: LogLevel = field(
        default=LogLevel.INFO,
        metadata=_about("log.level", Choice(LogLevel), "Least severe records to write to stderr."),
    )


class Option:
    """One option: its field of `Config` under the names that the sources have for it."""

    __slots__ = ("default", "flag", "help", "key", "kind", "name", "variable")

    def __init__(self, config_field: "Field[object]") -> None:
        self.name = config_field.name
        self.key: str = config_field.metadata["key"]
        self.variable = VARIABLE_PREFIX + self.name.upper()
        self.flag = "--" + self.name.replace("_", "-")
        self.kind: Kind[object] = config_field.metadata["kind"]
        self.help: str = config_field.metadata["help"]
        self.default = config_field.default

    @property
    def default_text(self) -> str:
        """The default as an operator would write it."""
        if self.default is None:
            return NONE
        if isinstance(self.kind, Size) and isinstance(self.default, int):
            return format_size(self.default)
        return str(self.default)


OPTIONS = tuple(Option(config_field) for config_field in fields(Config))


def load_config(
    file: Path | None, environment: Mapping[str, str], arguments: Mapping[str, object]
) -> Config:
    """Read the configuration: defaults < *file* (TOML) < *environment* < *arguments*.

    Arguments are named like the fields of `Config`; None stands for one not given.
    Raises ConfigError for an unknown key or a bad value, whichever source would have won.
    """
    values: dict[str, object] = {}
    if file is not None:
        by_key = {option.key: option for option in OPTIONS}
        values |= _check(_read_toml(file), by_key, f"{file}: ")
    variables = {
        name: value
        for name, value in environment.items()
        if name.startswith(VARIABLE_PREFIX) and name != KEYS_VARIABLE
    }
    values |= _check(variables, {option.variable: option for option in OPTIONS}, "environment: ")
    flags = {
        "--" + name.replace("_", "-"): value
        for name, value in arguments.items()
        if value is not None
    }
    values |= _check(flags, {option.flag: option for option in OPTIONS}, "command line: ")
    return Config(**values)  # type: ignore[arg-type]  # each value has passed its option's kind


def _check(
    given: Mapping[str, object], options: Mapping[str, Option], source: str
) -> dict[str, object]:
    """The checked values of one source by the names of their fields."""
    checked = {}
    for name, value in given.items():
        option = options.get(name)
        if option is None:
            raise ConfigError(f"{source}unknown option {name!r}{_suggestion(name, options)}")
        try:
            checked[option.name] = option.kind.parse(value)
        except ValueError:
            raise ConfigError(
                f"{source}{name}: expected {option.kind.expectation}, got {_shown(value)}"
            ) from None
    return checked


def _suggestion(name: str, known: Iterable[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.7) or [
        key for key in known if key.endswith("." + name.rpartition(".")[2])
    ]
    return f", did you mean {near[0]!r}?" if near else ""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _read_toml(file: Path) -> dict[str, object]:
    """The keys of a TOML file with their section in front: `storage.sync`."""
    import tomllib

    try:
        document = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: is not UTF-8 at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: is not TOML: {error}") from None
    keys: dict[str, object] = {}
    for section, content in document.items():
        if isinstance(content, dict):
            keys |= {f"{section}.{name}": value for name, value in content.items()}
        else:
            keys[section] = content
    return keys
