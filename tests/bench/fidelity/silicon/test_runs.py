"""Measured closed loops, read from others' samples."""

from random import Random

import pytest

from bench.fidelity.silicon.runs import FILES, INFERENCEX, Lengths, SiliconRun, read_runs
from mesh.errors import UserError

HEAD = (
    "backend,backend_version,model_path,precision,mode,isl,osl,batch_size,tp_size,pp_size,attention_dp_size,"
    "silicon_ttft_ms,silicon_tpot_ms,silicon_data_source\n"
)
RUN = "vllm,0.12.0,Qwen/Qwen3-32B,,agg,1024,128,8,2,1,,154.2,18.04,source_file=Qwen3-32B.csv\n"


def written(folder, *rows):
    (folder / FILES.format(device="h100")).write_text(HEAD + "".join(rows), encoding="utf-8")
    return folder


def test_a_row_is_a_run_on_a_preset(tmp_path):
    [run] = read_runs(written(tmp_path, RUN), "h100", "vllm-0.12", None, 24)
    assert run == SiliconRun(
        "vllm-0.12",
        "h100",
        "qwen3-32b",
        2,
        1024,
        128,
        8,
        pytest.approx(0.1542),
        pytest.approx(0.01804),
        Lengths(spread=24),
    )
    assert run.preset == "h100-qwen3-32b-tp2"


def test_tensorrt_llm_was_tuned_for_each_run(tmp_path):
    fp8 = RUN.replace("vllm,0.12.0,Qwen/Qwen3-32B,,", "trtllm,1.0.0rc3,Qwen/Qwen3-32B,fp8,")
    llama = RUN.replace("vllm,0.12.0,Qwen/Qwen3-32B,,", "trtllm,1.0.0rc3,meta-llama/Llama-3.1-8B-Instruct,,")
    llama = llama.replace("Qwen3-32B.csv", "meta-llama_Llama-3.1-8B-Instruct.csv")
    one, other = read_runs(written(tmp_path, fp8, llama), "h100", "trtllm-1.0", None, 0)
    assert (one.preset, other.preset) == ("h100-qwen3-32b-fp8-kv8-tp2-trtllm", "h100-llama3-8b-tp2-trtllm")
    assert one.settings == {"chunk_tokens": 1024 + 8, "max_running": 8}
    assert (one.num_waiting, other.num_waiting) == (0, 1)
    [untuned] = read_runs(written(tmp_path, RUN), "h100", "vllm-0.12", None, 0)
    assert (untuned.settings, untuned.num_waiting) == ({}, 0)


def test_gpt_oss_was_served_with_marlin_on_hopper(tmp_path):
    written(tmp_path, RUN.replace("vllm,0.12.0,Qwen/Qwen3-32B,,", "vllm,0.18.0,openai/gpt-oss-120b,fp4,"))
    for device, preset in (("h200", "h200-gpt-oss-120b-marlin-tp2"), ("b200", "b200-gpt-oss-120b-tp2")):
        (tmp_path / FILES.format(device=device)).write_bytes((tmp_path / FILES.format(device="h100")).read_bytes())
        [run] = read_runs(tmp_path, device, "vllm-0.18", None, 0)
        assert run.preset == preset


def test_what_is_not_modelled_is_left_out(tmp_path):
    others = (
        RUN.replace("agg", "disagg"),
        RUN.replace("Qwen3-32B", "Unheard-of"),
        RUN.replace("0.12.0", "0.1.2"),
        RUN.replace(",2,1,,", ",2,2,,"),
        RUN.replace(",2,1,,", ",16,1,,"),
        RUN.replace("Qwen3-32B.csv", "qwen3_32b.csv; gtl_job_id=7"),
    )
    assert len(read_runs(written(tmp_path, RUN, *others), "h100", "vllm-0.12", None, 24)) == 1


def test_runs_that_several_samples_tell_of_count_once(tmp_path):
    again, other = RUN.replace("154.2", "154.3"), RUN.replace(",128,8,", ",128,16,")
    assert len(read_runs(written(tmp_path, RUN, again, other), "h100", "vllm-0.12", None, 24)) == 2


def test_inferencex_draws_lengths_from_four_fifths_on(tmp_path):
    dated = RUN.replace("Qwen3-32B.csv", "2026-04-06.csv; model=Qwen3-32B")
    [run] = read_runs(written(tmp_path, dated), "h100", "vllm-0.12", None, 24)
    assert run.lengths == INFERENCEX
    random = Random(0)
    drawn = [run.lengths.draw(random, 1000, 500) for _ in range(2000)]
    assert min(drawn)[0] == pytest.approx(800, abs=5)
    assert max(answer for _, answer in drawn) == pytest.approx(500, abs=5)


def test_runs_of_one_model_can_be_read_alone(tmp_path):
    smaller = RUN.replace("Qwen/Qwen3-32B", "meta-llama/Llama-3.1-8B-Instruct")
    folder = written(tmp_path, RUN, smaller)
    assert [run.model for run in read_runs(folder, "h100", "vllm-0.12", "llama3-8b", 24)] == ["llama3-8b"]
    with pytest.raises(UserError, match=r"--model: no run of vllm-0\.12 on 'llama3-7b'; did you mean 'llama3-8b'"):
        read_runs(folder, "h100", "vllm-0.12", "llama3-7b", 24)


def test_a_folder_without_such_runs_is_told_in_a_line(tmp_path):
    with pytest.raises(UserError, match=r"No such file or directory; give the folder that holds h100_sxm\.csv"):
        read_runs(tmp_path, "h100", "vllm-0.12", None, 24)
    with pytest.raises(UserError, match=r"no run of vllm-0\.12 on a model that a preset is of"):
        read_runs(written(tmp_path), "h100", "vllm-0.12", None, 24)


def test_another_device_has_a_file_and_presets_of_its_own(tmp_path):
    (tmp_path / FILES.format(device="h200")).write_text(HEAD + RUN, encoding="utf-8")
    assert [run.preset for run in read_runs(tmp_path, "h200", "vllm-0.12", None, 24)] == ["h200-qwen3-32b-tp2"]
