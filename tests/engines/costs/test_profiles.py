"""Presets are their sources' numbers in seconds and bytes; names and files that are wrong say so in one line."""

import subprocess
import sys
import textwrap
import tomllib
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.named_profiles import load_profile, num_devices_of
from engines.costs.presets import model_shape, preset_names
from engines.costs.profiles import ProfileError, ProfileFile, read_profile_file
from engines.costs.scaling import ModelShape
from mesh.topology.schema import EngineSpec
from mesh.wire.control import Role
from mesh.wire.status import DecodeCost, PrefillCost

MEASURED = ProfileFile(
    name="mine",
    source='a "quoted" laptop',
    kv_bytes_per_token=1024,
    kv_memory_bytes=2**30,
    prefill=PrefillCost(1e-3, 2e-5, 3e-9),
    decode=DecodeCost(4e-3, 5e-4, 6e-7, ((1, 1e-3), (8, 4.0))),
    error={"prefill_p90": 0.05},
)


def test_milliseconds_become_seconds_and_shapes_bytes():
    profile = load_profile("a100-llama2-70b-tp8-splitwise")
    assert prefill_s(profile.prefill, 1000) == pytest.approx((0.1730 * 1000 + 0.9) / 1000)
    assert decode_step_s(profile.decode, 8, 8000) == pytest.approx((3.354e-4 * 8000 + 0.1897 * 8 + 44.07) / 1000)
    assert profile.kv_bytes_per_token == 2 * 80 * 8 * 128 * 2
    assert profile.kv_memory_bytes == int(0.9 * 8 * 80 * 2**30) - 2 * 68_976_648_192
    assert profile.num_devices == 8
    assert "Splitwise" in profile.source
    assert profile.source.endswith("fits within 32% and 6%")


def test_composed_presets_say_their_held_out_error_and_grow_quadratically():
    profile = load_profile("a100-llama2-70b-tp4")
    assert "AIConfigurator" in profile.source
    assert "held-out points within 3." in profile.source
    assert prefill_s(profile.prefill, 32768) > 2.05 * prefill_s(profile.prefill, 16384)
    assert 6.5 < prefill_s(profile.prefill, 32768) < 7.5


def test_scaled_presets_lie_between_smaller_and_larger_models():
    small, scaled, large = (
        load_profile(f"a100-{model}-tp2") for model in ("llama2-13b", "internlm2.5-20b", "llama2-70b")
    )
    for num_tokens in (1, 512, 4096, 32768):
        times_s = [prefill_s(profile.prefill, num_tokens) for profile in (small, scaled, large)]
        assert times_s == sorted(times_s)
    assert small.num_devices == scaled.num_devices == 2
    assert scaled.source.startswith("scaled from a100-llama2-13b-tp1")
    assert scaled.kv_bytes_per_token == 2 * 48 * 8 * 128 * 2
    assert scaled.kv_memory_bytes == int(0.9 * 2 * 80 * 2**30) - 2 * 19_861_149_696


def test_shapes_have_as_many_parameters_as_their_models():
    """Most are of the Llama family, whose parts add up to what is published."""
    models = tomllib.loads(files("engines.costs").joinpath("presets.toml").read_text(encoding="utf-8"))["models"]
    for name, model in models.items():
        if name.startswith(("bloom", "opt", "gpt-oss")):
            continue
        shape = ModelShape(**model)
        heads = shape.num_heads * shape.head_dim
        attention = shape.hidden_size * (2 * heads + 2 * shape.num_kv_heads * shape.head_dim)
        norms = 2 * shape.hidden_size + (2 * shape.head_dim if name.startswith("qwen3") else 0)
        experts = 128 if name.startswith("qwen3-235b") else 1
        chooses = experts * shape.hidden_size * (experts > 1)
        layer = attention + experts * 3 * shape.hidden_size * shape.intermediate_size + chooses + norms
        total = shape.num_layers * layer + (2 * shape.vocab_size + 1) * shape.hidden_size
        assert total == shape.num_parameters, name


def test_gpt_oss_has_128_experts_and_biases_everywhere():
    shape = model_shape("gpt-oss-120b")
    hidden, heads = shape.hidden_size, shape.num_heads * shape.head_dim
    projected = heads + 2 * shape.num_kv_heads * shape.head_dim
    attention = hidden * (heads + projected) + projected + hidden + shape.num_heads
    experts = 128 * (3 * hidden * shape.intermediate_size + 3 * hidden) + (hidden + 1) * 128
    total = shape.num_layers * (attention + experts + 2 * hidden) + (2 * shape.vocab_size + 1) * hidden
    assert total == shape.num_parameters


