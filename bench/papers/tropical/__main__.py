"""``python -m bench.papers.tropical``: see `bench.papers.tropical.figure`."""

import sys

from bench.papers.tropical.figure import main

if __name__ == "__main__":
    sys.exit(main())
