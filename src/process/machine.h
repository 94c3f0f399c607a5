/* What this machine lets strobe do to other processes. */
#ifndef STROBE_PROCESS_MACHINE_H
#define STROBE_PROCESS_MACHINE_H

#include "process/process.h"

enum { MACHINE_UNKNOWN = -1 };

struct machine {
    char system[72]; /* "Linux 6.1.0" */
    char architecture[72];
    bool cuts_calls; /* CPU timers expire in interrupts, so that their signals end system calls (Linux before 5.9) */
    bool is_root;
    bool can_trace;               /* CAP_SYS_PTRACE: processes of other users, and whatever ptrace_scope says but 3 */
    int ptrace_scope;             /* Yama's; MACHINE_UNKNOWN where there is none */
    bool hides;                   /* /proc does not show other users' processes (hidepid) */
    bool reads_vector;            /* tried with a child: process_vm_readv */
    bool reads_file;              /* … /proc/PID/mem */
    bool seizes;                  /* … stopping it with ptrace */
    bool tells_events;            /* the kernel tells of the births and ends of processes */
    int perf_event_paranoid;      /* MACHINE_UNKNOWN where there are no perf events */
    int unprivileged_userfaultfd; /* MACHINE_UNKNOWN where the kernel has none */
};

/* Tries and asks. What could not be found out is as if it were not allowed. */
void machine_examine(struct machine *machine);

/* Tries the perf events by which a program's threads can interrupt themselves (agent/perf.h). Else what is in the way:
 * STATUS_PERMISSION, or STATUS_FAILED where the kernel has none. */
enum status machine_try_perf(struct error *error) MUST_USE;

/* Runs a command, which is not searched on PATH, and takes what it writes, cut to the capacity. It gets nothing to
 * read, and is killed after so many milliseconds. STATUS_FAILED: it did not end by then, or not well. */
enum status machine_ask_command(const char *const *command, unsigned patience_ms, char *text, size_t capacity) MUST_USE;

#endif
