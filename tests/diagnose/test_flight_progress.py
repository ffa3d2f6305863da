"""Dumps in which every rank waits: who is behind by how far each came, and who is not named."""

import json
import os
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from flight_simulated import FAULTS, MOMENTARY, UNDECIDED, named, random_job, run_job
from wirespeed.diagnose.diagnose import diagnose
from wirespeed.diagnose.sources import find_sources
from wirespeed.model.records import Finding

DEVICE, BEHIND, UNSURE, MOVING = "FLIGHT-009", "FLIGHT-002", "FLIGHT-003", "FLIGHT-007"
GROUPS = {
    "0": ("default_pg", [0, 1, 2, 3]),
    "5": ("TP", [0, 1]),
    "6": ("TP", [2, 3]),
    "9": ("EP", [0, 1, 2, 3]),
}
STEP = ("TP", "EP", "TP", "EP")
"""Groups that all ranks call again and again, in this order."""


class Rank:
    """One rank's dump: what it issued, and of that what its recorder knows to be over."""

    def __init__(self, rank: int, issued: int, completed: int, state: str = "scheduled") -> None:
        self.rank, self.issued, self.completed, self.state = rank, issued, completed, state

    def calls(self) -> list[tuple[str, str, int]]:
        """Group, description and number of each call in the order of the program."""
        groups = {desc: name for name, (desc, ranks) in GROUPS.items() if self.rank in ranks}
        of_step = [(groups[desc], desc) for desc in STEP]
        each: dict[str, int] = {}
        found = []
        for place in range(self.issued):
            name, desc = of_step[place % len(STEP)]
            each[name] = each.get(name, 0) + 1
            found.append((name, desc, each[name]))
        return found

    def dump(self) -> dict[str, Any]:
        """Only what is open is in the entries; `pg_status` counts what is over."""
        mine = {name: one for name, one in GROUPS.items() if self.rank in one[1]}
        numbers = {name: str(number) for number, name in enumerate(mine)}
        status = {
            number: {"last_enqueued_collective": 0, "last_completed_collective": 0}
            for number in numbers.values()
        }
        entries = []
        for place, (name, desc, seq) in enumerate(self.calls()):
            status[numbers[name]]["last_enqueued_collective"] = seq
            if place < self.completed:
                status[numbers[name]]["last_completed_collective"] = seq
                continue
            entries.append(
                {
                    "record_id": place,
                    "pg_id": int(numbers[name]),
                    "process_group": [name, desc],
                    "collective_seq_id": seq,
                    "profiling_name": "nccl:all_reduce",
                    "time_created_ns": 10**18 + place,
                    "input_sizes": [[64]],
                    "state": self.state,
                    "retired": False,
                    "is_p2p": False,
                }
            )
        config = {
            name: {"name": name, "desc": desc, "ranks": json.dumps(ranks)}
            for name, (desc, ranks) in mine.items()
        }
        return {
            "version": "2.9",
            "nccl_version": "2.27.3",
            "pg_config": config,
            "pg_status": status,
            "entries": entries,
        }


def found(folder: Path, *ranks: Rank) -> list[Finding]:
    for rank in ranks:
        (folder / f"_dump_{rank.rank}").write_text(json.dumps(rank.dump()))
    return list(diagnose(find_sources([str(folder)])).findings)


def blamed(findings: list[Finding]) -> list[str]:
    return [one.subject.name for one in findings if one.status == "fail"]


def test_a_rank_whose_gpu_failed_is_named_although_it_has_open_calls(tmp_path: Path) -> None:
    """Rank 2 knows of no end since call 4, its peer completed 8, and all wait for a call it lacks."""
    findings = found(tmp_path, Rank(0, 10, 9), Rank(1, 10, 9), Rank(2, 9, 4), Rank(3, 10, 9))
    (one,) = findings
    assert (one.id, one.subject.name, one.confidence) == (DEVICE, "rank 2", "likely")
    assert one.category == "gpu-behind"


def test_two_failed_gpus_are_both_named(tmp_path: Path) -> None:
    """Rank 1 issued all that others did: its own open calls alone show it."""
    ranks = (Rank(0, 10, 9), Rank(1, 10, 4), Rank(2, 9, 4), Rank(3, 10, 9))
    assert blamed(found(tmp_path, *ranks)) == ["rank 1", "rank 2"]


def test_one_call_that_ended_between_two_dumps_names_nobody(tmp_path: Path) -> None:
    """All hold the same call but rank 2, which still has the one before it."""
    ranks = (Rank(0, 10, 9), Rank(1, 10, 9), Rank(2, 10, 8), Rank(3, 10, 9))
    findings = found(tmp_path, *ranks)
    assert blamed(findings) == []
    assert [one.id for one in findings] == [UNSURE]


def test_a_rank_that_does_not_explain_the_others_is_not_named(tmp_path: Path) -> None:
    """Ranks 2 and 3 are both in a call of their own: the job runs, rank 1 was dumped earlier."""
    ranks = (Rank(0, 9, 8), Rank(1, 9, 4), Rank(2, 9, 8), Rank(3, 9, 8))
    assert blamed(found(tmp_path, *ranks)) == []


