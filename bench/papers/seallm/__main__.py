"""``python -m bench.papers.seallm``: see `bench.papers.seallm.figure`."""

from bench.papers.seallm.figure import main

if __name__ == "__main__":
    main()
