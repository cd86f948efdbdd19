"""`python -m yamame`: the command line, for torchrun and if the command `yamame` is not on the PATH."""

import sys

if __name__ == "__main__":
    # the working directory, unless this package is in it: nothing in a run directory is executed
    if not sys.flags.safe_path and not __file__.startswith(sys.path[0]):
        del sys.path[0]
    from yamame.cli import main

    sys.exit(main())
