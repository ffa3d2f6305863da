"""ENV-001 and on: settings in the environment that are known to hurt, or contradict the hardware."""

from collections import defaultdict
from collections.abc import Mapping

from wirespeed.checks.settings_conditions import CONDITIONS
from wirespeed.checks.settings_rules import Rule, settings_rules
from wirespeed.model.records import Finding, NodeFacts, Subject, World


def settings_findings(world: World, only: frozenset[str] = frozenset()) -> list[Finding]:
    """A finding a rule and text, with the nodes where it is so; one pass when there is none. Pure.

    only: ids of the rules to look at; empty: all. The pass has the first one's id.
    """
    rules = [rule for rule in settings_rules() if not only or rule.id in only]
    if not world.nodes or not rules:
        return []
    found = [finding for rule in rules for finding in _of_rule(rule, world)]
    count = len(world.nodes)
    title = f"no setting that is known to hurt on {count} node" + ("s" if count > 1 else "")
    return found or [Finding(id=rules[0].id, status="pass", title=title)]


def _of_rule(rule: Rule, world: World) -> list[Finding]:
    hosts: dict[str, list[NodeFacts]] = defaultdict(list)
    for node in world.nodes:
        if text := CONDITIONS[rule.hurts](node, _settings(node)):
            hosts[text].append(node)
    return [_finding(rule, text, nodes, world) for text, nodes in hosts.items()]


def _settings(node: NodeFacts) -> Mapping[str, str]:
    """The environment, over what NCCL reads from its files."""
    return {**(node.facts.net_nccl_conf or {}), **node.environment}


def _finding(rule: Rule, text: str, nodes: list[NodeFacts], world: World) -> Finding:
    """One for all nodes where it is the same, as the job sets it; else the nodes are named."""
    names = [node.host for node in nodes]
    everywhere = len(names) == len(world.nodes)
    where = f"every node ({len(names)})" if everywhere else ", ".join(names[:4])
    where = names[0] if len(names) == 1 else where
    return Finding(
        id=rule.id,
        status="warn",
        title=f"{where}: {text}",
        subject=Subject("node", names[0]) if len(names) == 1 else Subject("job", "job"),
        saw=text,
        expected=f"{rule.good} ({rule.link})",
        because=rule.because,
        costs=rule.costs,
        fix=rule.fix,
        next=f"wirespeed check --only {rule.id}",
        evidence=tuple(f"{name}: {text}" for name in names),
    )
