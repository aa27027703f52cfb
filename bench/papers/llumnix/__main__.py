"""``python -m bench.papers.llumnix``: see `bench.papers.llumnix.figure`."""

import sys

from bench.papers.llumnix.figure import main

sys.exit(main())
