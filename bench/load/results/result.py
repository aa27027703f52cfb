"""A run as a file: figures under the keys of ``vllm bench serve``, what was asked, and enough to draw it again."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from bench.load.asked import Asked
from bench.load.generator.crew import Crew
from bench.load.generator.lag import Health
from bench.load.results.judged import Judged
from bench.load.results.measures import FROM_SENDING, METRICS, Window, quantiles, summarize
from bench.load.results.outcome import Outcome
from bench.load.results.series import slices
from mesh.errors import UserError

FORMAT = 1
DRAWN = (*METRICS, *FROM_SENDING[:1])


@dataclass(frozen=True, slots=True)
class Result:
    """``counted``: the outcomes that the figures are of. ``json`` has those figures and all that plots need."""

    counted: Sequence[Outcome]
    outcomes: Sequence[Outcome]
    json: dict[str, Any]
    warnings: Sequence[str]

    @property
    def attainment(self) -> float | None:
        return self.json["slo_attainment"]  # type: ignore[no-any-return]

    @property
    def first_reason(self) -> str | None:
        """Why the first request that failed did so."""
        return next((one.reason for one in self.outcomes if one.reason is not None), None)


def make_result(
    asked: Asked, crew: Crew, label: str, skip_s: float | None, rate: float | None, now: datetime
) -> Result:
    """``rate``: what was asked for; None in a closed loop, or where the plan says it. ``skip_s``: what was due before
    does not count; None: what was due before the run was steady.
    """
    outcomes = sorted(crew.outcomes, key=lambda one: one.number)
    rate = asked.plan.rate if rate is None else rate
    judged = Judged.of(outcomes, asked.plan, skip_s)
    counted = judged.counted
    window = Window.of(counted, judged.begin_s)
    health = Health.of(
        [told.cpu_share for told in crew.told],
        [one.woke_s - one.due_s for one in outcomes],
        [lag_s for told in crew.told for lag_s in told.loop_lags_s],
    )
    summary = summarize(counted, asked.promises, window)
    median_ttft_ms = summary["median_ttft_ms"]
    assert median_ttft_ms is None or isinstance(median_ttft_ms, float)
    lagging = health.warnings(None if median_ttft_ms is None else median_ttft_ms / 1e3)
    warnings = [*asked.prompting.remarks, *_failures(outcomes), *_lagging(lagging), *_estimates(counted)]
    warnings += [*_lengths(counted), *judged.warnings(rate)]
    pace, has_promises = asked.plan.pace, summary["slo_attainment"] is not None
    head = {
        "date": now.astimezone(UTC).strftime("%Y%m%d-%H%M%S"),
        "backend": "openai-chat" if asked.prompting.recipe.api == "chat" else "openai",
        "label": label,
        "model_id": asked.model,
        "base_url": asked.address.url,
        "num_prompts": len(outcomes),
        "request_rate": _rate(asked, rate),
        "max_concurrency": pace.num_slots,
        "goodput": asked.promises.words(),
        "workers": len(crew.told),
        "cancelled": crew.num_cancelled,
        "skipped": len(outcomes) - len(counted),
    }
    drawn = {metric.key: quantiles(metric, counted) for metric in DRAWN}
    rest = {
        "generator": health.json(),
        "warnings": warnings,
        **judged.json(asked.promises if has_promises else None),
        "distributions_ms": drawn,
        "over_time": [one.json(has_promises=has_promises) for one in slices(outcomes, asked.promises)],
        "meshserve_bench": FORMAT,
    }
    return Result(counted, outcomes, {**head, **summary, **rest}, warnings)


def _rate(asked: Asked, rate: float | None) -> float | str:
    """A trace has its own; otherwise as vLLM says that nothing holds requests back."""
    due_s = asked.plan.pace.due_s
    if rate is None and due_s and due_s[-1] > 0:
        return (len(due_s) - 1) / due_s[-1]
    return "inf" if rate is None or rate == float("inf") else rate


def _failures(outcomes: Sequence[Outcome]) -> list[str]:
    reasons = [one.reason for one in outcomes if not one.is_finished]
    return [f"{len(reasons)} of {len(outcomes)} requests failed; the first one: {reasons[0]}"] if reasons else []


def _lagging(lines: Sequence[str]) -> list[str]:
    if not lines:
        return []
    return [f"the load generator lagged: {'; '.join(lines)}. Give it a core of its own, or --workers"]


def _estimates(outcomes: Sequence[Outcome]) -> list[str]:
    num_estimated = sum(one.is_finished and not one.is_counted for one in outcomes)
    if not num_estimated:
        return []
    return [f"{num_estimated} answers came without usage: their tokens are counted by events, which may have several"]


def _lengths(outcomes: Sequence[Outcome]) -> list[str]:
    """Whether requests were what was asked for."""
    lines = []
    counted = [one for one in outcomes if one.is_finished and one.is_counted]
    for side in ("input", "output"):
        pairs = [(getattr(one, f"{side}_tokens"), getattr(one, f"asked_{side}_tokens")) for one in counted]
        other = [(got, wanted) for got, wanted in pairs if wanted and got != wanted]
        if other:
            got, wanted = (sum(values) / len(other) for values in zip(*other, strict=True))
            what = "prompts" if side == "input" else "answers"
            lines.append(
                f"{len(other)} {what} had other lengths than asked for: {got:.1f} tokens instead of {wanted:.1f}"
            )
    return lines


# --- files ------------------------------------------------------------------------------------------------------------


def write_result(path: Path, result: dict[str, Any]) -> None:
    """Raise `UserError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None


def write_all(folder: Path, result: Result) -> None:
    """``result.json``, ``requests.jsonl`` and ``report.html``. Raise `UserError`."""
    from bench.load.results.report import report_page, write

    write_result(folder / "result.json", result.json)
    with (folder / "requests.jsonl").open("wb") as file:
        for outcome in result.outcomes:
            file.write(msgspec.json.encode(outcome) + b"\n")
    write(folder / "report.html", report_page({"this run": result.json}))


def read_result(path: Path) -> dict[str, Any]:
    """Of this program or of ``vllm bench serve``. Raise `UserError`."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    if not isinstance(found, dict) or "request_throughput" not in found:
        raise UserError(f"{path}: no result of mesh bench or vllm bench serve: it has no request_throughput")
    return found
