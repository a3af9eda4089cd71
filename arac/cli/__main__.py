"""`python -m arac.cli` is the command, too."""

import sys

from arac.cli import main

sys.exit(main())
