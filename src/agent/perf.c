#include "agent/perf.h"

#include "agent/hot.h"
#include "agent/signals.h"

#include <fcntl.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096 };
static const uint64_t NS_PER_US = 1000;
/* A look takes 10 us of the time that its event counts: with less than that between two, the program would stand still.
 */
static const uint64_t MIN_PERIOD_NS = 50000;

/* As perf_event_overflow has it (kernel/events/core.c, pending_kill). */
bool perf_has_sent(int code) {
    return code == POLL_IN || code == POLL_HUP;
}

/* remove_on_exec (Linux 5.13): a signal after an exec would find no handler, and end the process. */
static int open_event(uint64_t period_ns) {
    struct perf_event_attr attributes = {
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof attributes,
        .config = PERF_COUNT_SW_TASK_CLOCK,
        .sample_period = period_ns > MIN_PERIOD_NS ? period_ns : MIN_PERIOD_NS,
        .disabled = 1,
        .exclude_kernel = 1,
        .exclude_hv = 1,
        .remove_on_exec = 1,
    };
    return (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

/* The signal goes to this thread, whatever thread the kernel finds first. */
static bool direct_signal(int event) {
    const struct f_owner_ex owner = {F_OWNER_TID, (pid_t)syscall(SYS_gettid)};
    return fcntl(event, F_SETOWN_EX, &owner) == 0 && fcntl(event, F_SETSIG, AGENT_SIGNAL) == 0 &&
           fcntl(event, F_SETFL, O_ASYNC) == 0;
}

void perf_start(struct perf *perf, const struct clock_times *start, uint64_t period_ns) {
    struct timespec tick = {0};
    (void)clock_getres(CLOCK_MONOTONIC_COARSE, &tick);
    *perf = (struct perf){
        .told = *start, .tick_system_us = start->system_us, .kernel_tick_us = (uint64_t)tick.tv_nsec / NS_PER_US};
    perf->told.user_us = start->cpu_ns / NS_PER_US - start->system_us;
    int event = open_event(period_ns);
    if (event < 0)
        return;
    /* A mapping keeps the event, and is of no use to anybody otherwise. */
    void *page = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, event, 0);
    if (page != MAP_FAILED && direct_signal(event) && ioctl(event, PERF_EVENT_IOC_ENABLE, 0) == 0)
        perf->page = page;
    else if (page != MAP_FAILED)
        munmap(page, PAGE_BYTES);
    close(event);
}

void perf_stop(struct perf *perf) {
    if (perf->page != NULL)
        munmap(perf->page, PAGE_BYTES);
    perf->page = NULL;
}

static AGENT_HOT struct clock_times *tell(struct perf *perf, uint64_t user_us, uint64_t system_us) {
    struct clock_times *told = &perf->told;
    uint64_t more_us = (user_us > told->user_us ? user_us - told->user_us : 0) +
                       (system_us > told->system_us ? system_us - told->system_us : 0);
    told->cpu_ns += more_us * NS_PER_US;
    told->user_us = user_us > told->user_us ? user_us : told->user_us;
    told->system_us = system_us > told->system_us ? system_us : told->system_us;
    return told;
}

/* The accounts are as the last tick left them: what was used since is taken for the program's, and if it was not, the
 * next ticks find that out. */
AGENT_HOT struct clock_times perf_note_strike(struct perf *perf) {
    struct clock_times now = clock_read();
    uint64_t cpu_us = now.cpu_ns / NS_PER_US;
    return *tell(perf, cpu_us > now.system_us ? cpu_us - now.system_us : 0, perf->told.system_us);
}

/* The account grows by a tick where that found the kernel, and hardly where it did not: it is scaled to what the
 * scheduler has measured (cputime_adjust, kernel/sched/cputime.c, Linux 6.1). */
AGENT_HOT bool perf_note_tick(struct perf *perf, struct clock_times *times) {
    struct clock_times now = clock_read_at_tick();
    bool in_kernel = now.system_us - perf->tick_system_us > perf->kernel_tick_us / 2;
    perf->tick_system_us = now.system_us;
    *times = *tell(perf, perf->told.user_us, in_kernel ? now.system_us : perf->told.system_us);
    return in_kernel;
}
