#include "agent/clock.h"

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

static uint64_t read_clock(clockid_t clock) {
    struct timespec time = {0};
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

uint64_t clock_now_ns(void) {
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t clock_cpu_ns(void) {
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

static uint64_t microseconds(struct timeval time) {
    return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_usec;
}

struct clock_times clock_read(void) {
    struct rusage usage = {0};
    getrusage(RUSAGE_THREAD, &usage);
    return (struct clock_times){
        .cpu_ns = clock_cpu_ns(),
        .user_us = microseconds(usage.ru_utime),
        .system_us = microseconds(usage.ru_stime),
    };
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
    struct itimerspec spec = {.it_interval = period, .it_value = period};
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
