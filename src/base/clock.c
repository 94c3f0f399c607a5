#include "base/clock.h"

#include <linux/sched.h>
#include <linux/sched/types.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The least that there is (kernel/sched/syscalls.c). */
static const uint64_t SHORT_TURN_NS = 100 * NS_PER_US;

static uint64_t read_clock(clockid_t clock) {
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t clock_monotonic_ns(void) {
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t clock_unix_ns(void) {
    return read_clock(CLOCK_REALTIME);
}

void clock_set_slack(uint64_t slack_ns) {
    /* 0 would bring the default back. Without it sleeps are 50 µs long at the least. */
    (void)prctl(PR_SET_TIMERSLACK, slack_ns > 0 ? (unsigned long)slack_ns : 1UL);
}

void clock_ask_short_turns(void) {
    struct sched_attr turns = {.size = sizeof turns};
    if (syscall(SYS_sched_getattr, 0, &turns, sizeof turns, 0) != 0 || turns.sched_policy != SCHED_NORMAL)
        return;
    turns.sched_runtime = SHORT_TURN_NS;
    turns.sched_flags = SCHED_FLAG_RESET_ON_FORK;
    (void)syscall(SYS_sched_setattr, 0, &turns, 0);
}

void clock_sleep_until(uint64_t deadline_ns) {
    struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / NS_PER_S), .tv_nsec = (long)(deadline_ns % NS_PER_S)};
    (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL);
}

bool clock_wait_until(uint64_t deadline_ns, const int *fds, size_t count) {
    enum { MOST = 8 };
    struct pollfd polled[MOST];
    count = count < MOST ? count : MOST;
    for (size_t i = 0; i < count; i++)
        polled[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    uint64_t now_ns = clock_monotonic_ns();
    uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
    struct timespec left = {.tv_sec = (time_t)(left_ns / NS_PER_S), .tv_nsec = (long)(left_ns % NS_PER_S)};
    return ppoll(polled, count, &left, NULL) > 0;
}
