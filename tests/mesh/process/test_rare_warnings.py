from mesh.process.rare_warnings import RareWarnings


def test_each_subject_is_told_once_a_period_and_what_was_left_out_is_counted():
    warnings = RareWarnings(period_s=10.0)
    assert warnings.admit("a", 0.0) == 0
    assert [warnings.admit("a", 5.0) for _ in range(3)] == [None] * 3
    assert warnings.admit("b", 9.0) == 3
    assert warnings.admit("a", 10.0) == 0


def test_who_changes_the_subject_each_time_is_bounded_too():
    warnings = RareWarnings(period_s=10.0, most=4)
    told = [warnings.admit(str(number), 1.0) for number in range(1000)]
    assert sum(count is not None for count in told) == 4
    assert warnings.admit("later", 11.0) == 996
