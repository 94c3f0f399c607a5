#include "process/linux/events.h"
#include "base/array.h"
#include "base/clock.h"
#include "process/linux/proc_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WATCHED_MAX = 1 << 20, QUEUE_MAX = 1 << 22, STAT_TEXT_BYTES = 1024 };

/* The fields behind the command, counted from 3 (proc_pid_stat(5)). */
enum {
    FIELD_STATE = 3,
    FIELD_PARENT = 4,
    FIELD_FLAGS = 9,
    FIELD_THREADS = 20,
    FIELD_START_TICKS = 22,
    FIELD_START_CODE = 26,
};

static bool read_stat(pid_t pid, struct process_stat *stat) {
    char name[32], text[STAT_TEXT_BYTES];
    (void)snprintf(name, sizeof name, "/proc/%d/stat", (int)pid);
    if (proc_read_text(AT_FDCWD, name, text, sizeof text) != STATUS_OK)
        return false;
    char *at = strrchr(text, ')'), *rest = NULL;
    if (at == NULL)
        return false;
    *stat = (struct process_stat){0};
    int field = FIELD_STATE;
    for (char *word = strtok_r(at + 1, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest), field++) {
        uint64_t value = strtoull(word, NULL, 10);
        if (field == FIELD_STATE)
            stat->state = *word;
        else if (field == FIELD_PARENT)
            stat->parent_pid = (pid_t)value;
        else if (field == FIELD_FLAGS)
            stat->flags = (uint32_t)value;
        else if (field == FIELD_THREADS)
            stat->threads = value;
        else if (field == FIELD_START_TICKS)
            stat->start_ticks = value;
        else if (field == FIELD_START_CODE)
            stat->start_code = value;
    }
    return field > FIELD_START_CODE;
}

bool events_read_stat(pid_t pid, struct process_stat *stat) {
    /* One without threads was let go of as it was read: it is gone, or the thread that made an exec has its place. */
    return read_stat(pid, stat) && (stat->threads > 0 || read_stat(pid, stat));
}

bool events_stat_ended(const struct process_stat *stat) {
    /* A first thread that has ended is a zombie until the others have, too. */
    struct proc_stat first = {.state = stat->state, .flags = stat->flags};
    return proc_stat_ended(&first) && stat->threads <= 1;
}

/* The place of pid in the list, or where it belongs. */
static size_t place_of(const struct process_events *events, pid_t pid) {
    size_t low = 0, high = events->watched_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (events->watched[middle].pid < pid)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct watched *events_find(const struct process_events *events, pid_t pid) {
    size_t place = place_of(events, pid);
    bool found = place < events->watched_count && events->watched[place].pid == pid;
    return found ? &events->watched[place] : NULL;
}

enum status events_push(struct process_events *events, const struct process_event *event) {
    if (events->queue_count == QUEUE_MAX)
        return STATUS_LIMIT;
    TRY(array_reserve((void **)&events->queue, &events->queue_capacity, events->queue_count + 1, sizeof *event));
    events->queue[events->queue_count++] = *event;
    return STATUS_OK;
}

enum status events_begin(struct process_events *events, pid_t pid, pid_t parent_pid, uint64_t time_ns, bool tell) {
    size_t place = place_of(events, pid);
    if (place < events->watched_count && events->watched[place].pid == pid)
        return STATUS_OK;
    if (events->watched_count == WATCHED_MAX)
        return STATUS_LIMIT;
    TRY(array_reserve((void **)&events->watched, &events->watched_capacity, events->watched_count + 1,
                      sizeof *events->watched));
    struct process_stat stat = {0};
    (void)events_read_stat(pid, &stat);
    memmove(events->watched + place + 1, events->watched + place,
            (events->watched_count - place) * sizeof *events->watched);
    events->watched[place] = (struct watched){
        .pid = pid,
        .parent_pid = parent_pid,
        .start_ticks = stat.start_ticks,
        .start_code = stat.start_code,
    };
    events->watched_count++;
    if (!tell)
        return STATUS_OK;
    struct process_event event = {
        .kind = PROCESS_FORKED,
        .pid = pid,
        .parent_pid = parent_pid,
        .start_ticks = stat.start_ticks,
        .time_ns = time_ns,
    };
    return events_push(events, &event);
}

enum status events_end(struct process_events *events, struct watched *watched, const int *wait_status,
                       uint64_t time_ns) {
    struct process_event event = {
        .kind = PROCESS_EXITED,
        .pid = watched->pid,
        .parent_pid = watched->parent_pid,
        .start_ticks = watched->start_ticks,
        .time_ns = time_ns,
        .status_known = wait_status != NULL,
        .wait_status = wait_status != NULL ? *wait_status : 0,
    };
    size_t place = (size_t)(watched - events->watched);
    memmove(watched, watched + 1, (events->watched_count - place - 1) * sizeof *watched);
    events->watched_count--;
    return events_push(events, &event);
}

/* The kernel's messages are switched on before /proc is searched, so that nothing falls between. */
static enum status start(struct process_events *events, const pid_t *roots, size_t count, uint64_t scan_period_ns,
                         struct error *error) {
    events->from_kernel = events_open_netlink(events) == STATUS_OK;
    if (!events->from_kernel)
        TRY(events_open_timer(events, scan_period_ns, error));
    enum status status = STATUS_OK;
    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        status = events_begin(events, roots[i], 0, 0, false);
    if (status == STATUS_OK)
        status = events_scan(events);
    if (status != STATUS_OK)
        return error_set(error, status, "cannot follow child processes: %s", status_name(status));
    return STATUS_OK;
}

enum status process_events_open(const pid_t *roots, size_t count, uint64_t scan_period_ns,
                                struct process_events **result, struct error *error) {
    *result = NULL;
    struct process_events *events = calloc(1, sizeof *events);
    if (events == NULL)
        return error_set(error, STATUS_FAILED, "out of memory");
    events->fd = -1;
    enum status status = start(events, roots, count, scan_period_ns, error);
    if (status != STATUS_OK) {
        process_events_free(events);
        return status;
    }
    *result = events;
    return STATUS_OK;
}

void process_events_free(struct process_events *events) {
    if (events == NULL)
        return;
    if (events->fd >= 0)
        (void)close(events->fd);
    free(events->watched);
    free(events->queue);
    free(events);
}

int process_events_fd(const struct process_events *events) {
    return events->fd;
}

bool process_events_complete(const struct process_events *events) {
    return events->from_kernel;
}

enum status process_events_next(struct process_events *events, struct process_event *event) {
    if (events->queue_first == events->queue_count) {
        events->queue_first = events->queue_count = 0;
        TRY(events->from_kernel ? events_poll_netlink(events) : events_poll_timer(events));
    }
    if (events->queue_first == events->queue_count)
        return STATUS_NOT_FOUND;
    *event = events->queue[events->queue_first++];
    return STATUS_OK;
}
