"""How well gateways foresee the length of answers: on traces, each predicted from those that had ended before it.

    python -m bench.gateway.length_prediction TRACE ... [--limit 4096] [--cut 0.2]

An answer counts as seen once the 64 requests after it have arrived, for it takes a while. Predictors: ours, and the
mean of all answers until then. ``bias`` is that of the predicted tokens of all answers, as what is packed together
shares its errors; ``error``: the mean of single ones; both over the mean length. ``within`` is the share of answers
that were not longer than the predicted quantile: 50 and 90 % if it is right. With ``--cut``, so many clients leave
before their answer is over, at a moment that has nothing to do with it, and predictors see no more than they did.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bench.harness.arguments import script_parser
from bench.harness.tables import make_console, make_table
from mesh.wire.requests import FinishReason, RequestSpec, Sampling
from router.history.lengths import AskedLength, LengthPredictor, Prediction
from simulation.loads.rows import TraceError
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import load_lengths

SERVICE = "chat"
IN_FLIGHT = 64  # requests that arrive before an answer is over
WARM_UP = 500  # answers that are predicted and not counted: the cold start is stated, not measured


@dataclass(frozen=True, slots=True)
class Case:
    """One answer and what was predicted of it. ``global_mean``: of all whole answers until then."""

    num_tokens: int
    prediction: Prediction
    global_mean: float


def cases(lengths: Sequence[TraceRequest], limit: int, cut: float, random: Random) -> Iterator[Case]:
    """In the order of the trace, once the predictor is warm."""
    predictor = LengthPredictor(lambda _: AskedLength(limit, is_exact=False))
    flying: deque[tuple[RequestSpec, Prediction, int, bool]] = deque()
    mean = sum(one.num_output for one in lengths) / len(lengths)
    num_whole = sum_whole = 0
    for number, request in enumerate(lengths):
        num_tokens = min(request.num_output, limit)
        spec = RequestSpec("r", "bench", SERVICE, [0] * request.num_input, Sampling(max_tokens=limit, seed=0), 1.0, 0.1)
        prediction = predictor.predict(spec)
        if number >= WARM_UP:
            yield Case(num_tokens, prediction, sum_whole / max(1, num_whole))
        left_at = round(random.expovariate(1 / mean)) if random.random() < cut else limit
        flying.append((spec, prediction, min(num_tokens, left_at), num_tokens <= left_at))
        if len(flying) > IN_FLIGHT:
            spec, prediction, num_tokens, is_whole = flying.popleft()
            finish = FinishReason.LENGTH if num_tokens == limit else FinishReason.STOP
            predictor.ended(spec, prediction, num_tokens, finish if is_whole else None)
            if is_whole:
                num_whole, sum_whole = num_whole + 1, sum_whole + num_tokens


def bias_and_error(pairs: Sequence[tuple[float, int]]) -> str:
    """Of predictions and what came."""
    total = sum(actual for _, actual in pairs)
    bias = sum(guess for guess, _ in pairs) / total - 1
    return f"{bias:+.1%} / {sum(abs(guess - actual) for guess, actual in pairs) / total:.1%}"


def row(name: str, found: Sequence[Case]) -> list[str]:
    within_p50 = sum(case.num_tokens <= case.prediction.p50 for case in found) / len(found)
    within_p90 = sum(case.num_tokens <= case.prediction.p90 for case in found) / len(found)
    return [
        name,
        f"{len(found)}",
        f"{sum(case.num_tokens for case in found) / len(found):.0f}",
        bias_and_error([(float(case.prediction.steps[0]), case.num_tokens) for case in found]),
        bias_and_error([(case.global_mean, case.num_tokens) for case in found]),
        f"{within_p50:.1%}",
        f"{within_p90:.1%}",
    ]


def main() -> None:
    parser = script_parser("bench.gateway.length_prediction", __doc__)
    parser.add_argument("traces", type=Path, nargs="+", metavar="TRACE", help="any that mesh simulate reads")
    parser.add_argument("--limit", type=int, default=4096, metavar="TOKENS", help="max_tokens of all (default: 4096)")
    parser.add_argument("--cut", type=float, default=0.0, metavar="SHARE", help="of clients that leave (default: 0)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    headings = ("answers", "mean", "ours: bias / error", "mean of all: bias / error", "within p50", "within p90")
    table = make_table("", ("trace",), headings)
    for path in options.traces:
        try:
            lengths = load_lengths(path)
        except TraceError as error:
            parser.error(str(error))
        found = list(cases(lengths, options.limit, options.cut, Random(options.seed)))
        if not found:
            parser.error(f"{path}: {len(lengths)} requests; more than {WARM_UP} are needed")
        table.add_row(*row(path.name, found))
    make_console(160).print(table)


if __name__ == "__main__":
    main()
