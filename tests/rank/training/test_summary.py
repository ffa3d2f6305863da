"""From made-up steps to figures: exposed communication, verdicts, the slowest rank, scaling."""

import random

import pytest

torch = pytest.importorskip("torch", reason="Requires: torch")

from wirespeed.model.training_records import Training  # noqa: E402
from wirespeed.plan import TrainCase, TrainPlan  # noqa: E402
from wirespeed.rank.training.rounds import (  # noqa: E402  # noqa: E402
    PARTS,
    Samples,
    efficiencies,
    figures,
    verdicts,
    yardstick_of,
)
from wirespeed.training.contract import ModelSpec  # noqa: E402


def never(*_: object) -> object:
    raise RuntimeError("not for this test")


MODEL = ModelSpec(
    name="toy",
    build=never,  # type: ignore[arg-type]
    batch=never,  # type: ignore[arg-type]
    loss=never,  # type: ignore[arg-type]
    parameters=1000,
    gradient_bytes=4000,
    tokens_per_sample=10,
    flops_per_sample=2e6,
)


def plan_of(*cases: TrainCase) -> TrainPlan:
    return TrainPlan(model="toy", model_options={}, cases=cases)


def case(strategy: str, ranks: int = 2, samples: int = 8, kind: str = "compare") -> TrainCase:
    return TrainCase(strategy=strategy, ranks=ranks, samples=samples, kind=kind)  # type: ignore[arg-type]


def steps(
    one: TrainCase, seconds: float, *, rounds: int = 10, noise: float = 0.0, slow: float = 1.0
) -> Samples:
    """`slow`: how much longer the last rank takes. The parts add up to the step."""
    source = random.Random(one.strategy)
    turns = []
    for _ in range(rounds):
        turn = torch.zeros(one.ranks, 3, len(PARTS))
        for rank in range(one.ranks):
            for step in range(3):
                whole = seconds * source.lognormvariate(0, noise)
                whole *= slow if rank == one.ranks - 1 else 1
                turn[rank, step] = torch.tensor(
                    [whole, 0.0, whole / 4, whole / 2, whole / 8, whole / 8]
                )
        turns.append(turn)
    return Samples(one, turns)


def told(*taken: Samples, peak: float | None = None) -> list[Training]:
    plan = plan_of(*(one.case for one in taken))
    records = [
        figures(one, yardstick_of(one.case, taken), plan, MODEL, nodes=1, peak=peak)
        for one in taken
    ]
    return efficiencies(verdicts(records, taken), taken)


def test_exposed_communication_is_what_the_step_takes_beyond_the_yardstick() -> None:
    none, naive = told(steps(case("none"), 0.1), steps(case("naive"), 0.15))
    assert none.exposed is None
    assert none.verdict == "yardstick"
    assert naive.exposed is not None
    assert naive.exposed.value == pytest.approx(0.05)
    assert naive.exposed_fraction == pytest.approx(1 / 3)
    assert naive.exposed.low <= naive.exposed.value <= naive.exposed.high


def test_the_slowest_rank_makes_the_step() -> None:
    (one,) = told(steps(case("naive"), 0.1, slow=1.5))
    assert one.step.mean == pytest.approx(0.15)
    assert one.parts["backward"] == pytest.approx(0.075)
    assert sum(one.parts.values()) == pytest.approx(one.step.mean)
    assert one.exposed is None, "there is no yardstick"


def test_the_yardstick_tells_how_fast_each_rank_computes() -> None:
    _, naive = told(steps(case("none"), 0.1, slow=2), steps(case("naive"), 0.2))
    assert naive.rank_compute == pytest.approx((0.075, 0.15))


def test_throughput_and_model_flops_utilisation() -> None:
    (one,) = told(steps(case("naive"), 0.1), peak=1e8)
    assert one.samples_per_s == pytest.approx(80)
    assert one.tokens_per_s == pytest.approx(800)
    assert one.mfu == pytest.approx(80 * 2e6 / (2 * 1e8))
    (unknown,) = told(steps(case("naive"), 0.1))
    assert unknown.mfu is None


def test_a_clear_difference_is_one_and_the_fastest_is_named() -> None:
    _, quick, slow = told(
        steps(case("none"), 0.08),
        steps(case("ddp"), 0.1, noise=0.02),
        steps(case("naive"), 0.2, noise=0.02),
    )
    assert quick.verdict == "fastest"
    assert slow.verdict == "slower"
    assert slow.ratio is not None
    assert slow.ratio.low < 2.0 < slow.ratio.high or slow.ratio.value == pytest.approx(2, rel=0.05)


def test_same_needs_the_whole_interval_within_the_bound() -> None:
    near = told(steps(case("ddp"), 0.1, noise=0.005), steps(case("bucketed"), 0.1005, noise=0.005))
    assert sorted(one.verdict for one in near) == ["fastest", "same"]
    wild = told(steps(case("ddp"), 0.1, noise=0.5), steps(case("bucketed"), 0.1, noise=0.5))
    assert sorted(one.verdict for one in wild) == ["fastest so far", "not enough rounds"]


def test_rounds_before_memory_ran_out_are_paired_with_the_same_of_others() -> None:
    none, whole = steps(case("none"), 0.1, rounds=12), steps(case("ddp"), 0.11, rounds=12)
    short = steps(case("naive"), 0.2, rounds=7)
    short.full = True
    for later in range(7, 12):  # what came after it must not count
        none.turns[later] = none.turns[later] * 100
        whole.turns[later] = whole.turns[later] * 100
    _, _, ended = told(none, whole, short)
    assert ended.rounds == 7
    assert ended.exposed is not None
    assert ended.exposed.value == pytest.approx(0.1)
    assert ended.ratio is not None


def test_too_few_rounds_give_no_verdict() -> None:
    records = told(steps(case("ddp"), 0.1, rounds=3), steps(case("naive"), 0.5, rounds=3))
    assert records[1].verdict == "not enough rounds"


@pytest.mark.slow
def test_a_difference_below_the_noise_is_not_called_slower() -> None:
    """100 A/A comparisons of noisy strategies: at most one in twenty is called different."""
    called = 0
    for seed in range(100):
        source = random.Random(seed)
        taken = [
            Samples(
                case(name),
                [
                    torch.full((2, 3, len(PARTS)), 0.1 * source.lognormvariate(0, 0.1))
                    for _ in range(12)
                ],
            )
            for name in ("ddp", "bucketed")
        ]
        called += any(one.verdict == "slower" for one in told(*taken))
    assert called <= 7


def test_efficiency_and_where_the_rest_went() -> None:
    taken = []
    for ranks, alone, together in ((1, 0.1, 0.1), (2, 0.11, 0.16)):
        weak = {"ranks": ranks, "samples": 4 * ranks, "kind": "weak"}
        taken.append(steps(case("none", **weak), alone))  # type: ignore[arg-type]
        taken.append(steps(case("ddp", **weak), together))  # type: ignore[arg-type]
    by_size = {one.ranks: one for one in told(*taken) if one.strategy == "ddp"}
    two = by_size[2]
    assert by_size[1].efficiency is not None
    assert by_size[1].efficiency.value == 1
    assert two.efficiency is not None
    assert two.efficiency.value == pytest.approx(0.625)
    assert two.grade == "poor"
    assert sum(two.loss.values()) == pytest.approx(0.375)
    assert two.loss["exposed communication"] == pytest.approx(0.05 / 0.16)
