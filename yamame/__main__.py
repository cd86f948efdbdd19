"""`python -m yamame`: the command line, for torchrun and if the command `yamame` is not on the PATH."""

import sys

from yamame.cli import main

if __name__ == "__main__":
    sys.exit(main())
