"""What a deploy would change, value by value."""

from typing import Any

from wirespeed.clusters.operations.apply import changes, differences, frozen_part


def stateful(replicas: int, env: dict[str, str], **more: Any) -> dict[str, Any]:
    told = [{"name": name, "value": value} for name, value in env.items()]
    template = {"spec": {"containers": [{"name": "ranks", "env": told}]}}
    return {
        "kind": "StatefulSet",
        "metadata": {"name": "demo", **more},
        "spec": {"replicas": replicas, "template": template},
    }


def test_what_the_server_writes_itself_is_no_difference() -> None:
    live = stateful(2, {"A": "1"}, uid="u", resourceVersion="7", generation=3)
    live["status"] = {"readyReplicas": 2}
    (one,) = changes([live], [stateful(2, {"A": "1"}, uid="v", resourceVersion="8")])
    assert (one.action, str(one)) == ("keep", "keep StatefulSet demo")


def test_values_are_found_by_name_wherever_they_stand_in_a_list() -> None:
    new = stateful(3, {"B": "2", "A": "1", "C": "3"})
    (one,) = changes([stateful(2, {"A": "1", "B": "0"})], [new])
    told = [str(difference) for difference in one.differences]
    at = "spec.template.spec.containers[ranks].env"
    assert told == [
        "spec.replicas: 2 -> 3",
        f"{at}[B].value: 0 -> 2",
        f"{at}[C]: nothing -> {{name, value}}",
    ]
    assert str(one) == "change StatefulSet demo: spec.replicas: 2 -> 3, and 2 more"


def test_secrets_are_not_shown() -> None:
    old, new = stateful(1, {"HF_TOKEN": "old"}), stateful(1, {"HF_TOKEN": "new"})
    (one,) = differences(old, new)
    assert (one.old, one.new) == ("***", "***")


def test_of_a_text_the_line_that_differs_is_shown() -> None:
    (one,) = differences({"data": {"run": "a\nb\nc"}}, {"data": {"run": "a\nB\nc"}})
    assert str(one) == "data.run line 2: b -> B"


def test_only_what_the_file_says_counts_as_frozen_and_amounts_are_read() -> None:
    def claims(size: str, **more: str) -> dict[str, Any]:
        spec = {"resources": {"requests": {"storage": size}}, **more}
        return {"kind": "StatefulSet", "spec": {"replicas": 1, "volumeClaimTemplates": [
            {"metadata": {"name": "workspace"}, "spec": spec}]}}  # fmt: skip

    live = frozen_part(claims("1Gi", volumeMode="Filesystem"))
    assert differences(live, frozen_part(claims("1024Mi")), only_of_new=True) == ()
    (one,) = differences(live, frozen_part(claims("2Gi")), only_of_new=True)
    assert "volumeClaimTemplates[workspace]" in one.path


def test_new_objects_are_made() -> None:
    assert [one.action for one in changes([], [stateful(1, {})])] == ["create"]
