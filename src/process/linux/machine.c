#include "process/machine.h"

#include "process/linux/linux_process.h"
#include "process/linux/proc_files.h"
#include "process/process_events.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SCAN_PERIOD_NS = 1000000000 };

static int read_setting(const char *path) {
    char text[16];
    if (proc_read_text(AT_FDCWD, path, text, sizeof text) != STATUS_OK)
        return MACHINE_UNKNOWN;
    return (int)strtol(text, NULL, 10);
}

static bool read_file_of(pid_t pid, const void *address, void *buffer, size_t size_bytes) {
    char path[32];
    (void)snprintf(path, sizeof path, "/proc/%d/mem", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool got = fd >= 0 && pread(fd, buffer, size_bytes, (off_t)(uintptr_t)address) == (ssize_t)size_bytes;
    if (fd >= 0)
        (void)close(fd);
    return got;
}

static bool stop(pid_t pid) {
    int wait_status = 0;
    if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) != 0)
        return false;
    return ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) == 0 && waitpid(pid, &wait_status, __WALL) == pid &&
           WIFSTOPPED(wait_status);
}

/* A child is what one may read if one may read anything: what fails here, a container or a filter of system calls
 * forbids. */
static void try_child(struct machine *machine) {
    static volatile uint64_t token = 0x7374726f6265;
    uint64_t copy = 0;
    struct iovec local = {&copy, sizeof copy}, remote = {(void *)(uintptr_t)&token, sizeof copy};
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == parent)
            (void)pause();
        _exit(0);
    }
    if (pid < 0)
        return;
    machine->reads_vector = process_vm_readv(pid, &local, 1, &remote, 1, 0) == (ssize_t)sizeof copy && copy == token;
    copy = 0;
    machine->reads_file = read_file_of(pid, (const void *)(uintptr_t)&token, &copy, sizeof copy) && copy == token;
    machine->seizes = stop(pid);
    (void)kill(pid, SIGKILL);
    while (waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
        ;
}

static bool tells_events(void) {
    struct process_events *events = NULL;
    struct error ignored = {0};
    pid_t own = getpid();
    if (process_events_open(&own, 1, SCAN_PERIOD_NS, &events, &ignored) != STATUS_OK)
        return false;
    bool complete = process_events_complete(events);
    process_events_free(events);
    return complete;
}

static int perf_setting(void) {
    return read_setting("/proc/sys/kernel/perf_event_paranoid");
}

static enum status explain_perf(int problem, struct error *error) {
    enum { MOST_PARANOID = 2 }; /* Documentation/admin-guide/sysctl/kernel.rst; distributions know 3 and 4 */
    int paranoid = perf_setting();
    if (problem != EACCES && problem != EPERM)
        return error_set(error, STATUS_FAILED, "this kernel has no such perf events (Linux 5.13 has)");
    if (paranoid > MOST_PARANOID)
        return error_set(error, STATUS_PERMISSION,
                         "perf events are not permitted: perf_event_paranoid is %d; run as root, or allow them with "
                         "sysctl kernel.perf_event_paranoid=2",
                         paranoid);
    return error_set(error, STATUS_PERMISSION,
                     "perf events are not permitted: a container or a security module forbids perf_event_open; start "
                     "the container with --cap-add=PERFMON");
}

enum status machine_try_perf(struct error *error) {
    struct perf_event_attr attributes = {
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof attributes,
        .config = PERF_COUNT_SW_TASK_CLOCK,
        .disabled = 1,
        .exclude_kernel = 1,
        .exclude_hv = 1,
        .remove_on_exec = 1,
    };
    int event = (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    if (event < 0)
        return explain_perf(errno, error);
    (void)close(event);
    return STATUS_OK;
}

static bool is_before(const char *release, unsigned long major, unsigned long minor) {
    char *rest = NULL;
    unsigned long own_major = strtoul(release, &rest, 10);
    unsigned long own_minor = *rest == '.' ? strtoul(rest + 1, NULL, 10) : 0;
    return own_major < major || (own_major == major && own_minor < minor);
}

void machine_examine(struct machine *machine) {
    struct utsname name;
    *machine = (struct machine){.is_root = geteuid() == 0, .can_trace = access_may_trace()};
    if (uname(&name) == 0) {
        (void)snprintf(machine->system, sizeof machine->system, "%.20s %.50s", name.sysname, name.release);
        machine->cuts_calls = is_before(name.release, 5, 9);
        (void)snprintf(machine->architecture, sizeof machine->architecture, "%s", name.machine);
    }
    machine->ptrace_scope = access_ptrace_scope();
    machine->hides = access("/proc/1", F_OK) != 0;
    machine->perf_event_paranoid = perf_setting();
    machine->unprivileged_userfaultfd = read_setting("/proc/sys/vm/unprivileged_userfaultfd");
    try_child(machine);
    machine->tells_events = tells_events();
}
