"""``python -m bench.papers.seallm.testbed``: see `bench.papers.seallm.testbed.command`."""

import sys

from bench.papers.seallm.testbed.command import main

sys.exit(main())
