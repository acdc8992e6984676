"""System call numbers, per machine, of the calls that a sandboxed program may not make.

Calls that do not exist on a machine are left out of its table. Numbers from 424 up are the same everywhere.
"""

EVERYWHERE = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442, "quotactl_fd": 443,
    "landlock_restrict_self": 446, "memfd_secret": 447, "process_mrelease": 448,
}  # fmt: skip
"""Denied calls whose number does not depend on the machine."""

X86_64 = {
    "shmget": 29, "shmat": 30, "socket": 41, "connect": 42, "accept": 43, "bind": 49, "listen": 50,
    "semget": 64, "msgget": 68, "ptrace": 101, "syslog": 103, "personality": 135, "setpriority": 141,
    "sched_setparam": 142, "sched_setscheduler": 144, "vhangup": 153, "modify_ldt": 154, "pivot_root": 155,
    "adjtimex": 159, "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167,
    "swapoff": 168, "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173,
    "init_module": 175, "delete_module": 176, "quotactl": 179, "lookup_dcookie": 212, "clock_settime": 227,
    "mbind": 237, "mq_open": 240, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250,
    "ioprio_set": 251, "migrate_pages": 256, "unshare": 272, "move_pages": 279, "accept4": 288,
    "perf_event_open": 298, "fanotify_init": 300, "fanotify_mark": 301, "name_to_handle_at": 303,
    "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310,
    "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "sched_setattr": 314, "seccomp": 317,
    "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323,
}  # fmt: skip
"""Denied calls on x86_64."""

AARCH64 = {
    "lookup_dcookie": 18, "ioprio_set": 30, "umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51, "vhangup": 58,
    "quotactl": 60, "acct": 89, "personality": 92, "unshare": 97, "kexec_load": 104, "init_module": 105,
    "delete_module": 106, "clock_settime": 112, "syslog": 116, "ptrace": 117, "sched_setparam": 118,
    "sched_setscheduler": 119, "setpriority": 140, "reboot": 142, "sethostname": 161, "setdomainname": 162,
    "settimeofday": 170, "adjtimex": 171, "mq_open": 180, "msgget": 186, "semget": 190, "shmget": 194, "shmat": 196,
    "socket": 198, "bind": 200, "listen": 201, "accept": 202, "connect": 203, "add_key": 217, "request_key": 218,
    "keyctl": 219, "swapon": 224, "swapoff": 225, "mbind": 235, "migrate_pages": 238, "move_pages": 239,
    "perf_event_open": 241, "accept4": 242, "fanotify_init": 262, "fanotify_mark": 263, "name_to_handle_at": 264,
    "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268, "process_vm_readv": 270,
    "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "sched_setattr": 274, "seccomp": 277, "bpf": 280,
    "userfaultfd": 282, "kexec_file_load": 294,
}  # fmt: skip
"""Denied calls on aarch64."""

DENIED = {"x86_64": X86_64 | EVERYWHERE, "aarch64": AARCH64 | EVERYWHERE}
"""Machine -> name -> number."""

CLONE = {"x86_64": 56, "aarch64": 220}
IOCTL = {"x86_64": 16, "aarch64": 29}
PRLIMIT64 = {"x86_64": 302, "aarch64": 261}
CLONE3 = 435
LAST_KNOWN = 462
"""Calls with a higher number are newer than this table and answer "no such call"."""
