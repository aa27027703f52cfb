"""Presets are their sources' numbers in seconds and bytes; names and files that are wrong say so in one line."""

from pathlib import Path

import pytest

from engines.costs import decode_step_s, prefill_s
from engines.profiles import ProfileError, ProfileFile, load_profile, preset_names, read_profile_file
from mesh.messages import DecodeCost, PrefillCost

MEASURED = ProfileFile(
    name="mine",
    source='a "quoted" laptop',
    kv_bytes_per_token=1024,
    kv_memory_bytes=2**30,
    prefill=PrefillCost(1e-3, 2e-5, 3e-9),
    decode=DecodeCost(4e-3, 5e-4, 6e-7, ((1, 1e-3), (8, 4.0))),
    error={"prefill_p90": 0.05},
)


def test_milliseconds_become_seconds_and_shapes_bytes() -> None:
    profile = load_profile("a100-llama2-70b-tp4")
    assert prefill_s(profile.prefill, 1000) == pytest.approx((0.16173 * 1000 + 14.938) / 1000)
    assert decode_step_s(profile.decode, 8, 8000) == pytest.approx((5.3219e-05 * 8000 + 0.098824 * 8 + 27.401) / 1000)
    assert profile.kv_bytes_per_token == 2 * 80 * 8 * 128 * 2
    assert profile.kv_memory_bytes == int(0.9 * 4 * 80 * 2**30) - 2 * 68_976_648_192
    assert "AIConfigurator" in profile.source
    assert profile.source.endswith("fits within 6% and 7%")


def test_a_negative_fixed_cost_is_none() -> None:
    cost = load_profile("a100-llama2-70b-tp4-splitwise").prefill
    assert cost.fixed_s == 0.0
    assert cost.per_token_s == pytest.approx(0.2709e-3)


def test_every_preset_can_serve() -> None:
    assert {"h100-llama2-7b-tp1", "h200-llama2-13b-tp2", "a100-bloom-176b-tp8"} <= set(preset_names())
    for profile in map(load_profile, preset_names()):
        assert prefill_s(profile.prefill, 1) > 0
        assert decode_step_s(profile.decode, 1, 1) > 0
        assert profile.kv_memory_bytes > 4096 * profile.kv_bytes_per_token, profile.name


@pytest.mark.parametrize(
    ("name", "hint"),
    [("a100-lama2-70b-tp4", "did you mean 'a100-llama2-70b-tp4'?"), ("zzz", "names are like 'a100-bloom-176b-tp8'")],
)
def test_an_unknown_name_is_answered_with_a_near_one(name: str, hint: str) -> None:
    with pytest.raises(ProfileError) as caught:
        load_profile(name)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(MEASURED.text())
    assert load_profile(str(file)) == MEASURED.profile()
    assert read_profile_file(file) == MEASURED


@pytest.mark.parametrize("text", [None, "name = ", "name = 3", MEASURED.text().replace("per_token_s", "per_tokem_s")])
def test_a_bad_file_is_one_clear_line(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "bad.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ProfileError, match=r"^profile .*bad\.toml: ") as caught:
        load_profile(str(file))
    assert "\n" not in str(caught.value)
