"""`python -m stash` is `stash`."""

from stash.cli.main import run

run()
