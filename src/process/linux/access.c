/* Why the kernel refuses, in words that name what to change (ptrace(2), "Ptrace access mode checking"). */
#include "process/linux/linux_process.h"
#include "process/linux/proc_files.h"
#include "process/machine.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CAP_SYS_PTRACE_BIT = 19 };

int access_ptrace_scope(void) {
    char text[16];
    if (proc_read_text(AT_FDCWD, "/proc/sys/kernel/yama/ptrace_scope", text, sizeof text) != STATUS_OK)
        return MACHINE_UNKNOWN;
    return (int)strtol(text, NULL, 10);
}

bool access_may_trace(void) {
    struct buffer text;
    buffer_init(&text, 1 << 21);
    bool have = false;
    if (proc_read_whole(AT_FDCWD, "/proc/self/status", &text) == STATUS_OK) {
        const char *effective = proc_status_field(buffer_text(&text), "CapEff");
        have = effective != NULL && (strtoull(effective, NULL, 16) >> CAP_SYS_PTRACE_BIT & 1) != 0;
    }
    buffer_release(&text);
    return have;
}

/* The real user id of the process, from its status (the owner of its /proc files is root when it is not dumpable). */
static bool read_user(const struct process *process, uid_t *user) {
    struct buffer text;
    buffer_init(&text, 1 << 21);
    bool found = false;
    if (proc_read_whole(process->dir_fd, "status", &text) == STATUS_OK) {
        const char *value = proc_status_field(buffer_text(&text), "Uid");
        if (value != NULL) {
            *user = (uid_t)strtoul(value, NULL, 10);
            found = true;
        }
    }
    buffer_release(&text);
    return found;
}

static void explain(const struct process *process, char *reason, size_t capacity) {
    uid_t user = 0;
    int scope = access_ptrace_scope();
    if (access_may_trace())
        (void)snprintf(reason, capacity,
                       scope == 3 ? "ptrace_scope is 3, which forbids it to everyone until the next boot"
                                  : "a security module, seccomp or the user namespace forbids it even with "
                                    "CAP_SYS_PTRACE; run outside the container");
    else if (geteuid() == 0)
        (void)snprintf(reason, capacity,
                       "this root lacks CAP_SYS_PTRACE; in a container, start it with --cap-add=SYS_PTRACE");
    else if (read_user(process, &user) && user != geteuid())
        (void)snprintf(reason, capacity, "it belongs to user %u; run as root, or give strobe CAP_SYS_PTRACE",
                       (unsigned)user);
    else if (scope == 1)
        (void)snprintf(reason, capacity,
                       "ptrace_scope is 1; run as root, or allow it with sysctl kernel.yama.ptrace_scope=0");
    else if (scope >= 2)
        (void)snprintf(reason, capacity, "ptrace_scope is %d; %s", scope,
                       scope == 2 ? "run as root, or give strobe CAP_SYS_PTRACE"
                                  : "it forbids this to everyone until the next boot");
    else
        (void)snprintf(reason, capacity,
                       "it has raised privileges or is not dumpable; run as root, or give strobe CAP_SYS_PTRACE");
}

pid_t process_tracer(const struct process *process) {
    struct buffer text;
    pid_t tracer = 0;
    buffer_init(&text, 1 << 21);
    if (proc_read_whole(process->dir_fd, "status", &text) == STATUS_OK) {
        const char *value = proc_status_field(buffer_text(&text), "TracerPid");
        tracer = value != NULL ? (pid_t)strtol(value, NULL, 10) : 0;
    }
    buffer_release(&text);
    return tracer;
}

enum status process_explain_denial(const struct process *process, struct error *error) {
    char reason[256];
    explain(process, reason, sizeof reason);
    return error_set(error, STATUS_PERMISSION, "cannot read process %d: permission denied (%s)", (int)process->pid,
                     reason);
}
