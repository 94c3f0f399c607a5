/* The kernel's process connector (drivers/connector/cn_proc.c): a message for each fork, exec and exit of the machine.
 */
#include "base/clock.h"
#include "process/linux/events.h"

#include <errno.h>
#include <linux/cn_proc.h>
#include <linux/connector.h>
#include <linux/netlink.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    BUFFER_BYTES = 4 << 20, /* about 30,000 events */
    MESSAGE_BYTES = 4096,
    MESSAGES_PER_POLL_MAX = 1 << 16,
    ANSWER_PATIENCE_MS = 200,
};

/* struct cn_msg ends in a flexible array, so the parts are put together by hand. */
static bool send_listen(int fd, uint32_t number) {
    enum { PAYLOAD = sizeof(struct cn_msg) + sizeof(enum proc_cn_mcast_op), SIZE = NLMSG_SPACE(PAYLOAD) };
    _Alignas(struct nlmsghdr) unsigned char message[SIZE] = {0};
    struct nlmsghdr header = {.nlmsg_len = NLMSG_LENGTH(PAYLOAD), .nlmsg_type = NLMSG_DONE};
    struct cn_msg connector = {
        .id = {.idx = CN_IDX_PROC, .val = CN_VAL_PROC},
        .ack = number,
        .len = sizeof(enum proc_cn_mcast_op),
    };
    enum proc_cn_mcast_op operation = PROC_CN_MCAST_LISTEN;
    memcpy(message, &header, sizeof header);
    memcpy(message + NLMSG_HDRLEN, &connector, sizeof connector);
    memcpy(message + NLMSG_HDRLEN + sizeof connector, &operation, sizeof operation);
    return send(fd, message, sizeof message, 0) == (ssize_t)sizeof message;
}

/* One message; *number is that of the request, if it answers one. STATUS_NOT_FOUND: none now; STATUS_LIMIT: some were
 * lost; STATUS_DAMAGED: not an event. */
static enum status receive(int fd, struct proc_event *event, uint32_t *number) {
    _Alignas(struct nlmsghdr) unsigned char message[MESSAGE_BYTES];
    struct sockaddr_nl sender = {0};
    socklen_t sender_bytes = sizeof sender;
    ssize_t size = recvfrom(fd, message, sizeof message, MSG_DONTWAIT, (struct sockaddr *)&sender, &sender_bytes);
    if (size < 0)
        return errno == ENOBUFS ? STATUS_LIMIT : STATUS_NOT_FOUND;
    /* Only the kernel has the port id 0. */
    const size_t event_at = NLMSG_HDRLEN + sizeof(struct cn_msg);
    if (sender.nl_pid != 0 || (size_t)size <= event_at)
        return STATUS_DAMAGED;
    struct cn_msg connector;
    memcpy(&connector, message + NLMSG_HDRLEN, sizeof connector);
    /* cn_proc_ack(); `seq` is counted anew (drivers/connector/cn_proc.c 4.9 to 6.12). */
    *number = connector.ack - 1;
    *event = (struct proc_event){0};
    size_t event_bytes = (size_t)size - event_at;
    memcpy(event, message + event_at, event_bytes < sizeof *event ? event_bytes : sizeof *event);
    return STATUS_OK;
}

/* The kernel answers a request that it heeds, to all who listen: what others asked is told by its number. From another
 * pid or user namespace it says nothing; without the capability it says so, or says nothing, depending on its version.
 */
static bool answered(int fd, uint32_t number) {
    uint64_t deadline_ns = clock_monotonic_ns() + ANSWER_PATIENCE_MS * NS_PER_MS;
    /* The group's messages come all the same where another process listens: on a busy machine without a pause. */
    for (uint64_t now_ns; (now_ns = clock_monotonic_ns()) < deadline_ns;) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        struct proc_event event;
        uint32_t answered_number = 0;
        if (poll(&poll_fd, 1, (int)((deadline_ns - now_ns) / NS_PER_MS + 1)) > 0 &&
            receive(fd, &event, &answered_number) == STATUS_OK && event.what == PROC_EVENT_NONE &&
            answered_number == number)
            return event.event_data.ack.err == 0;
    }
    return false;
}

enum status events_open_netlink(struct process_events *events) {
    int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_CONNECTOR);
    if (fd < 0)
        return STATUS_PERMISSION;
    struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = CN_IDX_PROC};
    int buffer_bytes = BUFFER_BYTES;
    uint32_t number = (uint32_t)clock_monotonic_ns();
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof buffer_bytes);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || !send_listen(fd, number) ||
        !answered(fd, number)) {
        (void)close(fd);
        return STATUS_PERMISSION;
    }
    events->fd = fd;
    return STATUS_OK;
}

/* A thread ended. Its process has ended when no other thread is left; an exec ends the first thread, too, whose place
 * the one that made it has then, alive. */
static enum status take_exit(struct process_events *events, const struct proc_event *event) {
    struct watched *watched = events_find(events, event->event_data.exit.process_tgid);
    if (watched == NULL)
        return STATUS_OK;
    if (event->event_data.exit.process_pid == watched->pid) {
        watched->leader_ended = true;
        watched->wait_status = (int)event->event_data.exit.exit_code;
    }
    struct process_stat stat;
    if (!watched->leader_ended || (events_read_stat(watched->pid, &stat) && !events_stat_ended(&stat)))
        return STATUS_OK;
    return events_end(events, watched, &watched->wait_status, event->timestamp_ns);
}

static enum status take_exec(struct process_events *events, const struct proc_event *event) {
    struct watched *watched = events_find(events, event->event_data.exec.process_tgid);
    if (watched == NULL)
        return STATUS_OK;
    /* Whichever thread did it is the first one now. */
    watched->leader_ended = false;
    /* A search, when messages were lost, is not to find it once more. */
    struct process_stat stat = {0};
    (void)events_read_stat(watched->pid, &stat);
    watched->start_code = stat.start_code;
    struct process_event told = {
        .kind = PROCESS_EXECED,
        .pid = watched->pid,
        .parent_pid = watched->parent_pid,
        .start_ticks = watched->start_ticks,
        .time_ns = event->timestamp_ns,
    };
    return events_push(events, &told);
}

static enum status take(struct process_events *events, const struct proc_event *event) {
    switch ((unsigned)event->what) {
    case PROC_EVENT_FORK: {
        pid_t parent = event->event_data.fork.parent_tgid, child = event->event_data.fork.child_tgid;
        if (event->event_data.fork.child_pid != child || events_find(events, parent) == NULL)
            return STATUS_OK;
        return events_begin(events, child, parent, event->timestamp_ns, true);
    }
    case PROC_EVENT_EXEC:
        return take_exec(events, event);
    case PROC_EVENT_EXIT:
        return take_exit(events, event);
    default:
        return STATUS_OK;
    }
}

enum status events_poll_netlink(struct process_events *events) {
    bool lost = false;
    for (int i = 0; i < MESSAGES_PER_POLL_MAX; i++) {
        struct proc_event event;
        uint32_t number = 0;
        enum status status = receive(events->fd, &event, &number);
        if (status == STATUS_NOT_FOUND)
            break;
        if (status == STATUS_LIMIT)
            lost = true;
        else if (status == STATUS_OK)
            TRY(take(events, &event));
    }
    return lost ? events_scan(events) : STATUS_OK;
}
