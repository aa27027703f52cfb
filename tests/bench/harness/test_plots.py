from pathlib import Path

from bench.harness.plots import element_of, new_figure, save, tidy


def draw(path: Path) -> Path:
    figure = new_figure(2, 2)
    axes = figure.subplots()
    axes.plot([1, 2], [3, 4], label="throughput")
    tidy(axes, has_legend=True)
    return save(figure, path)


def test_the_same_picture_gives_the_same_bytes(tmp_path: Path):
    assert draw(tmp_path / "one").read_bytes() == draw(tmp_path / "two").read_bytes()


def test_names_with_dots_keep_them(tmp_path: Path):
    assert draw(tmp_path / "llama-2.5").name == "llama-2.5.svg"


def test_words_of_a_picture_stay_words(tmp_path: Path):
    assert "throughput" in draw(tmp_path / "picture").read_text()


def test_an_element_for_a_page_has_no_document_around_it():
    assert element_of(new_figure(1, 1)).startswith("<svg")
