"""The fork handshake: messages between the launcher, the fork supervisor, the zygote and its children.

To make a child, in order:

1. The launcher sends FORK to the supervisor, with the tasks descriptors of the child's cgroup.
2. The supervisor sends the zygote a request: a number, with the child's ends of three pipes and these descriptors.
3. The child says CHILD_STARTED and the number over the control socket, by which the kernel names its process; or the
   zygote says CLONE_FAILED, the number and the kernel's errno.
4. The supervisor sets the child up from outside and writes CONTINUE to its stdin.
5. The child joins its cgroup, drops its privileges and writes CHILD_READY to its stdout.
6. The supervisor checks the child in /proc, writes CONTINUE, and answers FORKED with a pidfd and its ends of the pipes.

Handed to the stages beside their code, so it imports nothing.
"""

APPROVE, FORK = b"approve", b"fork"
"""The launcher's requests: check the zygote and make it ready for children; have one child forked."""
APPROVED, FORKED, FAILED = b"approved", b"forked", b"failed"
"""The supervisor's answers, in the order of the requests. FORKED brings the child's pid and `FORKED_DESCRIPTORS`."""
FORKED_DESCRIPTORS = 4
"""A pidfd, and the launcher's ends of stdin, stdout and stderr."""

CHILD_STARTED, CHILD_READY, CLONE_FAILED = b"s", b"r", b"f"
CONTINUE = b"c"
REQUEST_PIPES = 3
"""Descriptors at the head of a request: the child's ends of its pipes. Those of its cgroup follow."""
LONGEST_REQUEST_BYTES = 16
LONGEST_MESSAGE_BYTES = 64
"""Of a launcher's request, and of what a child says."""
LONGEST_ANSWER_BYTES = 8192
SUPERVISOR_STEP = "attendant"
"""The supervisor's step in errors, which callers see."""
