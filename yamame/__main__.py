"""`python -m yamame`: the command line, for torchrun and if the command `yamame` is not on the PATH."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # `python -m` searches modules in the working directory first, which can be a run directory with a torch.py in it
    if not sys.flags.safe_path and Path(sys.path[0]) not in Path(__file__).parents:
        working_directory = sys.path.pop(0)
        sys.path += [working_directory] if sys.argv[1:2] == ["train"] else []  # for --env.id my_module:Name-v0

    from yamame.cli import main

    sys.exit(main())
