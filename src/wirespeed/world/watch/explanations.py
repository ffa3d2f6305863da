"""What each finding of the watchdog means, for `--explain ID`."""

__all__ = ["EXPLANATIONS"]

EXPLANATIONS: dict[str, str] = {
    "DIED-001": """\
A rank's process ended, or its connection to the console closed, before it said goodbye.
The signal or exit code is shown where the process was started on the same machine as the console;
for other machines the launcher's output has it. Other ranks that failed a moment later with
"connection closed" are consequences and are not blamed.
SIGKILL comes from the kernel's out-of-memory killer, a scheduler or a person; SIGBUS often from a
full /dev/shm; SIGSEGV and SIGABRT from native code (a driver, NCCL, MPI, PyTorch).""",
    "EXIT-001": """\
A rank delivered all its results and said goodbye, and its process then ended with another exit
code than it announced, or did not end. The results are complete and stay valid, so this is a
warning. PyTorch's Gloo threads do this now and then ("terminate called without an active
exception", SIGABRT) after destroy_process_group.""",
    "HANG-001": """\
A rank sent no heartbeat for longer than the bound of one operation and did not answer when it was
asked for its stack. A thread of its own sends the heartbeat, so slow work does not stop it: the
process is stopped (SIGSTOP, a debugger, a frozen cgroup), its interpreter is stuck in native code
that holds the GIL, or its machine is gone. All other ranks wait for it.""",
    "HANG-002": """\
All ranks answer, but some have begun fewer operations than others. Every rank counts the
operations that it begins; in a healthy world the counts differ by one at most and only for a
moment. The rank behind is stuck or slow in its own code before the operation that the others wait
in; its Python stack is the evidence. Where only a few are ahead of most, those few are named: they
began an operation that the others did not.""",
    "HANG-003": """\
Ranks gave the same number to different operations: they do not run the same program, or took
different branches (a condition on the rank, different data, different settings). A collective ends
only when every rank calls the same one in the same order.""",
    "HANG-004": """\
Every rank answers and waits in the same operation, so no rank is to blame: data does not arrive.
Typical causes: a firewall that lets the rendezvous port through but not the ports of the data
connections, the wrong interface (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME), an MTU that differs
along the path so that only large messages are lost, a link that went down.""",
    "INT-001": """\
The run was interrupted from outside (Ctrl-C, or a signal). All ranks were ended. What had been
measured until then is kept.""",
    "JOIN-001": """\
A rank did not join the world within the start-up bound: it never connected to the console, or it
connected and stayed in an early phase (importing PyTorch, forming the process group) while others
were through. All other ranks wait for it.""",
    "JOIN-002": """\
Two processes that know the run's key said that they are the same rank. Both are named with their
addresses, and the run ends: which of them is the rank cannot be told, so no figure of it can be
trusted. As a rule a launcher or a person started a rank twice, or two jobs share one port. Without a
secret the run's key stands in the world's store, where whoever reaches it can read it: give the run
one (WIRESPEED_SECRET, or --secret-file) where others share the network.""",
    "JOIN-003": """\
Somebody connected to the console and said something that was not sealed with the run's key: a rank
of another run with a wrong address, a port scanner, or somebody who wants to be taken for a rank.
Each was turned away at its first line, and nothing that they said was read. Callers who say nothing
are not told of.""",
    "RAISED-001": """\
A rank ended with a Python exception. The last line and the traceback are shown. It is the first
exception that is not a consequence of another rank's end ("connection closed by peer", "timed
out"); those are shown only when nothing else explains them.""",
}
