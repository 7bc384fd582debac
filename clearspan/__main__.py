"""`python -m clearspan`: the command `clearspan` (`cli.main`)."""

import sys

from clearspan.cli.main import main

if __name__ == "__main__":
    sys.exit(main(prog="python -m clearspan"))
