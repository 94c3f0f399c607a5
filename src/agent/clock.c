#include "agent/clock.h"

#include "agent/hot.h"
#include "agent/signals.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid /* glibc has no other name for it */
#endif

static const uint64_t NS_PER_S = UINT64_C(1000000000);
static const uint64_t NS_PER_US = 1000;

static AGENT_HOT uint64_t read_clock(clockid_t clock) {
    struct timespec time = {0};
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

AGENT_HOT uint64_t clock_now_ns(void) {
    return read_clock(CLOCK_MONOTONIC);
}

AGENT_HOT uint64_t clock_cpu_ns(void) {
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

static uint64_t microseconds(struct timeval time) {
    return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_usec;
}

/* User and system time are the CPU time in two parts (cputime_adjust, kernel/sched/cputime.c, Linux 6.1), as the last
 * tick left it. */
AGENT_HOT struct clock_times clock_read_at_tick(void) {
    struct rusage usage = {0};
    getrusage(RUSAGE_THREAD, &usage);
    uint64_t user_us = microseconds(usage.ru_utime), system_us = microseconds(usage.ru_stime);
    return (struct clock_times){(user_us + system_us) * NS_PER_US, user_us, system_us};
}

AGENT_HOT struct clock_times clock_read(void) {
    struct clock_times times = clock_read_at_tick();
    times.cpu_ns = clock_cpu_ns();
    return times;
}

/* A number that is as good as any other (splitmix64's last steps). */
static uint64_t scatter(uint64_t number) {
    number = (number ^ number >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ number >> 27) * UINT64_C(0x94d049bb133111eb);
    return number ^ number >> 31;
}

/* Somewhere in the first period, so that of many short threads some are met, as many as their time is worth. The
 * kernel looks at the timer when it ticks (its coarse clock tells how often): that adds up to a tick. */
static uint64_t first_period_ns(uint64_t period_ns, uint64_t salt) {
    struct timespec tick = {0};
    (void)clock_getres(CLOCK_MONOTONIC_COARSE, &tick);
    uint64_t tick_ns = (uint64_t)tick.tv_nsec;
    return period_ns > tick_ns ? 1 + scatter(clock_now_ns() ^ salt) % (period_ns - tick_ns) : 1;
}

/* The system calls themselves: libc's timer_create could allocate, and its timer_t is not the kernel's. */
enum status clock_start_timer(void *value, uint64_t period_ns, int *timer) {
    struct sigevent event = {0};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = AGENT_SIGNAL;
    event.sigev_value.sival_ptr = value;
    event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
    int made = 0;
    if (syscall(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, &event, &made) != 0)
        return STATUS_FAILED;
    struct timespec period = {.tv_sec = (time_t)(period_ns / NS_PER_S), .tv_nsec = (long)(period_ns % NS_PER_S)};
    uint64_t first_ns = first_period_ns(period_ns, (uint64_t)(uintptr_t)value);
    struct timespec first = {.tv_sec = (time_t)(first_ns / NS_PER_S), .tv_nsec = (long)(first_ns % NS_PER_S)};
    struct itimerspec spec = {.it_interval = period, .it_value = first};
    if (syscall(SYS_timer_settime, made, 0, &spec, NULL) != 0) {
        clock_stop_timer(made);
        return STATUS_FAILED;
    }
    *timer = made;
    return STATUS_OK;
}

void clock_stop_timer(int timer) {
    syscall(SYS_timer_delete, timer);
}
