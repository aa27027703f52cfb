"""Measured closed loops, read from others' samples."""

import pytest

from bench.fidelity.silicon.runs import FILE, SiliconRun, read_runs
from mesh.errors import UserError

HEAD = (
    "backend,backend_version,model_path,precision,mode,isl,osl,batch_size,tp_size,pp_size,attention_dp_size,"
    "silicon_ttft_ms,silicon_tpot_ms\n"
)
RUN = "vllm,0.12.0,Qwen/Qwen3-32B,,agg,1024,128,8,2,1,,154.2,18.04\n"


def written(folder, *rows):
    (folder / FILE).write_text(HEAD + "".join(rows), encoding="utf-8")
    return folder


def test_a_row_is_a_run_on_a_preset(tmp_path):
    [run] = read_runs(written(tmp_path, RUN), "vllm-0.12")
    assert run == SiliconRun("vllm-0.12", "qwen3-32b", 2, 1024, 128, 8, pytest.approx(0.1542), pytest.approx(0.01804))
    assert run.preset == "h100-qwen3-32b-tp2"


def test_what_is_not_modelled_is_left_out(tmp_path):
    others = (
        RUN.replace("agg", "disagg"),
        RUN.replace("Qwen3-32B", "Unheard-of"),
        RUN.replace("0.12.0", "0.1.2"),
        RUN.replace(",2,1,,", ",2,2,,"),
        RUN.replace(",2,1,,", ",16,1,,"),
    )
    assert len(read_runs(written(tmp_path, RUN, *others), "vllm-0.12")) == 1


def test_a_folder_without_such_runs_is_told_in_a_line(tmp_path):
    with pytest.raises(UserError, match=r"No such file or directory; give the folder that holds h100_sxm\.csv"):
        read_runs(tmp_path, "vllm-0.12")
    with pytest.raises(UserError, match=r"no run of vllm-0\.12 on a model that a preset is of"):
        read_runs(written(tmp_path), "vllm-0.12")
