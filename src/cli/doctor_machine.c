#include "cli/doctor.h"
#include "cli/preload.h"
#include "process/machine.h"

#include <limits.h>

/* What seccomp, a security module or a container withholds even from a parent. */
static bool find_reading(const struct machine *machine) {
    /* find_permission says what is in the way. */
    if (machine->ptrace_scope == 3 || (machine->ptrace_scope == 2 && !machine->can_trace))
        return false;
    if (machine->reads_vector)
        doctor_find(FINDING_WORKS, "memory is read with process_vm_readv");
    else if (machine->reads_file)
        doctor_find(FINDING_NOTE, "memory is read through /proc/PID/mem: process_vm_readv is refused (seccomp)");
    else
        doctor_find(FINDING_MISSING, "memory of other processes cannot be read, not even of a child: a container or a "
                                     "security module forbids it; start the container with --cap-add=SYS_PTRACE");
    if (machine->seizes)
        doctor_find(FINDING_WORKS, "threads can be stopped for a look (--blocking)");
    else
        doctor_find(FINDING_MISSING,
                    "threads cannot be stopped (--blocking): ptrace is refused; in a container, start it "
                    "with --cap-add=SYS_PTRACE");
    return machine->reads_vector || machine->reads_file;
}

/* Which processes: ptrace(2), "Ptrace access mode checking". */
static bool find_permission(const struct machine *machine) {
    if (machine->ptrace_scope == 3) {
        doctor_find(FINDING_MISSING, "no process can be read: ptrace_scope is 3, until the next boot");
        return false;
    }
    if (machine->can_trace) {
        doctor_find(FINDING_WORKS, "processes of all users can be read (CAP_SYS_PTRACE)");
        return true;
    }
    const char *others = machine->is_root ? "in a container, start it with --cap-add=SYS_PTRACE"
                                          : "run as root, or give strobe CAP_SYS_PTRACE";
    if (machine->ptrace_scope == 1)
        doctor_find(FINDING_MISSING,
                    "of your own processes only those that strobe starts can be read: ptrace_scope is 1; "
                    "run as root, or allow it with sysctl kernel.yama.ptrace_scope=0");
    else if (machine->ptrace_scope == 2)
        doctor_find(FINDING_MISSING, "no process can be read: ptrace_scope is 2; %s", others);
    else
        doctor_find(FINDING_WORKS, "your own processes can be read");
    if (machine->ptrace_scope <= 0)
        doctor_find(FINDING_NOTE, "other users' processes cannot be read: %s", others);
    if (machine->hides)
        doctor_find(FINDING_NOTE, "other users' processes are not even seen: /proc is mounted with hidepid");
    return machine->ptrace_scope <= 0;
}

static void find_kernel(const struct machine *machine) {
    if (machine->tells_events)
        doctor_find(FINDING_WORKS, "the kernel tells of every child process (--children)");
    else
        doctor_find(FINDING_NOTE, "children are searched for every 50 ms, and one that lives shorter can be missed "
                                  "(--children): for more, run as root in the first namespace (CAP_NET_ADMIN)");
    if (machine->cuts_calls)
        doctor_find(FINDING_NOTE, "this kernel's CPU timers (before Linux 5.9) cut system calls of C code short with "
                                  "EINTR: where a program does not bear that, strobe run --no-agent");
    if (machine->perf_event_paranoid != MACHINE_UNKNOWN)
        doctor_find(FINDING_NOTE, "perf_event_paranoid is %d; strobe run --clock perf %s, and nothing else needs it",
                    machine->perf_event_paranoid, machine_try_perf(NULL) == STATUS_OK ? "works" : "does not work");
    if (machine->unprivileged_userfaultfd != MACHINE_UNKNOWN)
        doctor_find(FINDING_NOTE, "unprivileged_userfaultfd is %d; strobe needs none",
                    machine->unprivileged_userfaultfd);
}

bool doctor_machine(void) {
    struct machine machine;
    machine_examine(&machine);
    doctor_section("strobe " STROBE_VERSION " on %s, %s", machine.system, machine.architecture);
    bool reads = find_reading(&machine);
    bool may = find_permission(&machine);
    find_kernel(&machine);
    return reads && may;
}

void doctor_agent(void) {
    char path[PATH_MAX];
    struct error error = {0};
    doctor_section("Agent, for 'strobe run'");
    if (preload_find_agent(path, sizeof path, &error) == STATUS_OK)
        doctor_find(FINDING_WORKS, "%s", path);
    else
        doctor_find(FINDING_MISSING, "%s", error.text);
}
