"""Become a child that dies with its parent, then exec the given command. Run as a script, standard library only.

    python -I -S launch.py PARENT_PID DEATH_SIGNAL IDENTITY WATCH_FD COMMAND…

IDENTITY is `same`, `namespace` (root sees itself as nobody inside a new user namespace; files stay root's) or
`nobody` (really user nobody, keeping only the capability to reach files). The last two exist because PostgreSQL refuses
to run as root. WATCH_FD is -1 where the kernel reports the parent's death, else the read end of a pipe whose write end
the parent holds: it reads as closed when the parent dies, however it dies.

This is a program of its own and not a `preexec_fn`, because code between fork and exec is not safe in a process that
has threads.
"""

import ctypes
import os
import signal
import struct
import sys

NOBODY = 65534
CLONE_NEWUSER = 0x10000000
PR_SET_PDEATHSIG = 1
PR_SET_KEEPCAPS = 8
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
CAP_DAC_OVERRIDE = 1
CAPABILITY_VERSION_3 = 0x20080522


def check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def enter_namespace(libc: ctypes.CDLL) -> None:
    user, group = os.geteuid(), os.getegid()
    check(libc.unshare(CLONE_NEWUSER), "unshare")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{NOBODY} {user} 1"),
        ("gid_map", f"{NOBODY} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def become_nobody(libc: ctypes.CDLL) -> None:
    check(libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0), "keep capabilities")
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    # A checkout below /root is closed to nobody: reaching files is the one power of root the server keeps.
    mask = 1 << CAP_DAC_OVERRIDE
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    check(libc.capset(header, struct.pack("=6I", mask, mask, mask, 0, 0, 0)), "capset")
    check(libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_OVERRIDE, 0, 0), "ambient capability")


def watch(descriptor: int, death_signal: int) -> None:
    """Leave a process behind that signals this one when the pipe closes."""
    target = os.getpid()
    if os.fork() != 0:
        os.close(descriptor)
        return
    os.setsid()
    for number in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    os.read(descriptor, 1)
    if os.getppid() == target:
        os.kill(target, death_signal)
    os._exit(0)


def main(arguments: list[str]) -> None:
    parent, death_signal, watch_fd = int(arguments[0]), int(arguments[1]), int(arguments[3])
    identity, command = arguments[2], arguments[4:]
    libc = ctypes.CDLL(None, use_errno=True)
    if identity == "namespace":
        enter_namespace(libc)
    elif identity == "nobody":
        become_nobody(libc)
    if watch_fd >= 0:
        watch(watch_fd, death_signal)
    else:
        # Last, because the kernel forgets this wish whenever a process changes who it is.
        check(libc.prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0), "parent-death signal")
        if os.getppid() != parent:
            raise SystemExit("the parent process is gone")
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.execvp(command[0], command)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as error:
        raise SystemExit(f"cannot start {' '.join(sys.argv[5:6])}: {error}") from None
