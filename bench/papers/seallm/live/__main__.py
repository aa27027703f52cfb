"""``python -m bench.papers.seallm.live``: see `bench.papers.seallm.live.comparison`."""

from bench.papers.seallm.live.comparison import main

if __name__ == "__main__":
    main()
