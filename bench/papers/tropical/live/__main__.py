"""``python -m bench.papers.tropical.live``: see `bench.papers.tropical.live.command`."""

from bench.papers.tropical.live.command import main

if __name__ == "__main__":
    main()
