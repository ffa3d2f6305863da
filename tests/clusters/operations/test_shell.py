"""kubectl's words for a shell; tests/system/test_cluster_sync.py opens one."""

import pytest

from wirespeed.clusters.kube import Kubectl
from wirespeed.clusters.operations.pod_lookup import Pod, pick_pod, shell_words
from wirespeed.errors import CannotMeasure, UsageError

KUBECTL = Kubectl(program="/bin/kubectl", namespace="ml")
PODS = [
    Pod(name="mine-0", phase="Running", ordinal=0, devices={}),
    Pod(name="mine-10", phase="Pending", status="ImagePullBackOff", ordinal=10, devices={}),
    Pod(name="mine-launcher", phase="Running", role="launcher", devices={}),
]


@pytest.mark.parametrize(
    ("wanted", "name"),
    [("", "mine-0"), ("0", "mine-0"), ("10", "mine-10"), ("mine-launcher", "mine-launcher")],
)
def test_a_pod_is_meant_by_its_number_or_its_name(wanted: str, name: str) -> None:
    assert pick_pod(PODS, wanted, "mine").name == name


@pytest.mark.parametrize("wanted", ["1", "-1", "mine", "٠", "mine-0\n"])
def test_no_such_pod_names_those_there_are(wanted: str) -> None:
    with pytest.raises(UsageError) as raised:
        pick_pod(PODS, wanted, "mine")
    assert "mine-0, mine-10, mine-launcher" in raised.value.expected


def test_without_pods_the_next_command_is_told() -> None:
    with pytest.raises(CannotMeasure) as raised:
        pick_pod([], "", "mine")
    assert raised.value.next == "wirespeed cluster deploy mine"


def test_the_users_words_are_never_part_of_a_script() -> None:
    command = ["echo", "$(reboot)", "; reboot", "-x", ""]
    words = shell_words(KUBECTL, PODS[0], command, terminal=False, folder="/workspace")
    assert list(words[-5:]) == command
    assert words[:5] == ("/bin/kubectl", "--namespace=ml", "exec", "-i", "mine-0")
    script = words[words.index("-c", 6) + 1]
    assert "reboot" not in script and 'exec "$@"' in script


def test_a_terminal_is_passed_through_only_where_there_is_one() -> None:
    with_one = shell_words(KUBECTL, PODS[0], (), terminal=True, folder="/w")
    assert "-t" in with_one
    assert "-t" not in shell_words(KUBECTL, PODS[0], (), terminal=False, folder="/w")


def test_a_pod_that_does_not_run_says_why() -> None:
    with pytest.raises(CannotMeasure, match="ImagePullBackOff"):
        shell_words(KUBECTL, PODS[1], (), terminal=False, folder="/w")
