"""NCCL's topology and graph files (XML), and algorithms, protocols and tuners that it is told to "
"use."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_TOPO = (f"{_ENV}#nccl-topo-file", f"{_ENV}#nccl-graph-file")
_FOLLOWS = (
    "nccl-system-error",
    "nccl-invalid-usage",
    "nccl-trace",
    "nccl-remote-error",
    "nccl-peer-lost",
    "watchdog-timeout",
    "launcher-exit",
    "exit-code",
)
_TOPO_FIX = (
    "unset NCCL_TOPO_FILE (look in the environment, /etc/nccl.conf and ~/.nccl.conf too), or take "
    "the file that the cloud makes for exactly this machine type; where a plugin sets it (aws-ofi-"
    "nccl), update the plugin: versions from 1.11 find the topology by themselves"
)
_GRAPH_FIX = (
    "unset NCCL_GRAPH_FILE: remove it from the environment, /etc/nccl.conf and ~/.nccl.conf; a "
    "graph file fits only the same GPUs and NICs that it was dumped from"
)
_COSTS = "NCCL cannot be initialised on this node"

RULES: tuple[Rule, ...] = (
    Rule(
        id="TOPO-001",
        category="topo-file",
        role="cause",
        confidence="certain",
        anchors=("Attribute ",),
        pattern=r"NCCL WARN attribute (?P<attribute>\w+) of node (?P<node>\w+) not found",
        sentence="the topology file (XML, NCCL_TOPO_FILE) does not fit: attribute {attribute} of "
        "node {node} is not in it",
        because="NCCL takes the machine's topology from this file instead of the machine; the file "
        "is of another machine type, of another NCCL version, or has no entry for the CPUs and "
        "GPUs "
        "that this job sees",
        costs=_COSTS,
        fix=_TOPO_FIX,
        next="env | grep NCCL_; cat /etc/nccl.conf ~/.nccl.conf; NCCL_TOPO_DUMP_FILE=/tmp/topo.xml",
        explains=_FOLLOWS,
        links=_TOPO,
        positive=(
            "graph/xml.h:101 NCCL WARN Attribute arch of node cpu not found",
            "graph/xml.h:77 NCCL WARN Attribute busid of node pci not found",
        ),
        negative=("NCCL INFO NCCL_TOPO_FILE set by environment to /opt/microsoft/topo.xml",),
    ),
    Rule(
        id="TOPO-002",
        category="topo-file",
        role="cause",
        confidence="certain",
        anchors=("XML Parse", "XML Topology has wrong version", "too many XML nodes", "XML parser"),
        pattern=r"NCCL WARN .{0,20}(?P<what>XML parse(?:r internal)? error.{0,120}|XML parse ?: "
        r".{0,120}|XML topology has wrong version.{0,60}|too many XML nodes.{0,60})",
        sentence="the topology file (NCCL_TOPO_FILE) cannot be read: {what}",
        because="it is cut off, is no XML of NCCL's, or is of another version",
        costs=_COSTS,
        fix=_TOPO_FIX,
        next="head $NCCL_TOPO_FILE; NCCL_TOPO_DUMP_FILE=/tmp/topo.xml writes one for this machine",
        explains=_FOLLOWS,
        links=_TOPO,
        positive=(
            "graph/xml.cc:41 NCCL WARN XML Parse : Unexpected EOF",
            "graph/xml.cc:60 NCCL WARN XML Parse error : expecting '<', got 'x'",
            "graph/xml.cc:311 NCCL WARN XML Topology has wrong version 999, 1 needed",
        ),
        negative=("NCCL INFO Loading topology file /opt/topo.xml",),
    ),
    Rule(
        id="TOPO-003",
        category="topo-file",
        role="cause",
        confidence="certain",
        anchors=("XML Import Channel",),
        pattern=r"XML import channel ?: (?:dev|rank|ID) (?P<device>-?\w+) not found",
        sentence="the graph file (NCCL_GRAPH_FILE, XML) names device {device}, which this job does "
        "not have: the graph file is of other GPUs",
        because="NCCL takes rings and trees from this file; it was made for more GPUs or another "
        "machine type than this job uses",
        costs=_COSTS,
        fix=_GRAPH_FIX,
        next="env | grep NCCL_GRAPH; grep -i graph /etc/nccl.conf ~/.nccl.conf",
        explains=_FOLLOWS,
        links=_TOPO,
        positive=(
            "graph/search.cc:703 NCCL WARN XML Import Channel : dev 1 not found.",
            "graph/search.cc:810 NCCL WARN XML Import Channel : rank -1 not found.",
        ),
        negative=("NCCL INFO NCCL_GRAPH_FILE set by environment to /opt/graph.xml",),
    ),
    Rule(
        id="TOPO-004",
        category="topo-file",
        role="cause",
        confidence="certain",
        anchors=("XML Graph has wrong version", "Could not open XML graph file"),
        pattern=r"XML graph has wrong version (?P<version>\S+), \S+ needed|could not open XML "
        r"graph "
        r"file (?P<file>\S+)",
        unless=r"NCCL INFO",
        sentence="the graph file (NCCL_GRAPH_FILE, XML) cannot be used: not there, or written by "
        "another version of NCCL",
        because="graph files are dumps of one NCCL version on one machine type",
        costs=_COSTS,
        fix=_GRAPH_FIX,
        next="env | grep NCCL_GRAPH; grep -i graph /etc/nccl.conf ~/.nccl.conf",
        explains=_FOLLOWS,
        links=_TOPO,
        positive=(
            "graph/xml.cc:290 NCCL WARN XML Graph has wrong version 0, 1 needed",
            "graph/xml.cc:270 NCCL WARN Could not open XML graph file /opt/g.xml : No such file",
        ),
        negative=("NCCL INFO Could not open XML graph file /opt/g.xml : No such file",),
    ),
    Rule(
        id="TOPO-005",
        category="topo-file",
        role="symptom",
        stage="setup",
        anchors=("Could not open XML topology file",),
        pattern=r"NCCL WARN could not open XML topology file (?P<file>\S+)",
        sentence="the topology file {file} (NCCL_TOPO_FILE) is not there",
        checks=(
            "whether the file is mounted into the container and readable on every node; else unset "
            "NCCL_TOPO_FILE: NCCL goes on without it, on virtual machines with poor rings",
        ),
        links=_TOPO,
        positive=(
            "graph/xml.cc:330 NCCL WARN Could not open XML topology file /opt/t.xml : No such file",
        ),
        negative=("NCCL INFO Could not open XML topology file /opt/t.xml : No such file",),
    ),
    Rule(
        id="TOPO-006",
        category="nccl-algorithm",
        role="cause",
        confidence="certain",
        anchors=("no algorithm/protocol available",),
        pattern=r"no algorithm/protocol available(?P<what>[^.]{0,80})",
        sentence="NCCL has no algorithm and protocol{what} among those that NCCL_ALGO and "
        "NCCL_PROTO "
        "leave it",
        because="NCCL_ALGO and NCCL_PROTO hold for every collective, and not each has every "
        "algorithm: Tree and CollNetChain only do AllReduce; NVLS needs NVSwitch; CollNet needs "
        "the "
        "SHARP plugin and more than one node; PAT only does AllGather and ReduceScatter",
        costs="the collective fails",
        fix="unset NCCL_ALGO and NCCL_PROTO, or name more (NCCL_ALGO=Ring,Tree), or only for one "
        'operation (NCCL_ALGO="allreduce:tree;allgather:ring", from NCCL 2.24)',
        next="env | grep -E 'NCCL_(ALGO|PROTO)'; grep -E 'ALGO|PROTO' /etc/nccl.conf ~/.nccl.conf",
        explains=_FOLLOWS,
        links=(f"{_ENV}#nccl-algo", f"{_ENV}#nccl-proto"),
        positive=(
            "enqueue.cc:1200 NCCL WARN Error : no algorithm/protocol available",
            "enqueue.cc:1969 NCCL WARN Error : no algorithm/protocol available for function "
            "AllGather with datatype ncclInt8. NCCL_ALGO was set to Tree.",
        ),
        negative=("NCCL INFO NCCL_ALGO set by environment to Tree",),
    ),
    Rule(
        id="TOPO-007",
        category="nccl-algorithm",
        role="cause",
        confidence="certain",
        anchors=("The tuner plugin can not be loaded",),
        pattern=r"NCCL WARN .{0,40}tuner plugin can ?not be loaded when explicitly choosing",
        sentence="the OFI plugin's tuner refuses to start because NCCL_ALGO or NCCL_PROTO is set",
        because="some versions of aws-ofi-nccl's tuner return an error instead of standing back; "
        "on "
        "some machine types the plugin itself sets NCCL_PROTO",
        costs=_COSTS,
        fix="unset NCCL_ALGO and NCCL_PROTO, or unset NCCL_TUNER_PLUGIN, or update aws-ofi-nccl",
        next="env | grep -E 'NCCL_(ALGO|PROTO|TUNER)'",
        explains=_FOLLOWS,
        links=("https://github.com/aws/aws-ofi-nccl/issues/982",),
        positive=(
            "ncclResult_t nccl_ofi_tuner_init_v1(size_t, size_t, ncclDebugLogger_t):270 NCCL WARN "
            "NET/OFI The tuner plugin can not be loaded when explicitly choosing an algorithm or "
            "protocol with NCCL_ALGO/NCCL_PROTO",
        ),
        negative=("NCCL INFO NET/OFI The tuner plugin can not be loaded; using internal tuner",),
    ),
    Rule(
        id="TOPO-008",
        category="nccl-setting",
        role="cause",
        confidence="certain",
        anchors=("Unrecognized element token", "Unrecognized prefix token", "must have a prefix"),
        pattern=r"NCCL WARN (?P<what>unrecognized (?:element|prefix) token .{0,120}|all entries "
        r"except "
        r"the first must have a prefix.{0,120})",
        sentence="NCCL does not understand the value of NCCL_ALGO or NCCL_PROTO: {what}",
        because="the value is checked when the communicator is made; names differ between versions",
        costs=_COSTS,
        fix="unset it, or use names of this version: NCCL_ALGO Ring, Tree, CollNetDirect, "
        "CollNetChain, NVLS, NVLSTree, PAT; NCCL_PROTO LL, LL128, Simple",
        next="env | grep -E 'NCCL_(ALGO|PROTO)'",
        explains=_FOLLOWS,
        links=(f"{_ENV}#nccl-algo", f"{_ENV}#nccl-proto"),
        positive=(
            'graph/tuning.cc:80 NCCL WARN Unrecognized element token "rings" when parsing "rings"',
            'graph/tuning.cc:44 NCCL WARN All entries except the first must have a prefix: "a;b"',
        ),
        negative=("NCCL INFO NCCL_ALGO set by environment to Ring",),
    ),
)
