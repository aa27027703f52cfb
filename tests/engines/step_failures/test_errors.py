"""Which errors of a step end an engine's process."""

import pytest
import torch

from engines.step_failures.errors import LEAST_REQUESTS, MOST_IN_A_ROW, StepError, StepFailures, classify

SINCE_2_8 = type("AcceleratorError", (RuntimeError,), {})
CUPY = type("CUDARuntimeError", (RuntimeError,), {})


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (IndexError("index out of range in self"), StepError.ORDINARY),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), StepError.ORDINARY),
        (AssertionError(), StepError.ORDINARY),
        (RuntimeError("CUDA error: device-side assert triggered"), StepError.DEVICE),
        (SINCE_2_8("CUDA error: an illegal memory access was encountered"), StepError.DEVICE),
        (CUPY("cudaErrorIllegalAddress: an illegal memory access was encountered"), StepError.DEVICE),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"), StepError.DEVICE),
        (RuntimeError("NCCL Error 1: unhandled cuda error"), StepError.DEVICE),
        (RuntimeError("HIP error: unspecified launch failure"), StepError.DEVICE),
        (MemoryError(), StepError.MEMORY),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), StepError.MEMORY),
        (SINCE_2_8("CUDA error: out of memory"), StepError.MEMORY),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), StepError.MEMORY),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), StepError.MEMORY),
    ],
)
def test_errors_are_told_apart(error: Exception, kind: StepError):
    assert classify(error) is kind


def test_what_an_error_was_raised_from_counts():
    error = ValueError("a worker failed")
    error.__cause__ = RuntimeError("CUDA error: device-side assert triggered")
    assert classify(error) is StepError.DEVICE


def test_one_request_that_fails_again_and_again_ends_no_engine():
    failures = StepFailures()
    assert not any(failures.failed(["r"]) for _ in range(100))


def test_requests_that_fail_while_others_are_computed_end_no_engine():
    failures = StepFailures()
    for number in range(100):
        assert not failures.failed([f"r{number}"])
        if number % (MOST_IN_A_ROW - 1) == 0:
            failures.computed()


def test_an_engine_that_computes_nothing_ends():
    failures = StepFailures()
    results = [failures.failed([f"r{number % LEAST_REQUESTS}"]) for number in range(MOST_IN_A_ROW)]
    assert results == [*[False] * (MOST_IN_A_ROW - 1), True]


def test_parts_of_a_batch_are_tried_before_an_engine_is_given_up():
    failures = StepFailures()
    assert not any(failures.failed([f"r{number}", "other"]) for number in range(100))
