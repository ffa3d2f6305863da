"""A training plan from its first proof to its last record; every rank runs this alike."""

import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from itertools import count
from math import isqrt
from typing import Any

import torch
import torch.distributed as dist

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.model.codec import to_json
from wirespeed.model.records import Choice
from wirespeed.model.training_records import LoadFigures, Training
from wirespeed.model.units import format_duration
from wirespeed.plan import Case, Plan, TrainCase, TrainPlan
from wirespeed.rank.place import Place, site_of
from wirespeed.rank.steps import Reporter, Tell, teller
from wirespeed.rank.time_limit import TimeLimit
from wirespeed.rank.training.close_look import LONGEST, Probed, probe, tell_trace, turns_at_least
from wirespeed.rank.training.failures import (
    CaseFull,
    FaultInjection,
    NoMemory,
    does_not_fit,
    memory_ran_out,
)
from wirespeed.rank.training.findings import trouble
from wirespeed.rank.training.prove import prove, rehearse
from wirespeed.rank.training.rounds import (
    Samples,
    efficiencies,
    figures,
    run_rounds,
    verdicts,
    yardstick_of,
)
from wirespeed.rank.training.space import fit, limit_bytes, resident_of_all, space, too_large
from wirespeed.rank.training.stage import BUILD_BOUND_S, Stage
from wirespeed.rank.training.step_forecast import (
    best_bucket,
    checked_advice,
    measure_link,
    predicted,
)
from wirespeed.reference.shape import peak_flops
from wirespeed.training.trace import Span

_OFTEN = 10
_SLOW_S, _PATIENCE = 3.0, 10
"""Where making a trainer and its first step took that long, a turn's steps may take so many times it."""
_SHARE_OF_BOUND = 0.5
"""Of the watchdog's bound: so long a rank without memory waits for the others before it says so."""


def run_training(
    place: Place, whole: Plan, plan: TrainPlan, heartbeat: Reporter, limit: TimeLimit
) -> None:
    """Prove, time, look closer, tell; collective over the whole world.

    whole: the plan that `plan` is a part of. NoMemory: memory ran out where a rank cannot go on.
    """
    from wirespeed.training.models.catalogue import model_named

    tell = teller(place, heartbeat)
    model = model_named(plan.model, **plan.model_options)
    stage = Stage(place, plan, model, whole.seed, FaultInjection(whole.faults, place.rank))
    stage.limit = limit
    stage.patience_s = _SHARE_OF_BOUND * whole.op_timeout_s
    _tell_choices(stage, tell)
    run = _Run(stage, plan, heartbeat, tell)
    try:
        run.all()
    except (NoMemory, RuntimeError, MemoryError, OSError) as error:
        if not isinstance(error, NoMemory) and not memory_ran_out(error):
            raise
        ended = error if isinstance(error, NoMemory) else stage.alone(error)
    else:
        return
    finally:
        stage.end()
    run.tell_the_end(ended)
    raise ended


