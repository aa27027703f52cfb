"""``python -m bench.papers.aladdin``: see `bench.papers.aladdin.figure`."""

from bench.papers.aladdin.figure import main

if __name__ == "__main__":
    main()
