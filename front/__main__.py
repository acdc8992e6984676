"""`python -m accredit`: the same as the command `accredit`."""

import sys

from accredit.cli import main

if __name__ == "__main__":
    sys.exit(main())
