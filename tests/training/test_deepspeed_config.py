"""ZeRO configurations: the batch arithmetic, what is refused, and what DeepSpeed makes of them."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.errors import UsageError
from wirespeed.training.deepspeed_config import batch_sizes, zero_config

small = st.integers(1, 64)


@pytest.mark.parametrize(
    ("asked", "micro", "accumulation", "train"),
    [
        ({"world": 3, "micro": 4}, 4, 1, 12),
        ({"world": 3, "micro": 4, "accumulation": 2}, 4, 2, 24),
        ({"world": 3, "train_batch": 24}, 8, 1, 24),
        ({"world": 3, "train_batch": 24, "micro": 2}, 2, 4, 24),
        ({"world": 3, "train_batch": 24, "accumulation": 4}, 2, 4, 24),
        ({"world": 3, "train_batch": 24, "accumulation": 4, "micro": 2}, 2, 4, 24),
    ],
)
def test_what_is_missing_is_derived(
    asked: dict[str, int], micro: int, accumulation: int, train: int
) -> None:
    sizes = batch_sizes(**asked)
    assert (sizes.micro, sizes.accumulation, sizes.train) == (micro, accumulation, train)


def test_a_contradiction_proposes_the_nearest_sizes() -> None:
    with pytest.raises(UsageError) as caught:
        batch_sizes(world=3, micro=4, accumulation=2, train_batch=32)
    said = caught.value
    assert said.saw == "micro × accumulation × world is 4 × 2 × 3 = 24, not the train batch 32"
    # 32 is no multiple of 3. The nearest is 33, most like what was asked is 24.
    fitting = "11 × 1 × 3 = 33; 4 × 2 × 3 = 24; 4 × 3 × 3 = 36"
    assert said.expected == f"sizes that fit, such as {fitting}"
    assert said.next == "micro 11, accumulation 1, train batch 33"


def test_the_same_train_batch_is_proposed_where_it_can_be_had() -> None:
    with pytest.raises(UsageError, match="not the train batch 48") as caught:
        batch_sizes(world=4, micro=8, accumulation=1, train_batch=48)
    fitting = "12 × 1 × 4 = 48; 8 × 1 × 4 = 32; 6 × 2 × 4 = 48"
    assert caught.value.expected == f"sizes that fit, such as {fitting}"


@given(micro=small, accumulation=small, world=small, train=st.integers(1, 10_000))
def test_sizes_fit_or_valid_ones_are_proposed(
    micro: int, accumulation: int, world: int, train: int
) -> None:
    asked = {"micro": micro, "accumulation": accumulation, "world": world}
    if micro * accumulation * world == train:
        assert batch_sizes(train_batch=train, **asked).train == train
        return
    with pytest.raises(UsageError) as caught:
        batch_sizes(train_batch=train, **asked)
    proposed = proposals(caught.value.expected)
    assert 1 <= len(set(proposed)) == len(proposed) <= 3
    for one in proposed:
        sizes = batch_sizes(micro=one[0], accumulation=one[1], world=one[2], train_batch=one[3])
        assert sizes.world == world
    # The nearest multiple of the world is found.
    least = min(
        abs(train - world * share) for share in (max(1, train // world), train // world + 1)
    )
    assert abs(proposed[0][3] - train) == least
    assert any(one[0] == micro for one in proposed)


def proposals(expected: str) -> list[tuple[int, ...]]:
    words = expected.removeprefix("sizes that fit, such as ").replace("=", "×").split(";")
    return [tuple(int(number) for number in word.split("×")) for word in words]


@pytest.mark.parametrize(
    ("asked", "saw"),
    [
        ({"world": 2}, "no batch size was given"),
        ({"world": 0, "micro": 1}, "world is 0"),
        ({"world": 2, "micro": 0}, "micro is 0"),
        ({"world": 2, "micro": 1, "accumulation": -1}, "accumulation is -1"),
        ({"world": 2, "train_batch": 0}, "train batch is 0"),
        ({"world": 4, "train_batch": 2}, "1 × 1 × 4 = 4, not the train batch 2"),
    ],
)
def test_impossible_sizes_are_refused(asked: dict[str, int], saw: str) -> None:
    with pytest.raises(UsageError, match=saw):
        batch_sizes(**asked)


@pytest.mark.parametrize(
    ("options", "saw"),
    [
        ({"stage": 4}, "no ZeRO stage 4"),
        ({"stage": -1}, "no ZeRO stage -1"),
        ({"stage": 0, "offload": "optimizer"}, "stage 0 cannot offload"),
        ({"stage": 2, "offload": "parameter"}, "stage 2 cannot offload"),
        ({"stage": 2, "offload": "disk"}, "no offload is called 'disk'"),
        ({"stage": 2, "precision": "int8"}, "no precision is called 'int8'"),
        ({"stage": 2, "bucket_mb": 0}, "a bucket of 0 MB"),
        ({"stage": 2, "bucket_mb": -3}, "a bucket of -3 MB"),
        ({"stage": 2, "bucket_mb": float("nan")}, "a bucket of nan MB"),
        ({"stage": 2, "clip": -1}, "clipping to the norm -1"),
    ],
)
def test_what_zero_cannot_do_is_refused(options: dict[str, Any], saw: str) -> None:
    with pytest.raises(UsageError, match=saw):
        zero_config(options.pop("stage"), world=2, micro=1, **options)


@pytest.mark.parametrize(
    ("precision", "bucket_mb", "elements"),
    [("float32", 10, 2_500_000), ("bfloat16", 10, 5_000_000), ("float32", 1e-9, 2)],
)
def test_buckets_are_counted_in_elements(precision: Any, bucket_mb: float, elements: int) -> None:
    config = zero_config(1, world=2, micro=1, precision=precision, bucket_mb=bucket_mb)
    assert config["zero_optimization"]["reduce_bucket_size"] == elements
    assert config["zero_optimization"]["allgather_bucket_size"] == elements


def test_no_buffer_is_larger_than_the_model() -> None:
    section = zero_config(3, world=2, micro=1, parameters=50_001)["zero_optimization"]
    assert section["reduce_bucket_size"] == 50_002
    assert section["stage3_param_persistence_threshold"] == 50
    asked = zero_config(2, world=2, micro=1, parameters=50_001, bucket_mb=25)
    assert asked["zero_optimization"]["allgather_bucket_size"] == 50_002
    large = zero_config(3, world=2, micro=1, parameters=8 * 10**9)["zero_optimization"]
    assert large["reduce_bucket_size"] == 500_000_000
    assert large["stage3_param_persistence_threshold"] == 100_000


def test_it_is_plain_data_for_json() -> None:
    config = zero_config(
        3, world=2, micro=1, offload="parameter", optimizer={"lr": 1e-3, "betas": (0.9, 0.95)}
    )
    assert json.loads(json.dumps(config, allow_nan=False)) == config


def test_neither_torch_nor_deepspeed_is_imported() -> None:
    program = (
        "import sys, wirespeed.training.deepspeed_config\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'deepspeed', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


READ = """
import json, sys, logging
logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)
from deepspeed.runtime.config import DeepSpeedConfig
for text in json.load(open(sys.argv[1])):
    read = DeepSpeedConfig(text)
    zero = read.zero_config
    section = text["zero_optimization"]
    assert zero.stage == section["stage"], (text, zero)
    assert zero.reduce_bucket_size == section["reduce_bucket_size"]
    assert read.train_batch_size == 6 and read.gradient_accumulation_steps == 3
    assert bool(zero.offload_param) == ("offload_param" in section)
    assert not set(section) - {f.alias or n for n, f in type(zero).model_fields.items()}
print("read")
"""


@pytest.mark.system
@pytest.mark.skipif(find_spec("deepspeed") is None, reason="Requires: deepspeed")
def test_deepspeed_reads_every_combination(tmp_path: Path) -> None:
    """DeepSpeed's own reader takes each, and knows every key that we set."""
    whole: list[dict[str, Any]] = []
    for stage, least in ((0, ("none",)), (1, ("none", "optimizer")), (2, ("none", "optimizer"))):
        whole += [config_of(stage, offload) for offload in least]
    whole += [config_of(3, offload) for offload in ("none", "optimizer", "parameter")]
    (tmp_path / "all.json").write_text(json.dumps(whole))
    done = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path / "all.json")],
        capture_output=True,
        text=True,
        timeout=90,
        env={"PATH": "/usr/bin:/bin", "DS_ACCELERATOR": "cpu"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "read"


def config_of(stage: int, offload: Any) -> dict[str, Any]:
    return zero_config(
        stage, world=1, micro=2, accumulation=3, offload=offload, precision="bfloat16", clip=1.0
    )
