import re
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from leveret.server.config import (
    OPTIONS,
    Config,
    ConfigError,
    LogLevel,
    Option,
    SyncPolicy,
    load_config,
)
from leveret.server.option_kinds import format_size

MIB = 1024 * 1024
DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "leveret.toml"


def message(
    file: Path | None = None,
    environment: dict[str, str] | None = None,
    arguments: dict[str, object] | None = None,
) -> str:
    with pytest.raises(ConfigError) as error:
        load_config(file, environment or {}, arguments or {})
    assert "\n" not in str(error.value)
    return str(error.value)


def test_without_any_source_everything_has_its_default() -> None:
    config = load_config(None, {"PATH": "/bin"}, {"port": None})
    assert config == Config()
    assert (config.host, config.port, config.data_dir) == ("127.0.0.1", 5672, Path("leveret-data"))
    assert config.sync is SyncPolicy.ALWAYS


def test_config_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Config().port = 1  # type: ignore[misc]  # the point


def test_command_line_beats_environment_beats_file_beats_default(file: Path) -> None:
    file.write_text("[amqp]\nchannel_max = 1\nframe_max = 5000\nheartbeat_s = 1")
    environment = {"LEVERET_FRAME_MAX": "6000", "LEVERET_HEARTBEAT_S": "2"}
    config = load_config(file, environment, {"heartbeat_s": "3"})
    assert config == Config(channel_max=1, frame_max=6000, heartbeat_s=3)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_can_be_given_everywhere(file: Path, option: Option) -> None:
    section, _, key = option.key.partition(".")
    file.write_text(f'[{section}]\n{key} = "{option.default_text}"')
    for config in (
        load_config(file, {}, {}),
        load_config(None, {option.variable: option.default_text}, {}),
        load_config(None, {}, {option.name: option.default_text}),
    ):
        assert config == Config()
        value = getattr(config, option.name)
        assert type(value) is type(option.default)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
@pytest.mark.parametrize("bad", ["", "\0"])
def test_every_option_refuses_what_it_does_not_take(option: Option, bad: str) -> None:
    assert message(environment={option.variable: bad}) == (
        f"environment: {option.variable}: expected {option.kind.expectation}, got {bad!r}"
    )


@pytest.mark.parametrize(
    ("toml", "value"),
    [
        ("segment_bytes = 1048576", MIB),
        ('segment_bytes = "1048576"', MIB),
        ('segment_bytes = "2MiB"', 2 * MIB),
        ('segment_bytes = "1 GiB"', 1024 * MIB),
        ('segment_bytes = "2048KiB"', 2 * MIB),
    ],
)
def test_sizes_have_binary_units(file: Path, toml: str, value: int) -> None:
    file.write_text(f"[storage]\n{toml}")
    assert load_config(file, {}, {}).segment_bytes == value


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1536, MIB, 64 * MIB, 1024 * MIB, 2**40])
def test_formatted_size_is_exact(size: int) -> None:
    digits, unit = re.fullmatch("([0-9]+)([KMGT]iB)?", format_size(size)).groups()  # type: ignore[union-attr]  # a failed match fails the test
    assert (
        int(digits) * {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "": 1}[(unit or "")[:1]]
        == size
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listen.port", "-1"),
        ("listen.port", "65536"),
        ("listen.port", "true"),
        ("listen.port", "5672.0"),
        ("listen.port", '"0x10"'),
        ("listen.port", '"5_672"'),
        ("listen.port", '" 5672"'),
        ("listen.port", '"\u0665"'),
        ("listen.port", "[]"),
        ("listen.host", "1"),
        ("storage.data_dir", "1"),
        ("storage.sync", '"Always"'),
        ("storage.sync", "1"),
        ("storage.sync", "[]"),
        ("storage.segment_bytes", '"1023KiB"'),
        ("storage.segment_bytes", '"2GiB"'),
        ("storage.segment_bytes", '"64MB"'),
        ("storage.segment_bytes", '"1.5GiB"'),
        ("storage.sync_interval_ms", "0"),
        ("amqp.frame_max", "4095"),
        ("amqp.channel_max", "2048"),
        ("amqp.channel_max", "0"),
        ("log.level", '"verbose"'),
    ],
)
def test_bad_value_in_the_file_is_refused(file: Path, key: str, value: str) -> None:
    section, _, name = key.partition(".")
    file.write_text(f"[{section}]\n{name} = {value}")
    assert message(file).startswith(f"{file}: {key}: expected ")