def test_a_call_that_the_recorder_left_out_as_over_is_not_lacking(tmp_path: Path) -> None:
    """Rank 3 has no entry of any group; its counts show that it completed what others have open."""
    ranks = (Rank(0, 10, 9), Rank(1, 10, 9), Rank(2, 9, 4), Rank(3, 9, 9))
    findings = found(tmp_path, *ranks)
    assert "rank 2" in blamed(findings)
    lacking = [one for one in findings if one.subject.name == "rank 3"]
    assert all("collective 5 of group EP" in one.title for one in lacking)


def test_a_job_that_moved_on_between_the_dumps_names_nobody(tmp_path: Path) -> None:
    """Rank 0 completed calls of all ranks that rank 2 had not issued."""
    ranks = (Rank(0, 16, 14), Rank(1, 16, 14), Rank(2, 6, 6), Rank(3, 6, 6))
    (one,) = found(tmp_path, *ranks)
    assert (one.id, one.status) == (MOVING, "warn")


def test_a_rank_that_its_peers_passed_while_they_wait_in_its_call_is_named(tmp_path: Path) -> None:
    """Rank 1 waits in call 9 of the program as all do, and stopped there; rank 3 stopped before it."""
    ranks = (Rank(0, 14, 9), Rank(1, 11, 9), Rank(2, 14, 9), Rank(3, 9, 9))
    findings = found(tmp_path, *ranks)
    assert blamed(findings) == ["rank 3", "rank 1"]
    assert [one.id for one in findings] == [BEHIND, BEHIND]
    assert findings[1].confidence == "likely"


def test_a_rank_at_which_its_peers_stopped_too_is_a_victim(tmp_path: Path) -> None:
    ranks = (Rank(0, 11, 9), Rank(1, 11, 9), Rank(2, 11, 9), Rank(3, 9, 9))
    assert blamed(found(tmp_path, *ranks)) == ["rank 3"]


def test_three_of_four_ranks_are_too_many_to_name(tmp_path: Path) -> None:
    ranks = (Rank(0, 9, 4), Rank(1, 10, 4), Rank(2, 10, 4), Rank(3, 10, 9))
    (one,) = found(tmp_path, *ranks)
    assert (one.id, one.status, one.confidence) == (UNSURE, "warn", "cannot tell")
    assert "ranks 0-2" in one.title


def test_a_gpu_that_never_began_a_call_that_others_are_in_is_named(tmp_path: Path) -> None:
    started = [Rank(rank, 10, 9, "started") for rank in (0, 1, 3)]
    (one,) = found(tmp_path, *started, Rank(2, 10, 9))
    assert (one.id, one.subject.name, one.confidence) == (DEVICE, "rank 2", "likely")


def test_a_call_that_all_issued_leads_to_its_group_and_names_nobody(tmp_path: Path) -> None:
    ranks = [Rank(rank, 10, 9) for rank in range(4)]
    (one,) = found(tmp_path, *ranks)
    assert (one.id, one.status, one.confidence) == (UNSURE, "warn", "cannot tell")
    assert "ranks 0-3 issued" in one.saw


def test_the_rank_that_all_waits_lead_to_is_told_where_it_wrote_no_dump(tmp_path: Path) -> None:
    (one,) = found(tmp_path, Rank(0, 10, 9), Rank(1, 10, 9), Rank(3, 10, 9))
    assert (one.id, one.status) == (UNSURE, "warn")
    assert "leads to rank 2" in one.saw


@pytest.mark.parametrize("counts", [[], {"a": {}}, {"0": {}, "1": {}, "2": {}}])
def test_counts_of_another_form_are_left_out(tmp_path: Path, counts: Any) -> None:
    for rank in range(3):
        dump = Rank(rank, 10, 9).dump() | {"pg_status": counts}
        (tmp_path / f"_dump_{rank}").write_text(json.dumps(dump))
    assert blamed(found(tmp_path, Rank(3, 9, 9))) == ["rank 3"]


def test_texts_without_end_cost_no_memory_beside_counts(tmp_path: Path) -> None:
    laughs: Any = [1]
    for _ in range(60):
        laughs = [laughs] * 10
    for rank in range(4):
        dump = Rank(rank, 10, 9).dump()
        dump["entries"][0] |= {"process_group": [laughs, laughs], "pg_id": laughs}
        (tmp_path / f"_dump_{rank}").write_bytes(pickle.dumps(dump, protocol=2))
    assert list(diagnose(find_sources([str(tmp_path)])).findings)


@pytest.mark.parametrize("fault", [one for one in FAULTS if one != MOMENTARY])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_simulated_job_never_has_the_wrong_rank_named(fault: str, seed: int) -> None:
    """Of two culprits both are not always shown: one may keep the other from going on."""
    culprits, findings = run_job(random_job(random.Random(seed), fault))
    assert named(findings) <= culprits
    if FAULTS[fault] and fault not in UNDECIDED:
        assert named(findings)


@pytest.mark.skipif(
    "WIRESPEED_TEST_FLIGHT_GPU" not in os.environ, reason="Requires: real dumps of a GPU failure"
)
def test_real_dumps_of_a_gpu_failure() -> None:
    findings = list(diagnose(find_sources([os.environ["WIRESPEED_TEST_FLIGHT_GPU"]])).findings)
    assert blamed(findings) == ["rank 12", "rank 14"]
    assert {one.category for one in findings} == {"gpu-behind"}
