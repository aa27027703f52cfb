from bench.harness.plots import element_of, new_figure, svg_of, tidy


def draw() -> str:
    figure = new_figure(2, 2)
    axes = figure.subplots()
    axes.plot([1, 2], [3, 4], label="throughput")
    tidy(axes, has_legend=True)
    return svg_of(figure)


def test_the_same_picture_gives_the_same_text_whose_words_stay_words():
    assert draw() == draw()
    assert "throughput" in draw()


def test_an_element_for_a_page_has_no_document_around_it():
    assert element_of(new_figure(1, 1)).startswith("<svg")