class _Run:
    def __init__(self, stage: Stage, plan: TrainPlan, heartbeat: Reporter, tell: Tell) -> None:
        self._stage, self._plan, self._heartbeat, self._tell = stage, plan, heartbeat, tell
        self._taken: list[Samples] = []
        self._left_out: list[TrainCase] = []
        self._longest = 0.0
        self._closer = False
        """Whether the records hold more than the rounds tell."""
        self._peak = _peak(stage.place, plan.precision)
        self._records: list[Training] = []
        self._equal: dict[tuple[str, float | None], bool] = {}

    def all(self) -> None:
        """Everything that was asked for."""
        try:
            if self.rehearse():
                self.prove()
                self._stage.limit.restart()
                if self.time():
                    self.look_closer()
        finally:
            self._stage.close()
        self.fit()
        self.tell_figures()
        if self._plan.load:
            self.load()

    def tell_the_end(self, error: NoMemory) -> None:
        """The rank whose memory ran out tells what is known: rank 0 may wait for it in a collective."""
        if self._stage.place.rank != error.rank:
            return
        self._tell = self._heartbeat.record
        timed = [one for one in self._taken if one.turns]
        if timed and not self._closer:
            self._taken = timed
            self._records = self._figures()
        self.tell_figures()
        if case := self._stage.on:
            kept = "and the run ended there"
            self._tell(
                "trouble",
                does_not_fit(case, saw=error.reason, limit=None, rank=error.rank, kept=kept),
            )

    def rehearse(self) -> bool:
        """Only what fits is timed; of the rest the largest batch is looked for later.

        False where the very first steps give no finite loss.
        """
        from wirespeed.training.step import LossNotFinite

        for index, case in enumerate(self._plan.cases):
            self._step(index, len(self._plan.cases), f"first step of {case.label}", BUILD_BOUND_S)
            begin = time.monotonic()
            try:
                odd = rehearse(self._stage, case)
            except LossNotFinite as error:
                self._tell("trouble", trouble("not_finite", rank=error.ranks[0], error=error))
                return False
            self._took(time.monotonic() - begin)
            if odd is None:
                self._taken.append(Samples(case))
                continue
            self._tell("trouble", odd)
            if odd["id"] == "TRAIN-003":
                self._left_out.append(case)
        return True

    def _took(self, seconds: float) -> None:
        """A first step: the watchdog, and a rank without memory, wait for as long as such steps take."""
        self._longest = max(self._longest, seconds)
        if self._longest > _SLOW_S:
            self._stage.patience_s = max(self._stage.patience_s, 2 * self._longest)

    def prove(self) -> None:
        """Each strategy once, on the most ranks that it shall run on."""
        if not self._plan.prove:
            return
        fitting = [samples.case for samples in self._taken]
        most = max((case.ranks for case in fitting), default=0)
        cases = {(c.strategy, c.bucket_mb): c for c in fitting if c.ranks == most}
        for index, case in enumerate(cases.values()):
            self._step(index, len(cases), f"proving {case.label}", BUILD_BOUND_S)
            proof = prove(self._stage, case)
            if proof:
                self._equal[case.strategy, case.bucket_mb] = proof["equal"]
                self._tell("proof", proof)

    def time(self) -> bool:
        """Whether all went well; a loss that is not finite ends it, and what was timed is kept."""
        from wirespeed.training.step import LossNotFinite

        def progress(index: int, of: int, label: str) -> None:
            self._tell("progress", {"index": index, "of": of, "label": label})

        try:
            run_rounds(self._stage, self._taken, self._turn, progress, self._so_far, self._full)
        except LossNotFinite as error:
            self._tell("trouble", trouble("not_finite", rank=error.ranks[0], error=error))
            whole = min(len(one.turns) for one in self._taken if not one.full)
            self._taken = [replace(one, turns=one.turns[:whole]) for one in self._taken]
            self._keep_timed()
            return False
        self._keep_timed()
        return True

    def _keep_timed(self) -> None:
        self._taken = [one for one in self._taken if one.turns]
        self._records = self._figures()

    def _full(self, case: TrainCase, error: CaseFull) -> None:
        """Memory ran out on the way: what was timed stays, and the largest batch is looked for."""
        limit = limit_bytes(self._stage)
        kept = "and was left out from there on"
        self._tell("trouble", does_not_fit(case, saw=error.saw, limit=limit, kept=kept))
        self._left_out.append(case)

    def _turn(self, label: str) -> None:
        # A step may take longer than any collective: the watchdog waits as long as the first one took.
        self._stage.place.busy(_PATIENCE * self._longest if self._longest > _SLOW_S else None)
        self._heartbeat.enter(label)
        self._stage.faults.turn()

    def _so_far(self, rounds: int) -> None:
        """What is known by now, in case that the run breaks off; later figures take its place."""
        if self._stage.place.rank == 0 and (rounds < _OFTEN or rounds % _OFTEN == 0):
            self._records = self._figures()
            self.tell_figures()

    def _figures(self) -> list[Training]:
        place, model = self._stage.place, self._stage.model
        taken = [one for one in self._taken if one.turns]
        records = [
            figures(
                samples,
                yardstick_of(samples.case, taken),
                self._plan,
                model,
                nodes=len(set(place.hosts[: samples.case.ranks])),
                peak=self._peak,
            )
            for samples in taken
        ]
        records = efficiencies(verdicts(records, taken), taken)
        return [
            replace(one, equal=self._equal.get((one.strategy, one.bucket_mb))) for one in records
        ]

    def look_closer(self) -> None:
        """Communication time, the timeline, memory: of the comparison, not of each scaling point."""
        timelines = self._communication()
        self._closer = True
        self._foretell()
        if self._plan.trace:
            self._step(0, 1, "putting the timelines together")
            tell_trace(self._stage.place, timelines, self._tell)
        if self._plan.memory:
            self._stage.close()  # what is kept alive would be counted
            self._memory()

    def _communication(self) -> list[tuple[Span, ...]]:
        """Puts communication time into the records; this rank's last step of each case."""
        cases = [one.case for one in self._taken if one.case.kind == "compare" and not one.full]
        steps = count()
        least = turns_at_least(self._plan.rounds)

        def enter(case: TrainCase) -> None:
            index = next(steps)
            turns = max(least, index // len(cases) + 1)
            self._step(index, turns * len(cases), f"watching {case.label}")

        found = {one.case: one for one in probe(self._stage, cases, enter)}
        self._tell_missed(list(found.values()))
        for index, samples in enumerate(self._taken):
            one = found.get(samples.case)
            if one is None:
                continue
            if one.full is not None:
                self._full(one.case, one.full)
            if one.turns:
                spread, fraction = one.spread(), one.fraction()
                self._records[index] = replace(
                    self._records[index],
                    comm=spread.mean,
                    comm_spread=spread,
                    comm_fraction=fraction.mean,
                    comm_fraction_spread=fraction,
                )
        return [one.spans for one in found.values()]

    def _tell_missed(self, found: list[Probed]) -> None:
        """For what there was no time; the yardstick's communication is nothing anyway."""
        wanted = [
            one
            for one in found
            if one.full is None and (self._plan.trace or one.case.strategy != "none")
        ]
        whole_s = self._stage.limit.seconds
        times: dict[str, Any] = {
            "budget": f"{format_duration(LONGEST * self._plan.max_time_s)} for steps under the profiler"
            if whole_s is None
            else f"{whole_s:g} s of --max-time",
            "longer": longer(self._plan),
        }
        missed = [one.case.label for one in wanted if not one.turns]
        vague = [one.case.label for one in wanted if one.turns and not one.usable]
        if missed:
            names = ", ".join(missed)
            self._tell("trouble", trouble("not_watched", names=names, **times))
        if vague and self._plan.rounds is None:
            names = ", ".join(vague)
            self._tell("trouble", trouble("hardly_watched", names=names, **times))

    def _foretell(self) -> None:
        """Only where ranks were compared: the cost of a collective on the whole world is the base."""
        if not any(one.study == "compare" and one.ranks > 1 for one in self._records):
            return
        if self._stage.limit.skip("the cost model and its bucket size"):
            return
        self._step(0, 1, "measuring all_reduce for the cost model")
        stage = self._stage
        measured = measure_link(stage.place, stage.model.gradient_bytes, self._plan.max_time_s)
        for one in measured:
            self._tell("measurement", to_json(one))
        self._records, link = predicted(stage, self._records, measured)
        advice = best_bucket(stage, self._records, link)
        if advice is None:
            return
        self._tell("trouble", advice.told)
        if advice.pair is not None and not self._stage.limit.skip("the model's bucket size"):
            self._step(0, 1, f"timing {advice.pair[0].label}, the model's advice")
            self._tell("trouble", checked_advice(stage, *advice.pair))

    def _memory(self) -> None:
        if note := resident_of_all(self._stage):
            self._tell("trouble", note)
        for index, samples in enumerate(self._taken):
            if self._stage.limit.skip(f"memory of {samples.case.label}"):
                continue
            self._step(index, len(self._taken), f"memory of {samples.case.label}", BUILD_BOUND_S)
            used, foreseen = space(self._stage, samples.case)
            self._records[index] = replace(
                self._records[index], memory=used, memory_predicted=foreseen
            )

    def tell_figures(self) -> None:
        for one in self._records:
            self._tell("training", to_json(one))

    def fit(self) -> None:
        """The largest batch: of all strategies where that was asked, of what did not fit always."""
        for index, case in enumerate(self._left_out):
            if self._stage.limit.skip(f"largest batch of {case.label}"):
                continue
            self._step(index, len(self._left_out), f"largest batch of {case.label}", BUILD_BOUND_S)
            self._tell("trouble", too_large(case, fit(self._stage, case)))
        if not self._plan.fit:
            return
        for index, one in enumerate(self._records):
            case = self._taken[index].case
            if case.kind == "compare":
                if self._stage.limit.skip(f"largest batch of {case.label}"):
                    continue
                self._step(
                    index, len(self._records), f"largest batch of {case.label}", BUILD_BOUND_S
                )
                found = fit(self._stage, case)
                self._records[index] = replace(one, largest_samples=found.samples)
                if found.ended:
                    below = f", {found.too_many} do not" if found.too_many else ""
                    told = trouble(
                        "fit_ended",
                        case=case,
                        samples=found.samples,
                        below=below,
                        longer=longer(self._plan),
                    )
                    self._tell("trouble", told)

    def load(self) -> None:
        """Computing and sending side by side."""
        if self._stage.limit.skip("computing and sending side by side"):
            return
        self._step(0, 1, "computing and sending side by side", BUILD_BOUND_S)
        for group in under_load(self._stage.place):
            for one in group:
                self._tell("under_load", to_json(one))

    def _step(self, index: int, of: int, label: str, bound_s: float | None = None) -> None:
        self._tell("progress", {"index": index, "of": of, "label": label})
        self._stage.place.busy(bound_s)
        self._heartbeat.enter(label)


def longer(plan: TrainPlan) -> str:
    """Return a --max-time of which the rounds, that have half of it, get twice the time."""
    return f"{4 * plan.max_time_s:g}"


def _peak(place: Place, precision: str) -> float | None:
    """FLOP/s of this rank's device; only where every rank has the same."""
    if place.device.type != "cuda":
        return None
    kind = {"bf16": "bfloat16", "fp16": "float16"}.get(precision, "float32")
    if kind == "float32" and torch.backends.cuda.matmul.allow_tf32:
        kind = "tf32"
    names = place.control.objects(torch.cuda.get_device_name(place.device), str)
    found = peak_flops(names[0], kind) if len(set(names)) == 1 else None
    return found.flops_per_s if found else None


def _tell_choices(stage: Stage, tell: Tell) -> None:
    model, kept = stage.model, "yes" if stage.keeps else "no"
    why = "all trainers fit in the free memory" if stage.keeps else "they do not fit at once"
    flops = f", {model.flops_per_sample:.4g} FLOPs a sample" if model.flops_per_sample else ""
    about = f"{model.parameters:,} parameters, {model.gradient_bytes:,} bytes of gradients{flops}"
    choices = [Choice("model", model.name, about), Choice("keep trainers", kept, why)]
    tell("choices", {"choices": [asdict(one) for one in choices]})


# Computing beside sending, two kinds of groups at once, and uneven all_to_all.

_GEMM_CPU, _GEMM_GPU = 256, 4096
_SENT = {"cpu": 4 << 20, "cuda": 256 << 20}
_TOKENS, _WIDTH = 4096, 256
_SHARES = (0.5, 0.8)
"""Of the tokens, for the favourite expert; even would be 1/ranks."""


def under_load(place: Place) -> Iterator[list[LoadFigures]]:
    """Group after group of figures; collective over the world."""
    from wirespeed.rank.under_load import (
        all_reduce,
        beside_each_other,
        gemm,
        skewed_all_to_all,
        to_experts,
    )

    control, whole = dist.new_group(backend="gloo"), dist.new_group()
    size = _SENT[place.device.type]
    product = gemm(place.device, _GEMM_CPU if place.device.type == "cpu" else _GEMM_GPU)
    sent = all_reduce(f"all_reduce {size >> 20} MiB", size, whole, place.device)
    beside = partial(beside_each_other, control=control, device=place.device, tick=place.tick)
    yield beside([product, sent])
    if cuts := _two_cuts(place.world_size):
        rows, columns = ([list(group) for group in cut] for cut in cuts)
        mine = [_own(cut, place.rank) for cut in (rows, columns)]
        names = (f"all_reduce tensor parallel, {len(rows[0])} ranks", "all_reduce data parallel")
        both = [
            all_reduce(name, size, group, place.device)
            for name, group in zip(names, mine, strict=True)
        ]
        yield beside(both)
    if place.world_size > 1:
        shares = [share for share in _SHARES if share > 1 / place.world_size]
        site = site_of(place, Case(op="all_to_all_v"), CATALOGUE["all_to_all_v"], 0)
        every = (1 / place.world_size, *shares)
        experts = {share: to_experts(site, _TOKENS, _WIDTH, share) for share in every}
        yield skewed_all_to_all(place, experts, control=control, device=place.device)


def _two_cuts(ranks: int) -> tuple[list[range], list[range]] | None:
    """The world as a grid, neighbours in a row: its rows and its columns; None: no grid."""
    width = next((w for w in range(isqrt(ranks), 1, -1) if ranks % w == 0), 0)
    if not width:
        return None
    rows = [range(start, start + width) for start in range(0, ranks, width)]
    return rows, [range(column, ranks, width) for column in range(width)]


def _own(cut: list[list[int]], rank: int) -> dist.ProcessGroup:
    found: dist.ProcessGroup | None = None
    for members in cut:
        group = dist.new_group(members)
        if rank in members:
            found = group
    if found is None:
        raise ValueError(f"rank {rank} is in no group of {cut}")
    return found
