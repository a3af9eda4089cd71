"""`python -m arac.sweeps.child LIFELINE WORDS`: an `arac` command that ends with the process that started it."""

import sys

from arac.cli import main
from arac.utils.processes import end_with

if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
