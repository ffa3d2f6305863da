"""A small cluster on one machine whose network can be broken on purpose.

Network namespaces are the nodes, a bridge is the switch. `python -m wirespeed.lab --help`. A `Lab` is
put up, broken, healed, used and taken down again.
"""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.lab.faults import (
    cgroup_files,
    need_tools,
    remove_cgroups,
    settle,
    settle_all,
    subject,
)
from wirespeed.lab.network import open_port, plug, unplug
from wirespeed.lab.processes import end_all, living_in, need_root
from wirespeed.lab.run import (
    Captured,
    Entry,
    NodeResult,
    Output,
    Running,
    enter_words,
    free_port,
    plan,
)
from wirespeed.lab.spec import Fault, LabSpec, Variable, Way, each_node, parse_fault
from wirespeed.lab.state import Layout, State, claim, load

__all__ = ["GRACE_S", "Lab", "LabSpec", "NodeResult", "Running", "remove"]

GRACE_S = 30.0
"""How long the others may go on after one node's command has failed."""
_TIMEOUT_S = 120.0
_END_S = 10.0


class Lab:
    """Nodes on one machine, joined by a network that can be broken on purpose.

        with Lab(LabSpec(nodes=3, name="mine")) as lab:
            lab.slow("node-2", "100mbit")
            results = lab.run(["hostname"])

    Needs root. Raises CannotMeasure when this machine cannot make one, and UsageError when the
    name is taken or a node unknown. Whatever was made is gone after the `with`, also after errors.
    """

    def __init__(self, spec: LabSpec | None = None) -> None:
        self._spec = spec or LabSpec()
        self._made: State | None = None
        self._started: list[Running] = []

    @classmethod
    def attach(cls, name: str) -> "Lab":
        """A lab that is up. UsageError when there is none, or only a half of one."""
        state = load(name)
        if state is None or not state.ready:
            what = "there is no lab" if state is None else "not all is there of the lab"
            first = "" if state is None else f"python -m wirespeed.lab down --name {name}, then "
            raise UsageError(
                f"{what} named {name}",
                expected="one that is up; see python -m wirespeed.lab list",
                next=f"{first}python -m wirespeed.lab up --name {name}",
            )
        lab = cls(state.spec)
        lab._made = state
        return lab

    # Up and down.

    def up(self) -> None:
        """Make it. After an error, or Ctrl-C, nothing of it is left."""
        need_root()
        need_tools(self._spec.faults)
        state = self._made = claim(self._spec)
        try:
            plug(state, self.layout)
            settle_all(state, self.layout)
            state.ready = True
            state.save()
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """End every process of the lab and remove all that was made; nothing when it is down."""
        for running in self._started:
            running.end(within_s=0.0)
        self._started = []
        if self._made is not None:
            remove(self._made)
            self._made = None

    def __enter__(self) -> "Lab":
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    # What it is.

    @property
    def layout(self) -> Layout:
        return Layout.of(self._state)

    @property
    def spec(self) -> LabSpec:
        """With the faults as they are now."""
        return self._state.spec

    @property
    def nodes(self) -> list[str]:
        return self.spec.names

    def address(self, node: str) -> str:
        self.spec.check_node(node)
        return self.layout.address(node)

    def pids(self, node: str) -> list[int]:
        """Of all processes that live on a node."""
        self.spec.check_node(node)
        return living_in([self.layout.space(node)])

    # Faults. Texts are as on the command line: "100mbit", "5%", "5ms", "30%", "stop:200ms/1s"; a
    # node may be "all".

    def slow(self, node: str, rate: str) -> None:
        self._break("slow", f"{node}={rate}")

    def one_way(self, node: str, rate: str, way: Way = "out") -> None:
        self._break("one-way", f"{node}={rate}:{way}")

    def slow_link(self, first: str, second: str, rate: str) -> None:
        self._break("slow-link", f"{first}:{second}={rate}")

    def lossy(self, node: str, share: str) -> None:
        self._break("lossy", f"{node}={share}")

    def delay(self, node: str, time: str) -> None:
        """Each way: a round trip takes twice that longer."""
        self._break("delay", f"{node}={time}")

    def mtu(self, node: str, size: int) -> None:
        self._break("mtu", f"{node}={size}")

    def cut(self, node: str) -> None:
        self._break("cut", node)

    def straggler(self, node: str, how: str) -> None:
        self._break("straggler", f"{node}={how}")

    def firewall(self, node: str, *ports: int) -> None:
        """No new connection from other nodes, except to `ports`; none: to each run's master port."""
        listed = ",".join(str(port) for port in ports)
        self._break("firewall", f"{node}={listed}" if ports else node)

    def loopback_name(self, node: str) -> None:
        """Its own host name means 127.0.1.1 there."""
        self._break("loopback-name", node)

    def environment(self, node: str, name: str, value: str) -> None:
        """Commands that start there from now on find it so, whatever `run` and its caller set."""
        self._break("env", f"{node}={name}={value}")

    def add(self, fault: Fault) -> None:
        """Takes the place of a fault of the same kind on the same node, or pair of nodes."""
        state = self._state
        state.spec.check(fault)
        need_tools([fault])
        others = [one for one in state.spec.faults if subject(one) != subject(fault)]
        self._change([*others, fault], [fault])
        for running in self._started:
            if running.alive():
                open_port(self.layout, [fault], running.port)

    def heal(self, *nodes: str) -> None:
        """Remove every fault that is about one of `nodes`; without any, all faults."""
        for node in nodes:
            self.spec.check_node(node)
        chosen = set(nodes or self.nodes)
        gone = [fault for fault in self.spec.faults if chosen & set(fault.nodes)]
        self._change([fault for fault in self.spec.faults if fault not in gone], gone)

    # Commands.

    def run(
        self,
        words: Sequence[str],
        *,
        nodes: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        ranks: bool = True,
        timeout: float = _TIMEOUT_S,
        grace: float = GRACE_S,
    ) -> list[NodeResult]:
        """Run a command on every node (or on `nodes`) at once, to the end of all; seconds.

        `{rank}`, `{nodes}`, `{master}` and `{port}` are filled in; with `ranks` each command also
        finds RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE, one rank a node. What still runs
        `grace` after one has failed, or after `timeout`, is ended, and `NodeResult.ended` says so.
        """
        running = self.start(words, nodes=nodes, env=env, ranks=ranks)
        try:
            return running.wait(timeout, grace)
        except BaseException:
            running.end(within_s=0.0)
            raise

    def start(
        self,
        words: Sequence[str],
        *,
        nodes: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        ranks: bool = True,
        output: Callable[[str], Output] | None = None,
    ) -> Running:
        """As `run`, without waiting. `output` makes what shows it, from the first node's name."""
        chosen = list(dict.fromkeys(nodes or self.nodes))
        for node in chosen:
            self.spec.check_node(node)
        if not words:
            raise UsageError("no command", expected="such as `-- hostname`")
        port = free_port(self.layout, chosen[0])
        open_port(self.layout, self.spec.faults, port)
        entries = {node: self._entry(node) for node in chosen}
        plans = plan(self.layout, entries, words, port, env or {}, ranks=ranks)
        running = Running(self.layout, plans, output(chosen[0]) if output else Captured(), port)
        self._started = [one for one in self._started if one.alive()] + [running]
        return running

    def on(self, node: str, *words: str) -> list[str]:
        """The command that runs `words` on a node, for those who start it themselves."""
        self.spec.check_node(node)
        return enter_words(self.layout, node, self._entry(node), words)

    # Inside.

    @property
    def _state(self) -> State:
        if self._made is None:
            raise UsageError(f"lab {self._spec.name} is not up", next="with Lab(spec) as lab: …")
        return self._made

    def _entry(self, node: str) -> Entry:
        faults = self.spec.faults
        own = [one for one in faults if isinstance(one, Variable) and one.node == node]
        cgroups = cgroup_files(self._state, self.layout, node)
        return Entry(cgroups, {one.name: one.value for one in own})

    def _break(self, kind: str, text: str) -> None:
        for one in each_node(text, self.nodes):
            self.add(parse_fault(kind, one))

    def _change(self, faults: Iterable[Fault], changed: Iterable[Fault]) -> None:
        state = self._state
        state.spec = replace(state.spec, faults=tuple(faults))
        state.save()
        for fault in changed:
            settle(state, self.layout, fault)


def remove(state: State) -> None:
    """All that the state names, and the state at last; CannotMeasure when something stays.

    May be called again, and by another process than the one that made it.
    """
    spaces = [thing.name for thing in state.made if thing.kind == "namespace"]
    left = [f"process {pid}" for pid in end_all(spaces, _END_S)]
    left += [f"namespace {space}" for space in unplug(state)]
    left += [f"cgroup {group}" for group in remove_cgroups(state)]
    for thing in state.made:
        if thing.kind == "folder":
            shutil.rmtree(thing.name, ignore_errors=True)
            left += [f"folder {thing.name}"] if Path(thing.name).exists() else []
    if left:
        raise CannotMeasure(
            f"still there: {', '.join(left)}",
            expected="all of it to go",
            next=f"python -m wirespeed.lab down --name {state.spec.name}",
        )
    state.remove()
