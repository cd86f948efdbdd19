"""`python -m yamame`: the command line, for torchrun and wherever the command is not on the path."""

import sys

from yamame.cli import main

if __name__ == "__main__":
    sys.exit(main())
