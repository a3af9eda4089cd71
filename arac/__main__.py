"""Run the command: `python -m arac`."""

import sys

from arac.cli import main

if __name__ == "__main__":
    sys.exit(main())
