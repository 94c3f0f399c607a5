/* Births and deaths among the descendants of processes. */
#ifndef STROBE_PROCESS_PROCESS_EVENTS_H
#define STROBE_PROCESS_PROCESS_EVENTS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum process_event_kind { PROCESS_FORKED, PROCESS_EXECED, PROCESS_EXITED };

struct process_event {
    enum process_event_kind kind;
    pid_t pid;
    pid_t parent_pid;     /* who started it; 0: not known */
    uint64_t start_ticks; /* field 22 of /proc/PID/stat, tells two processes of the same id apart; 0: not known */
    uint64_t time_ns;     /* CLOCK_MONOTONIC */
    bool status_known;
    int wait_status; /* as from waitpid, for PROCESS_EXITED when it is known */
};

struct process_events;

/* Watches `roots` and all that descends from them, also when the process between has ended. Descendants that live
 * already are told as PROCESS_FORKED. Each process is told of once: one PROCESS_FORKED (none for a root), one
 * PROCESS_EXITED at most.
 *
 * The kernel tells of each event (netlink's process connector) where strobe has CAP_NET_ADMIN and is in the first user
 * and pid namespaces. Elsewhere /proc is searched every scan_period_ns: then what lives shorter than that can be
 * missed, with all that it started; exit statuses are not known; and an exec is seen only where the process may be
 * read. */
enum status process_events_open(const pid_t *roots, size_t count, uint64_t scan_period_ns,
                                struct process_events **events, struct error *error) MUST_USE;
void process_events_free(struct process_events *events);

/* For poll(2): readable when process_events_next may have something. Call that until it has nothing. */
int process_events_fd(const struct process_events *events);
/* The next event; never blocks. STATUS_NOT_FOUND: none now. */
enum status process_events_next(struct process_events *events, struct process_event *event) MUST_USE;
/* Whether the kernel tells of each, so that none is missed. */
bool process_events_complete(const struct process_events *events);

#endif
