"""``python -m bench.papers.seallm.live``: see `bench.papers.seallm.live.comparison`."""

from bench.papers.seallm.live.comparison import main

main()
