"""ssh, with which launchers start the other nodes."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_EXPLAINS = ("mpi-daemon", "mpi-lost-node", "launcher-exit")
_KEYS = (
    "let the launcher's user log in without a password: ssh-copy-id USER@HOST (or put the public "
    "key "
    "into ~/.ssh/authorized_keys on every node); ~/.ssh must have mode 700, the files in it 600"
)
_PORT = (
    "start sshd on the node (systemctl start sshd; in a container: mkdir -p /run/sshd && "
    "/usr/sbin/sshd -p PORT) and tell the launcher another port where it is not 22: "
    '--mca plm_rsh_args "-p PORT" (PRTE: plm_ssh_args), or Port in ~/.ssh/config'
)
_LINKS = (
    "https://man.openbsd.org/ssh",
    "https://docs.open-mpi.org/en/v5.0.x/launching-apps/ssh.html",
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="SSH-001",
        category="launcher-dns",
        role="cause",
        confidence="certain",
        anchors=("Could not resolve hostname",),
        pattern=r"could not resolve hostname (?P<target>[^\s:]+)\s?: ",
        unless=r"hostname \S+:\d+\s?: ",
        sentence="the host name {target} cannot be resolved: ssh does not reach that worker",
        because="the launcher starts the other nodes with ssh, and DNS (or /etc/hosts) does not "
        "know "
        "this name where the launcher runs",
        costs="no process is started on that node",
        fix="use names that resolve on every node, or addresses. In Kubernetes: the headless "
        "service "
        "must exist with the pods' subdomain, wait until the workers are ready (publishNotReady"
        "Addresses: true), and set dnsPolicy: ClusterFirst (ClusterFirstWithHostNet with "
        "hostNetwork)",
        next="on the launcher: getent hosts {target}",
        explains=_EXPLAINS,
        links=_LINKS,
        positive=(
            "ssh: Could not resolve hostname nohost-xyz: Name or service not known",
            "ssh: Could not resolve hostname w-1.w.ns.svc: Temporary failure in name resolution",
            "ssh: Could not resolve hostname node7: nodename nor servname provided, or not known",
        ),
        negative=(
            "ssh: Could not resolve hostname localhost:4: Name or service not known",
            "Warning: Permanently added 'w-1,10.0.0.4' (ECDSA) to the list of known hosts.",
        ),
    ),
    Rule(
        id="SSH-002",
        category="launcher-ssh",
        role="cause",
        confidence="certain",
        anchors=("Permission denied (", "Permission denied, please", "Too many authentication"),
        pattern=r"permission denied \((?=\w*(?:publickey|password|keyboard|gssapi|hostbased))"
        r"|permission denied, please try again|too many authentication failures",
        sentence="ssh is refused by the other node: no key that it accepts (Permission denied)",
        because="the launcher starts processes over ssh without a terminal: it needs a login by "
        "key",
        costs="no process is started on that node",
        fix=_KEYS,
        next="as the same user: ssh -o BatchMode=yes HOST true",
        explains=_EXPLAINS,
        links=_LINKS,
        positive=(
            "mpiuser@10.0.0.7: Permission denied (publickey,password).",
            "Permission denied, please try again.",
            "root@node2: Permission denied (publickey,gssapi-keyex,gssapi-with-mic,password).",
            "Received disconnect from 10.0.0.7 port 22:2: Too many authentication failures",
        ),
        negative=(
            "PermissionError: [Errno 13] Permission denied: '/data/ckpt'",
            "bash: ./train.sh: Permission denied",
        ),
    ),
    Rule(
        id="SSH-003",
        category="launcher-ssh",
        role="cause",
        confidence="certain",
        anchors=("Host key verification failed", "REMOTE HOST IDENTIFICATION HAS CHANGED"),
        pattern=r"host key verification failed|remote host identification has changed",
        sentence="ssh does not trust the other node's host key (Host key verification failed)",
        because="the node is not in known_hosts, or was installed anew and has another key; "
        "without "
        "a terminal ssh cannot ask",
        costs="no process is started on that node",
        fix="add the nodes' keys: ssh-keyscan HOST >> ~/.ssh/known_hosts (first ssh-keygen -R HOST "
        "where a node was reinstalled), or StrictHostKeyChecking accept-new in ~/.ssh/config",
        next="as the same user: ssh -o BatchMode=yes HOST true",
        explains=_EXPLAINS,
        links=_LINKS,
        positive=(
            "Host key verification failed.",
            "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @",
        ),
        negative=("Warning: Permanently added 'n2' (ED25519) to the list of known hosts.",),
    ),
    Rule(
        id="SSH-004",
        category="launcher-ssh",
        role="cause",
        confidence="certain",
        anchors=("connect to host ",),
        pattern=r"connect to host (?P<target>\S+) port (?P<port>\d+): connection refused",
        sentence="nothing listens for ssh on {target} port {port} (Connection refused)",
        because="the node answers, but no sshd runs there on this port (or a firewall rejects it)",
        costs="no process is started on that node",
        fix=_PORT,
        next="ssh -p {port} {target} true",
        explains=_EXPLAINS,
        links=_LINKS,
        positive=(
            "ssh: connect to host 127.0.0.2 port 22: Connection refused",
            "ssh: connect to host worker-1 port 2222: Connection refused",
        ),
        negative=(
            "ssh: connect to host node9 port 22: Connection timed out",
            "dial tcp 10.0.0.4:6443: connect: connection refused",
        ),
    ),
    Rule(
        id="SSH-005",
        category="launcher-ssh",
        role="cause",
        anchors=("connect to host ", "during banner exchange", " port 22 timed out"),
        pattern=r"connect to host (?P<target>\S+) port \d+: (?!connection refused)\w"
        r"|timed out during banner exchange|connection to \S+ port \d+ timed out",
        sentence="ssh does not reach the other node: it is down, or a firewall or route is in "
        "the way",
        because="no answer came from the node's ssh port",
        costs="no process is started on that node",
        fix="check that the node is up and that its ssh port is open from the launcher (security "
        "group, firewall, route); use the address of the network that both share. " + _PORT,
        next="ping HOST; nc -vz HOST 22",
        explains=_EXPLAINS,
        links=_LINKS,
        positive=(
            "ssh: connect to host node9 port 22: Connection timed out",
            "ssh: connect to host 10.1.2.3 port 22: No route to host",
            "Connection to 10.255.255.1 port 22 timed out",
            "Connection timed out during banner exchange",
        ),
        negative=("ssh: connect to host node9 port 22: Connection refused",),
    ),
    Rule(
        id="SSH-006",
        category="launcher-ssh",
        role="cause",
        anchors=("ssh_exchange_identification", "kex_exchange_identification", "MaxStartups"),
        pattern=r"(?:ssh|kex)_exchange_identification:|beginning MaxStartups throttling"
        r"|(?:past|exceeded) MaxStartups",
        sentence="the other node's sshd closed the connection before the login",
        because="sshd drops new connections beyond MaxStartups (10:30:100) when many come at "
        "once, or "
        "denies this host (hosts.deny, fail2ban), or does not run properly",
        costs="no process is started on that node",
        fix="raise MaxStartups (such as 1000) in /etc/ssh/sshd_config of the nodes, or start "
        "fewer at "
        "once (Open MPI: --mca plm_rsh_num_concurrent 32); look at hosts.deny and journalctl -u "
        "sshd",
        next="on that node: journalctl -u sshd -n 50",
        explains=_EXPLAINS,
        links=_LINKS,
        positive=(
            "kex_exchange_identification: Connection closed by remote host",
            "ssh_exchange_identification: read: Connection reset by peer",
            "sshd[811]: error: beginning MaxStartups throttling",
            "sshd[811]: drop connection #10 from [10.0.0.1]:5000 on [10.0.0.2]:22 past MaxStartups",
        ),
        negative=("debug1: kex: algorithm: curve25519-sha256",),
    ),
    Rule(
        id="SSH-007",
        category="launcher-ssh",
        role="cause",
        confidence="certain",
        anchors=("ssh: command not found", "ssh: not found", "plm_rsh_agent", "plm_ssh_agent"),
        pattern=r"(?:^|[\s:/])r?ssh: (?:command )?not found"
        r"|parameter \"plm_(?:rsh|ssh)_agent\" was set to a path",
        sentence="there is no ssh here: the launcher cannot start other nodes",
        because="Open MPI and hydra start the other nodes with the ssh client",
        costs="no process is started on other nodes",
        fix="install the client in the image (apt-get install openssh-client), or name another "
        "agent: "
        "--mca plm_rsh_agent PATH",
        next="command -v ssh",
        explains=_EXPLAINS,
        links=_LINKS,
        positive=(
            "/bin/sh: 1: ssh: not found",
            "bash: ssh: command not found",
            'The value of the MCA parameter "plm_rsh_agent" was set to a path',
        ),
        negative=("mpirun --mca plm_rsh_agent ssh -np 2 ./a.out",),
    ),
    Rule(
        id="SSH-008",
        category="launcher-ssh",
        role="cause",
        confidence="certain",
        anchors=("UNPROTECTED PRIVATE KEY", "Bad owner or permissions", "are too open"),
        pattern=r"unprotected private key file|bad owner or permissions on|permissions \d+ for "
        r".{1,200}"
        r"are too open",
        sentence="ssh ignores its key or config: others may read or write the file",
        because="ssh uses private keys only where nobody else may read them; files mounted from "
        "secrets are often readable to all",
        costs="the login by key fails: no process is started on other nodes",
        fix="chmod 700 ~/.ssh; chmod 600 ~/.ssh/id_* ~/.ssh/config; in Kubernetes defaultMode: "
        "0600 "
        "for the secret",
        next="ls -la ~/.ssh",
        explains=("SSH-002", *_EXPLAINS),
        links=_LINKS,
        positive=(
            "@         WARNING: UNPROTECTED PRIVATE KEY FILE!          @",
            "Permissions 0644 for '/root/.ssh/id_rsa' are too open.",
            "Bad owner or permissions on /root/.ssh/config",
        ),
        negative=("too many files are open",),
    ),
    Rule(
        id="SSH-009",
        category="launcher-ssh",
        role="cause",
        confidence="certain",
        anchors=("no matching", "Missing privilege separation", "no hostkeys available"),
        pattern=r"unable to negotiate with \S+|missing privilege separation directory"
        r"|sshd: no hostkeys available",
        sentence="ssh and sshd do not come together: sshd is not set up, or they share no "
        "algorithm",
        because="sshd in a container needs /run/sshd and host keys; very old and very new versions "
        "share no key type",
        costs="no process is started on that node",
        fix="in the container: mkdir -p /run/sshd && ssh-keygen -A before sshd; between "
        "versions: use "
        "keys of type ed25519 and update the older side",
        next="on that node: /usr/sbin/sshd -t",
        explains=_EXPLAINS,
        links=_LINKS,
        positive=(
            "Unable to negotiate with 10.0.0.4 port 22: no matching host key type found. "
            "Their offer: ssh-rsa",
            "Missing privilege separation directory: /run/sshd",
            "sshd: no hostkeys available -- exiting.",
        ),
        negative=("no matching distribution found for torch",),
    ),
    Rule(
        id="SSH-010",
        category="launcher-exit",
        role="consequence",
        stage="aftermath",
        anchors=("closed by remote host", "client_loop: send disconnect", "packet_write_wait"),
        pattern=r"connection to \S+ closed by remote host|client_loop: send disconnect"
        r"|packet_write_wait: connection",
        sentence="an ssh connection ended with the job or with the node",
        positive=(
            "Connection to 10.0.0.4 closed by remote host.",
            "client_loop: send disconnect: Broken pipe",
        ),
        negative=("kex_exchange_identification: Connection closed by remote host",),
    ),
)