def test_message_names_source_key_expectation_and_value(file: Path) -> None:
    file.write_text('[storage]\nsync = "sometimes"')
    assert message(file) == (
        f"{file}: storage.sync: expected one of always, interval, never, got 'sometimes'"
    )
    assert message(environment={"LEVERET_PORT": "65536"}) == (
        "environment: LEVERET_PORT: expected a whole number from 0 to 65535, got '65536'"
    )
    assert message(arguments={"segment_bytes": "1"}) == (
        "command line: --segment-bytes: expected a size from 1MiB to 1GiB, got '1'"
    )


def test_long_value_is_cut_in_the_message() -> None:
    assert len(message(environment={"LEVERET_PORT": "x" * 10_000})) < 200


def test_overridden_value_is_checked_as_well(file: Path) -> None:
    file.write_text("[listen]\nport = 65536")
    assert "listen.port" in message(file, {"LEVERET_PORT": "1"}, {"port": "1"})


@pytest.mark.parametrize(
    ("toml", "complaint"),
    [
        ("[listen]\nprot = 1", "unknown option 'listen.prot', did you mean 'listen.port'?"),
        ("[lisen]\nport = 1", "unknown option 'lisen.port', did you mean 'listen.port'?"),
        ("[log]\nport = 1", "unknown option 'log.port', did you mean 'listen.port'?"),
        ("port = 1", "unknown option 'port', did you mean 'listen.port'?"),
        (
            "[listen.port]\nx = 1",
            "listen.port: expected a whole number from 0 to 65535, got {'x': 1}",
        ),
        ("colour = 1", "unknown option 'colour'"),
    ],
)
def test_unknown_key_in_the_file(file: Path, toml: str, complaint: str) -> None:
    file.write_text(toml)
    assert message(file) == f"{file}: {complaint}"


def test_unknown_variable_and_argument() -> None:
    assert message(environment={"LEVERET_DATADIR": "x"}) == (
        "environment: unknown option 'LEVERET_DATADIR', did you mean 'LEVERET_DATA_DIR'?"
    )
    assert message(arguments={"hots": "x"}) == (
        "command line: unknown option '--hots', did you mean '--host'?"
    )


def test_file_that_cannot_be_read(file: Path, tmp_path: Path) -> None:
    assert message(file) == f"{file}: cannot be read: No such file or directory"
    assert message(tmp_path) == f"{tmp_path}: cannot be read: Is a directory"
    file.write_bytes(b"# \xff")
    assert message(file) == f"{file}: is not UTF-8 at byte 2"
    file.write_text("port 1")
    assert message(file).startswith(f"{file}: is not TOML: ")


def test_log_level_is_a_word() -> None:
    config = load_config(None, {"LEVERET_LOG_LEVEL": "debug"}, {})
    assert config.log_level is LogLevel.DEBUG


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("0.4", 0.4),
        (".25", 0.25),
        ("1.0", 1.0),
        ("2GiB", 2048 * MIB),
        ("67108864", 64 * MIB),
        (64 * MIB, 64 * MIB),
        (0.5, 0.5),
    ],
)
def test_memory_is_a_fraction_or_a_size(written: object, value: float) -> None:
    limit = load_config(None, {}, {"memory_high_watermark": written}).memory_high_watermark
    assert limit == value
    assert type(limit) is type(value)


@pytest.mark.parametrize("written", ["1", "1.1", "0.0", "60%", "-0.5", "1MiB", 1.5, -0.1, True])
def test_other_shares_of_memory_are_refused(written: object) -> None:
    assert message(arguments={"memory_high_watermark": written}) == (
        "command line: --memory-high-watermark: expected a fraction up to 1.0, "
        f"or a size from 16MiB to 1TiB, got {written!r}"
    )


def test_document_lists_every_option_as_it_is() -> None:
    rows = [
        "| in the file | on the command line | default | values | what it is |",
        "|---|---|---|---|---|",
        *(
            f"| `{option.key}` | `{option.flag}` | `{option.default_text}` "
            f"| {option.kind.expectation} | {option.help} |"
            for option in OPTIONS
        ),
    ]
    assert "\n\n" + "\n".join(rows) + "\n\n" in DOCUMENT.read_text("utf-8")


def test_example_in_the_document_is_valid(file: Path) -> None:
    (example,) = re.findall("```toml\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    file.write_text(example)
    assert load_config(file, {}, {}).sync is SyncPolicy.INTERVAL
