"""Requests' stories for people: what was seen, decided, and came of it, in milliseconds from a request's arrival."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from router.cli.policy_tables import make_console
from router.cli.request_ids import short_id
from router.history.explain import EngineSeen, Event, ExplainedDecision, Explanation, Explanations
from router.history.timeline import (
    Ended,
    EngineAccepted,
    EngineHolds,
    EngineRefused,
    FirstToken,
    Interrupted,
    OwnerChanged,
    TokensResumed,
)

MAX_ENGINES = 12  # shown of those that a decision saw
SEAMS = {
    "ids": "it got the ids of all tokens",
    "text": "it got the text so far",
    "message": "it got the text so far as a message",
    "replay": "it made the answer anew, which began as before",
}
VERDICTS = {"wait": "wait: ", "reject": "reject: ", "give_up": "give up: "}
STYLES = {"finished": "green", "failed": "red", "rejected": "red", "cancelled": "yellow"}


def print_stories(answer: Explanations) -> None:
    make_console().print(stories(answer))


def stories(answer: Explanations) -> Group:
    """The newest call that was meant, choice by choice; older ones, which had the same id, in one line each."""
    calls = [list(choices) for _, choices in groupby(answer.requests, key=lambda one: one.id.rpartition("-")[0])]
    parts: list[RenderableType] = [_story(answer.gateway, explanation) for explanation in reversed(calls[0])]
    if len(calls) > 1:
        parts.append(f"{_count(len(calls) - 1, 'older call')} had this id; ask for one by its own:")
        parts.append(_listing(one for choices in calls[1:] for one in choices))
    return Group(*parts)


def print_list(answers: Sequence[Explanations], count: int) -> None:
    """The newest requests of all gateways, newest first."""
    console = make_console()
    requests = sorted((one for answer in answers for one in answer.requests), key=lambda one: one.age_s)
    if requests:
        console.print(_listing(requests[:count]))
    else:
        console.print("no requests since the gateways started")


# --- one line each ----------------------------------------------------------------------------------------------------


def _listing(requests: Iterable[Explanation]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("arrived")
    table.add_column("request", overflow="fold", min_width=20)
    for name in ("outcome", "where"):
        table.add_column(name)
    for name in ("tokens", "TTFT", "TPOT"):
        table.add_column(name, justify="right")
    for one in requests:
        table.add_row(_clock(one.age_s), short_id(one.id), _outcome(one), _where(one), _tokens(one), *_latencies(one))
    return table


def _outcome(one: Explanation) -> Text:
    if one.end is None:
        return Text("running" if one.first_token else "waiting", "cyan")
    return Text(str(one.end.outcome), STYLES[one.end.outcome])


def _where(one: Explanation) -> str:
    if (sent := one.dispatch) is None:
        return "-"
    return " > ".join(dict.fromkeys((str(sent.prefill_engine), str(sent.decode_engine))))


def _tokens(one: Explanation) -> str:
    return f"{one.num_prompt_tokens}+{one.end.num_tokens if one.end else '?'}"


def _latencies(one: Explanation) -> tuple[Text, Text]:
    ttft_s = one.first_token.at_s if one.first_token else None
    tpot_s = one.end.tpot_s if one.end else None
    return _against(ttft_s, one.slo_ttft_s), _against(tpot_s, one.slo_tpot_s)


def _against(seconds: float | None, promise_s: float) -> Text:
    return Text("-") if seconds is None else Text(_ms(seconds), "red" if seconds > promise_s else "")


# --- the whole story --------------------------------------------------------------------------------------------------


def _story(gateway: str, one: Explanation) -> RenderableType:
    prompt = f"{one.num_prompt_tokens} prompt tokens{' (estimated)' if one.is_estimated else ''}"
    parts: list[RenderableType] = [
        Text.assemble("request ", (one.id, "bold")),
        Text(
            f"{one.service}, {prompt}, at most {one.max_tokens} new ones, "
            f"priority {one.priority}; promised TTFT {_ms(one.slo_ttft_s)}, TPOT {_ms(one.slo_tpot_s)}"
        ),
        _line(0.0, Text(f"arrived at {gateway} at {_clock(one.age_s)}")),
    ]
    if one.trace_id:
        parts.insert(1, Text(f"trace {one.trace_id}"))
    if one.admitted_s:
        parts.append(_line(one.admitted_s, Text("read and tokenised")))
    if one.num_forgotten:
        parts.append(Text(f"{'...':>12}  {one.num_forgotten} events are not kept"))
    for event in one.events:
        parts.append(_line(event.at_s, _tell(event, one)))
        if isinstance(event, ExplainedDecision):
            parts.append(_seen(event))
    if one.end is None:
        parts.append(Text(f"{'':>12}  not ended yet", "cyan"))
    return Group(*parts, Text(""))


def _line(at_s: float, text: Text) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=12, justify="right")
    grid.add_column()
    grid.add_row(Text(_ms(at_s), "cyan"), text)
    return grid


def _tell(event: Event, one: Explanation) -> Text:
    match event:
        case ExplainedDecision():
            return _tell_decision(event)
        case FirstToken():
            return _tell_first_token(event, one)
        case Ended():
            return _tell_end(event, one)
        case _:
            return _tell_step(event)


def _tell_step(
    event: EngineAccepted | EngineRefused | EngineHolds | Interrupted | OwnerChanged | TokensResumed,
) -> Text:
    match event:
        case EngineAccepted(engine=engine):
            return Text(f"{engine} accepted it")
        case EngineRefused(engine=engine, code=code, reason=reason):
            return Text(f"{engine} refused it: {code}: {reason}", "yellow")
        case EngineHolds(engine=engine, num_ahead=num_ahead):
            where = "computes it" if num_ahead is None else f"has it, {_count(num_ahead, 'request')} before it"
            return Text(f"{engine} {where}")
        case Interrupted(reason=reason, num_tokens=num_tokens):
            return Text(f"interrupted after {_count(num_tokens, 'token')}: {reason}; it waits again", "yellow")
        case OwnerChanged(engine=engine):
            return Text(f"{engine} has it from here on")
        case TokensResumed(at_s=at_s, engine=engine, since_s=since_s, seam=seam):
            how = f" ({SEAMS.get(seam, seam)})" if seam else ""
            return Text(f"tokens go on, from {engine}, {_ms(at_s - since_s)} after the last ones before{how}")


def _tell_decision(decision: ExplainedDecision) -> Text:
    policy = (f"{decision.policy}  ", "dim")
    if decision.verdict != "dispatch":
        return Text.assemble(policy, (VERDICTS[decision.verdict] + decision.reason, "yellow"))
    again = f", attempt {decision.attempt + 1}" if decision.attempt else ""
    stays = decision.prefill_engine == decision.decode_engine
    path = f"sent to {decision.prefill_engine}" + (" and stays there" if stays else f", then {decision.decode_engine}")
    if decision.prefix_at is not None:
        path += f", which may pull {_count(decision.prefix_at.num_tokens, 'token')} from {decision.prefix_at.engine}"
    predicted = (
        "" if decision.predicted_ttft_s is None else f"; first token predicted in {_ms(decision.predicted_ttft_s)}"
    )
    return Text.assemble(policy, (decision.reason, "bold"), f"{again}: {path}{predicted}")


def _tell_first_token(event: FirstToken, one: Explanation) -> Text:
    error = f" ({event.since_dispatch_s / event.predicted_s - 1:+.0%})" if event.predicted_s > 0 else ""
    return Text.assemble(
        f"first token, from {event.engine}{_had(event, one)}: {_ms(event.since_dispatch_s)} after dispatch, "
        f"predicted {_ms(event.predicted_s)}{error}; ",
        _promise("TTFT", event.at_s, one.slo_ttft_s),
    )


def _had(event: FirstToken, one: Explanation) -> str:
    """How much of the prompt was not computed, where any was, or was to be loaded or pulled."""
    dispatch, brought = one.dispatch, event.brought
    if not event.num_cached and brought is None and (dispatch is None or dispatch.prefix_at is None):
        return ""
    num_own = event.num_cached if brought is None else max(0, event.num_cached - brought.num_tokens)
    had = f", which had {num_own} of {_count(one.num_prompt_tokens, 'prompt token')}"
    if brought is None:
        return had
    num_brought = event.num_cached - num_own
    if brought.peer is not None:
        return f"{had} and pulled {num_brought} from {brought.peer} in {_ms(brought.waited_s)}"
    origin = f" from {' and '.join(brought.tiers)}" if brought.tiers else ""
    return f"{had} and loaded {num_brought}{origin} in {_ms(brought.waited_s)}"


def _tell_end(event: Ended, one: Explanation) -> Text:
    text = Text.assemble(
        (str(event.outcome), STYLES[event.outcome]), f" ({event.reason}), {_count(event.num_tokens, 'token')}"
    )
    if event.tpot_s is not None:
        text.append("; ").append_text(_promise("TPOT", event.tpot_s, one.slo_tpot_s))
    return text


def _promise(name: str, seconds: float, promise_s: float) -> Text:
    is_kept = seconds <= promise_s
    return Text(
        f"{name} {_ms(seconds)} of {_ms(promise_s)}, {'kept' if is_kept else 'broken'}", "" if is_kept else "red"
    )


def _seen(decision: ExplainedDecision) -> RenderableType:
    """The engines that were seen, the chosen ones first."""
    chosen = (decision.prefill_engine, decision.decode_engine)
    order = {decision.decode_engine: -1, decision.prefill_engine: -2}
    engines = sorted(decision.engines, key=lambda engine: (order.get(engine.id, 0), engine.backlog_s, engine.id))
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for name in ("", "engine", "role"):
        table.add_column(name, no_wrap=True)
    for name in ("queue", "backlog", "prefill", "slack", "KV", "tokens", "age"):
        table.add_column(name, justify="right", no_wrap=True)
    for engine in engines[:MAX_ENGINES]:
        is_chosen = engine.id in chosen
        table.add_row(">" if is_chosen else "", *_engine_row(engine), style="" if is_chosen else "dim")
    notes = [Text(note, "dim") for note in _notes(decision, len(engines))]
    return Padding(Group(*([table] if engines else []), *notes), (0, 0, 0, 1))


def _engine_row(engine: EngineSeen) -> tuple[str, ...]:
    return (
        engine.id,
        str(engine.role),
        str(engine.num_prefills),
        _ms(engine.backlog_s),
        _ms(engine.prefill_s),
        "-" if engine.slack_s is None else _ms(engine.slack_s),
        f"{engine.watermark:.0%}",
        str(engine.num_tokens),
        _ms(engine.status_age_s),
    )


def _notes(decision: ExplainedDecision, num_kept: int) -> list[str]:
    notes = []
    if num_kept > MAX_ENGINES:
        notes.append(f"and {num_kept - MAX_ENGINES} more engines; --json has all")
    if not num_kept and decision.num_engines:
        notes.append(f"what it saw of {decision.num_engines} engines is not kept any more")
    elif num_kept < decision.num_engines:
        notes.append(
            f"{num_kept} of the {decision.num_engines} engines in view; the others are not kept, or could not serve it"
        )
    if decision.avoided:
        notes.append(f"avoided for a moment: {', '.join(decision.avoided)}")
    if decision.broken:
        notes.append(f"circuit breaker open: {', '.join(decision.broken)}")
    return notes


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _ms(seconds: float) -> str:
    ms = seconds * 1000
    return f"{ms:.1f} ms" if abs(ms) < 100 else f"{ms:.0f} ms"


def _clock(age_s: float) -> str:
    then = datetime.now().astimezone() - timedelta(seconds=age_s)
    return f"{then:%H:%M:%S}" if age_s < 86_400 else f"{then:%m-%d %H:%M}"
