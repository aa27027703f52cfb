"""``python -m bench.papers.scls``: see `bench.papers.scls.figure`."""

from bench.papers.scls.figure import main

if __name__ == "__main__":
    main()
