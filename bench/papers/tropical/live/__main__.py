"""``python -m bench.papers.tropical.live``: see `bench.papers.tropical.live.figure`."""

from bench.papers.tropical.live.figure import main

main()
