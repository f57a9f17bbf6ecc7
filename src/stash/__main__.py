"""`python -m stash` is `stash`."""

import sys

from stash.cli.main import main

sys.exit(main())
