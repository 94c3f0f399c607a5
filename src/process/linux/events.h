/* What the files behind process_events.h share: events.c keeps who is watched, events_netlink.c and events_scan.c find
 * out what happens. */
#ifndef STROBE_PROCESS_LINUX_EVENTS_H
#define STROBE_PROCESS_LINUX_EVENTS_H

#include "process/process_events.h"

struct watched {
    pid_t pid;
    pid_t parent_pid;
    uint64_t start_ticks;
    uint64_t start_code; /* changes with an exec; 0: not to be read */
    bool leader_ended;   /* its first thread has, others may live */
    int wait_status;     /* with leader_ended */
};

struct process_events {
    int fd;
    bool from_kernel;
    struct watched *watched; /* sorted by pid */
    size_t watched_count;
    size_t watched_capacity;
    struct process_event *queue; /* from queue_first on */
    size_t queue_first;
    size_t queue_count;
    size_t queue_capacity;
};

/* From /proc/PID/stat. */
struct process_stat {
    char state;
    pid_t parent_pid;
    uint32_t flags; /* PF_* */
    uint64_t threads;
    uint64_t start_ticks;
    uint64_t start_code;
};
bool events_read_stat(pid_t pid, struct process_stat *stat);
/* Whether the last of its threads has ended, or is about to. */
bool events_stat_ended(const struct process_stat *stat);

/* NULL when the process is not watched. Valid until the next watch or end. */
struct watched *events_find(const struct process_events *events, pid_t pid);
enum status events_push(struct process_events *events, const struct process_event *event) MUST_USE;
/* Begins to watch a process, and tells of it when `tell`. One that is watched already stays as it is. */
enum status events_begin(struct process_events *events, pid_t pid, pid_t parent_pid, uint64_t time_ns,
                         bool tell) MUST_USE;
/* Tells of its end and forgets it. `wait_status` may be NULL. */
enum status events_end(struct process_events *events, struct watched *watched, const int *wait_status,
                       uint64_t time_ns) MUST_USE;

/* Looks through /proc: new descendants, execs, ends. */
enum status events_scan(struct process_events *events) MUST_USE;
enum status events_open_timer(struct process_events *events, uint64_t period_ns, struct error *error) MUST_USE;
enum status events_poll_timer(struct process_events *events) MUST_USE;

/* STATUS_PERMISSION when the kernel does not tell this process. */
enum status events_open_netlink(struct process_events *events) MUST_USE;
enum status events_poll_netlink(struct process_events *events) MUST_USE;

#endif
