"""Options that several commands have."""

from pathlib import Path

import click

from leveret.server.config import OPTIONS

_DATA_DIR = next(option for option in OPTIONS if option.name == "data_dir")

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    envvar=_DATA_DIR.variable,
    default=_DATA_DIR.default,
    show_default=True,
    help="Data directory of the running broker.",
)
vhost_option = click.option("--vhost", default="/", show_default=True, help="Which vhost.")
every_vhost_option = click.option("--vhost", help="Only this vhost.")
json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON.")
