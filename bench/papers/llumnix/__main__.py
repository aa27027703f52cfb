"""``python -m bench.papers.llumnix``: see `bench.papers.llumnix.figure`."""

from bench.papers.llumnix.figure import main

if __name__ == "__main__":
    main()