def test_weights_of_fewer_bits_leave_more_for_kv():
    wide, narrow = load_profile("h100-llama3-70b-tp4"), load_profile("h100-llama3-70b-fp8-tp4")
    assert narrow.weight_bytes == pytest.approx(wide.weight_bytes * 8.24 / 16)
    assert narrow.kv_memory_bytes - wide.kv_memory_bytes == wide.weight_bytes - narrow.weight_bytes


def test_opt_has_no_gates_and_biases_everywhere_and_positions_that_it_learnt():
    models = tomllib.loads(files("engines.costs").joinpath("presets.toml").read_text(encoding="utf-8"))["models"]
    shape = ModelShape(**models["opt-6.7b"])
    hidden, inner = shape.hidden_size, shape.intermediate_size
    layer = 4 * (hidden + 1) * hidden + (2 * hidden + 1) * inner + hidden + 4 * hidden
    assert shape.num_layers * layer + (shape.vocab_size + 2050 + 2) * hidden == shape.num_parameters


def test_opt_costs_about_what_llama_of_its_size_does():
    for size in (1, 2, 4, 8):
        opt, llama = (load_profile(f"a100-{model}-tp{size}") for model in ("opt-6.7b", "llama2-7b"))
        assert opt.kv_bytes_per_token == llama.kv_bytes_per_token
        for num_tokens in (1, 512, 4096):
            ratio = prefill_s(opt.prefill, num_tokens) / prefill_s(llama.prefill, num_tokens)
            assert ratio == pytest.approx(1.0, abs=0.25)


def test_a_negative_fixed_cost_is_none():
    cost = load_profile("a100-llama2-70b-tp4-splitwise").prefill
    assert cost.fixed_s == 0.0
    assert cost.per_token_s == pytest.approx(0.2709e-3)


def test_every_preset_can_serve():
    assert {"h100-llama2-7b-tp1", "h200-llama2-13b-tp2", "a100-bloom-176b-tp8"} <= set(preset_names())
    for profile in map(load_profile, preset_names()):
        assert prefill_s(profile.prefill, 1) > 0
        assert decode_step_s(profile.decode, 1, 1) > 0
        assert profile.kv_memory_bytes > 4096 * profile.kv_bytes_per_token, profile.name


@pytest.mark.parametrize(
    ("name", "hint"),
    [("a100-lama2-70b-tp4", "did you mean 'a100-llama2-70b-tp4'?"), ("zzz", "names are like 'a10-llama2-7b-tp1'")],
)
def test_an_unknown_name_is_answered_with_a_near_one(name: str, hint: str):
    with pytest.raises(ProfileError) as caught:
        load_profile(name)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_is_read_as_it_was_written(tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text(MEASURED.text())
    assert load_profile(str(file)) == MEASURED.profile()
    assert read_profile_file(file) == MEASURED


@pytest.mark.parametrize("text", [None, "name = ", "name = 3", MEASURED.text().replace("per_token_s", "per_tokem_s")])
def test_a_bad_file_is_one_clear_line(tmp_path: Path, text: str | None):
    file = tmp_path / "bad.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ProfileError, match=r"^profile .*bad\.toml: ") as caught:
        load_profile(str(file))
    assert "\n" not in str(caught.value)


def test_the_topology_the_profile_or_nothing_says_how_many_devices_there_are():
    engine = EngineSpec("main", Role.MULTIPLEX, ("chat",))
    assert num_devices_of(engine) == 1
    profiled = replace(engine, profile="a100-llama2-70b-tp4")
    assert num_devices_of(profiled) == 4
    assert num_devices_of(replace(profiled, num_devices=2)) == 2


def test_threads_may_decode_profiles_that_nobody_decoded_before():
    """In a process of their own, as what goes wrong otherwise is a crash."""
    program = """
        import sys
        from concurrent.futures import ThreadPoolExecutor
        from threading import Barrier
        import msgspec
        from engines.costs.profiles import decode_toml

        def decode(kind, together):
            together.wait()
            return decode_toml("number = 1\\n[one]\\nvalue = 1.0\\n[named.a]\\nvalue = 2.0", kind)

        sys.setswitchinterval(1e-6)
        for _ in range(60):
            class Inner(msgspec.Struct):
                value: float

            class Outer(msgspec.Struct):
                number: int
                one: Inner
                named: dict[str, Inner]

            together = Barrier(8)
            with ThreadPoolExecutor(8) as threads:
                decoded = [threads.submit(decode, Outer, together) for _ in range(8)]
                assert len({str(each.result()) for each in decoded}) == 1
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60)
