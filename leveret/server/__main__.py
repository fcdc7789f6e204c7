"""`python -m leveret.server` is the command `leveret`."""

from leveret.server.main import main

main(prog_name="leveret")
