"""Failure: how a command of the command line ends that could not do its work."""

import click


class Failure(click.ClickException):
    """An expected failure: one line on stderr, exit code 1."""

    def show(self, file: object = None) -> None:
        """Write the line."""
        click.echo(f"leveret: {self.message}", err=True)
