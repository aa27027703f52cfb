"""From the arguments of ``mesh bench`` to what its client processes do. What does not fit together is a `UserError`."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import msgspec

from bench.load.arguments import NUM_INPUT, NUM_OUTPUT, NUM_REQUESTS, NUM_SLOTS, SEEDS_APART
from bench.load.client.fetch import served_models
from bench.load.client.http import Address, HttpClient
from bench.load.generator.wire import Assignment, Pace, Shape
from bench.load.prompts.planning import Extent, Lengths, Plan, shape_of, with_models
from bench.load.prompts.prompting import Prompting, prompting
from bench.load.results.goodput import Promises, parse_promises
from mesh.cli.api_key import bearer
from mesh.errors import UserError
from simulation.loads.arrival_processes import Arrivals, Process
from simulation.loads.closed_loop import POOL, asked_requests
from simulation.loads.described.description import LoadDescription, read_description
from simulation.loads.described.making import described_requests
from simulation.loads.mix import Mix
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import at_rate, load_lengths, load_trace, scaled


@dataclass(frozen=True, slots=True)
class Asked:
    """A run that is ready to begin. ``mix`` has one model at least."""

    address: Address
    headers: dict[str, str]
    prompting: Prompting
    mix: Mix
    plan: Plan
    promises: Promises
    timeout_s: float
    num_workers: int
    sends_promises: bool
    keeps_text: bool = False

    @property
    def model(self) -> str:
        return ", ".join(self.mix.services)

    def assignments(self) -> list[Assignment]:
        return self._assignments(self.plan, self.prompting)

    def with_other_prompts(self, number: int) -> "Asked":
        """Return the same with prompts of the same lengths, which no server has in its cache; 0 returns it as it is."""
        recipe = self.prompting.recipe
        recipe = msgspec.structs.replace(recipe, seed=recipe.seed + SEEDS_APART * number)
        return replace(self, prompting=replace(self.prompting, recipe=recipe))

    def warm_up(self, num_requests: int) -> list[Assignment]:
        """Some of its requests one by one, with other prompts."""
        recipe = msgspec.structs.replace(self.prompting.recipe, seed=-1 - self.prompting.recipe.seed)
        shapes = (self.plan.shapes * num_requests)[:num_requests]
        shapes = tuple(msgspec.structs.replace(shape, think_s=0.0, then=()) for shape in shapes)
        return self._assignments(Plan(shapes, Pace(num_slots=1)), replace(self.prompting, recipe=recipe))

    def _assignments(self, plan: Plan, prompts: Prompting) -> list[Assignment]:
        count = plan.num_parts(self.num_workers)
        parts = [plan.part(index, count) for index in range(count)]
        return [
            Assignment(
                self.address,
                self.headers,
                prompts.recipe,
                tuple(self._promised(shape) for shape in part.shapes),
                part.pace,
                self.timeout_s,
                first=index,
                step=count,
                most_turns=plan.most_turns,
                keeps_text=self.keeps_text,
                sends_promises=self.sends_promises,
            )
            for index, part in enumerate(parts)
        ]

    def _promised(self, shape: Shape) -> Shape:
        """With the promises that are sent: its own, or those of all if they are to be sent."""
        if not self.sends_promises:
            return shape
        promise = self.promises.common.override(shape.promise).override(self.promises.services.get(shape.model))
        return msgspec.structs.replace(shape, promise=promise, then=tuple(self._promised(turn) for turn in shape.then))


def runs_of(options: argparse.Namespace) -> dict[str, argparse.Namespace]:
    """What each run is asked for, by its name; the only one needs none."""
    numbers = options.concurrency or [None]
    names = [""] if len(numbers) == 1 else [f"{number}-clients" for number in numbers]
    runs = (argparse.Namespace(**(vars(options) | {"concurrency": number})) for number in numbers)
    return dict(zip(names, runs, strict=True))


async def asked(options: argparse.Namespace) -> Asked:
    """All is checked before anything is sent but questions. Raise `UserError`."""
    check(options)
    promises, load = _promises(options), load_of(options)
    address = Address.parse(options.url, is_verified=not options.insecure)
    headers = bearer(options.api_key_file) | dict(options.header)
    client = HttpClient(address, headers)
    try:
        mix = await _mix(options, client, address.url)
        prompts = await prompting(options, client, address.url, mix.services[0])
    finally:
        await client.close()
    plan = make_plan(options, mix, prompts, load)
    _check_promised_services(promises, plan)
    return Asked(
        address,
        headers,
        prompts,
        mix,
        plan,
        promises,
        options.timeout,
        options.workers,
        options.send_slo or any(shape.promise for shape in plan.shapes),
    )


# --- what is asked together -------------------------------------------------------------------------------------------

CONFLICTS = (
    ("trace", "lengths"),
    ("trace", "chats"),
    ("chats", "lengths"),
    ("chats", "text"),
    ("trace", "input_tokens"),
    ("trace", "output_tokens"),
    ("lengths", "input_tokens"),
    ("lengths", "output_tokens"),
    ("chats", "input_tokens"),
    ("chats", "prefix_tokens"),
    ("trace", "prefix_tokens"),
    ("trace", "arrivals"),
    ("mix", "model"),
    ("speed", "rate"),
    ("think", "rate"),
    ("think", "trace"),
)
NEEDS = (("speed", "trace"), ("arrivals", "rate"), ("cv", "arrivals"), ("prefixes", "prefix_tokens"))


ALL_IN_FILE = (
    "think", "trace", "requests", "duration", "arrivals", "lengths", "chats", "input_tokens", "output_tokens",
    "prefix_tokens",
)  # fmt: skip


def check(options: argparse.Namespace) -> None:
    given = {name for name, value in vars(options).items() if value is not None}
    for name in ALL_IN_FILE if options.load is not None else ():
        if name in given:
            raise UserError(f"{_option(name)} and --load: the file says it all; leave the option out")
    for one, other in CONFLICTS:
        if one in given and other in given:
            raise UserError(f"{_option(one)} and {_option(other)}: give one of them")
    for one, needed in NEEDS:
        if one in given and needed not in given:
            raise UserError(f"{_option(one)}: is for {_option(needed)}; give that, too, or leave it out")
    if options.prompt_as == "ids" and (options.chats or options.api == "chat"):
        raise UserError("--prompt-as ids: is for completions; chats are texts")
    if options.cv is not None and options.arrivals != "gamma":
        raise UserError("--cv: is of gamma's gaps; give --arrivals gamma, too")
    if options.skip is not None and options.duration is not None and options.skip >= options.duration:
        raise UserError(f"--skip: {options.skip:g} s is the whole run; use less than --duration {options.duration:g}")
    if options.rate == float("inf") and (options.duration or options.trace):
        other = "--duration" if options.duration else "--trace"
        raise UserError(f"--rate inf: sends all at once; leave {other} out")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _promises(options: argparse.Namespace) -> Promises:
    try:
        promises = parse_promises(options.goodput or ())
    except ValueError as error:
        raise UserError(f"--goodput: {error}") from None
    if options.send_slo and promises.is_empty:
        raise UserError("--send-slo: sends what --goodput promises; give that, too")
    return promises


def _check_promised_services(promises: Promises, plan: Plan) -> None:
    models = sorted({shape.model for shape in plan.shapes})
    for service in promises.services:
        if service not in models:
            raise UserError(f"--goodput: {service}: no request asks for it; they ask for {', '.join(models)}")


async def _mix(options: argparse.Namespace, client: HttpClient, url: str) -> Mix:
    """The models that are asked for."""
    served = await served_models(client, url)
    wanted: Mix | None = options.mix or (Mix.even([options.model]) if options.model else None)
    if wanted is None:
        return Mix.even([_only(served, url)])
    option = "--mix" if options.mix else "--model"
    for name in wanted.services:
        if served is not None and name not in served:
            raise UserError(f"{option}: {url} has no model {name!r}; it has {', '.join(served) or 'none'}")
    return wanted


def _only(served: dict[str, str] | None, url: str) -> str:
    if served is None:
        raise UserError(f"{url} does not list its models; name one with --model")
    if len(set(served.values())) != 1:
        names = ", ".join(served) or "none"
        raise UserError(f"{url} has several models, or none; choose with --model or --mix from: {names}")
    return next(iter(served))


# --- the plan ---------------------------------------------------------------------------------------------------------


def make_plan(options: argparse.Namespace, mix: Mix, prompts: Prompting, load: LoadDescription | None = None) -> Plan:
    """Make the plan of the ``load``, or of what options say. Raise `UserError` if nothing would be sent."""
    times = Random(f"{options.seed}/times")
    extent = Extent(options.requests, options.duration)
    if load is not None:
        return _described(load, options.seed, mix)
    if options.trace is not None:
        return _traced(options, extent, mix)
    if options.requests is None and options.duration is None:
        extent = Extent(NUM_REQUESTS)
    due_s = extent.times(_arrivals(options), times) if options.rate is not None else None
    if due_s == []:
        raise UserError(f"--duration: at {options.rate:g} requests a second none comes within {options.duration:g} s")
    number = len(due_s) if due_s is not None else extent.num_requests or POOL
    if due_s is None and options.requests is not None and options.duration is not None:
        raise UserError("--requests and --duration: a closed loop ends by one of them; give one")
    shapes = _shapes(options, number, mix, prompts)
    slots = options.concurrency or (None if due_s is not None else NUM_SLOTS)
    pace = Pace(None if due_s is None else tuple(due_s), slots, options.duration)
    return Plan(tuple(shapes), pace, is_stationary=options.rate != float("inf"))


def load_of(options: argparse.Namespace) -> LoadDescription | None:
    """Return what the file of ``--load`` describes, as much of it as is asked for."""
    if options.load is None:
        return None
    load = read_description(options.load)
    if options.rate is not None and options.concurrency is not None:
        raise UserError("--rate and --concurrency: with --load, one of them, as the file is an open or a closed loop")
    if options.rate == float("inf"):
        raise UserError("--rate: all at once is no rate of --load; give requests a second")
    if options.concurrency is not None:
        return load.with_clients(options.concurrency)
    return load if options.rate is None else load.at_rate(options.rate)


def _described(load: LoadDescription, seed: int, mix: Mix) -> Plan:
    requests = described_requests(load, seed, mix)
    if not requests:
        raise UserError(f"--load: {load.path}: no request comes; give a longer duration_s or higher rates")
    clients, duration_s = load.table.clients, load.table.duration_s
    if clients is not None:
        pace = Pace(None, clients.count, duration_s)
    else:
        pace = Pace(tuple(request.at_s for request in requests), None, duration_s)
    shapes = tuple(shape_of(request, request.service or "") for request in requests)
    arrivals = load.table.arrivals
    return Plan(shapes, pace, is_stationary=load.is_stationary, rate=None if arrivals is None else arrivals.rate)


def _arrivals(options: argparse.Namespace) -> Arrivals | None:
    if options.rate == float("inf"):
        return None
    return Arrivals(options.rate, Process(options.arrivals or "poisson"), options.cv or 2.0)


def _traced(options: argparse.Namespace, extent: Extent, mix: Mix) -> Plan:
    requests = load_trace(options.trace, Random(f"{options.seed}/spread"))
    requests = at_rate(requests, options.rate) if options.rate else scaled(requests, options.speed or 1.0)
    requests = extent.cut(requests)
    if options.mix is not None:
        requests = list(mix.assign(requests, Random(f"{options.seed}/mix")))
    if options.model is not None:
        requests = [request.asking(options.model) for request in requests]
    shapes = tuple(shape_of(one, one.service or "") for one in with_models(requests, mix.services[0]))
    pace = Pace(tuple(request.at_s for request in requests), options.concurrency, None)
    return Plan(shapes, pace, is_stationary=False)


def _shapes(options: argparse.Namespace, number: int, mix: Mix, prompts: Prompting) -> Sequence[Shape]:
    def draw(random: Random) -> Sequence[TraceRequest]:
        if options.chats is not None:
            return [TraceRequest(0.0, 0, _asked_output(options, prompts, index, random)) for index in range(number)]
        if options.lengths is not None:
            return random.choices(load_lengths(options.lengths), k=number)
        return Lengths(options.input_tokens or NUM_INPUT, options.output_tokens or NUM_OUTPUT).draw(number, random)

    asked = asked_requests(draw, options.think or 0.0, mix, options.seed)
    shapes = [shape_of(one, one.service or "") for one in asked]
    if options.chats is None:
        return shapes
    count = len(prompts.recipe.chats)
    return [msgspec.structs.replace(shape, chat=index % count) for index, shape in enumerate(shapes)]


def _asked_output(options: argparse.Namespace, prompts: Prompting, index: int, random: Random) -> int:
    own = prompts.output_tokens[index % len(prompts.output_tokens)]
    return own if own and options.output_tokens is None else random.randint(*(options.output_tokens or NUM_OUTPUT))
