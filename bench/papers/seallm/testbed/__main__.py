"""``python -m bench.papers.seallm.testbed``: see `bench.papers.seallm.testbed.command`."""

import sys

from bench.papers.seallm.testbed.command import main

if __name__ == "__main__":
    sys.exit(main())
