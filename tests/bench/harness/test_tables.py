from bench.harness.tables import make_table


def test_columns_of_words_come_before_columns_of_numbers():
    table = make_table("title", ("policy",), ("req/s", "TTFT"))
    assert [(column.header, column.justify) for column in table.columns] == [
        ("policy", "left"),
        ("req/s", "right"),
        ("TTFT", "right"),
    ]
