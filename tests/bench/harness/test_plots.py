from bench.harness.plots import new_figure, svg_of


def draw() -> str:
    figure = new_figure(2, 2)
    figure.subplots().set_title("throughput")
    return svg_of(figure)


def test_the_same_picture_gives_the_same_text_whose_words_stay_words():
    assert draw() == draw()
    assert "throughput" in draw()
