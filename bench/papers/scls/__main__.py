"""``python -m bench.papers.scls``: see `bench.papers.scls.figure`."""

import sys

from bench.papers.scls.figure import main

sys.exit(main())
