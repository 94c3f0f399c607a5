#include "sampler/sampler.h"

#include "base/clock.h"
#include "sampler/schedule.h"

/* The sink is called at least this often, so that what it has gathered reaches the disk. */
static const uint64_t IDLE_PERIOD_NS = 100 * NS_PER_MS;

/* A sleep comes back some microseconds late, more than the period of a fast rate. Rates that nobody asks for who minds
 * the processor's time wait awake for a deadline that is near. */
static const uint64_t SLEEPING_PERIOD_NS = 100 * NS_PER_US;
static const uint64_t SPIN_NS = 20 * NS_PER_US;

/* Of a period, the part that a look may be late. */
enum { SLACK_SHARE = 100 };

struct sampler {
    const struct sampler_options *options;
    struct sample_sink *sink;
    const volatile sig_atomic_t *stop;
    struct schedule schedule;
    uint64_t end_ns; /* UINT64_MAX: none */
    uint64_t idle_ns;
};

static void sleep_towards(const struct sampler *sampler, uint64_t deadline_ns, uint64_t now_ns) {
    uint64_t piece_ns = sampler->idle_ns + IDLE_PERIOD_NS;
    if (sampler->schedule.period_ns < SLEEPING_PERIOD_NS && deadline_ns - now_ns < SPIN_NS)
        return;
    clock_sleep_until(deadline_ns < piece_ns ? deadline_ns : piece_ns);
}

/* Sleeps until the deadline, in pieces so that the sink is not kept waiting. False when it is time to stop. *now_ns is
 * brought up to date if there was anything to wait for. */
static bool wait_until(struct sampler *sampler, uint64_t deadline_ns, uint64_t *now_ns, enum status *status) {
    *status = STATUS_OK;
    if (deadline_ns > sampler->end_ns)
        deadline_ns = sampler->end_ns;
    for (;;) {
        if (*now_ns - sampler->idle_ns >= IDLE_PERIOD_NS) {
            sampler->idle_ns = *now_ns;
            *status = sampler->sink->idle(sampler->sink, *now_ns);
        }
        if (*status != STATUS_OK || *sampler->stop != 0 || *now_ns >= sampler->end_ns)
            return false;
        if (*now_ns >= deadline_ns)
            return true;
        sleep_towards(sampler, deadline_ns, *now_ns);
        *now_ns = clock_monotonic_ns();
    }
}

static enum status sample(struct sampler *sampler, struct target *target) {
    enum status status = STATUS_OK;
    for (;;) {
        uint64_t now_ns = clock_monotonic_ns();
        if (!wait_until(sampler, schedule_next(&sampler->schedule, now_ns), &now_ns, &status))
            /* The last samples stand for what is left of the time. */
            return status == STATUS_OK ? target_look(target, now_ns) : status;
        target_counters(target)->missed = sampler->schedule.missed;
        TRY(target_look(target, now_ns));
    }
}

enum status sampler_run(struct process *process, const struct sampler_options *options, struct sample_sink *sink,
                        const volatile sig_atomic_t *stop, struct error *error) {
    struct target *target = NULL;
    TRY(target_open(process, 0, 0, &options->target, sink, &target, error));
    uint64_t now_ns = clock_monotonic_ns();
    struct sampler sampler = {.options = options, .sink = sink, .stop = stop, .idle_ns = now_ns};
    sampler.end_ns = options->duration_ns > 0 ? now_ns + options->duration_ns : UINT64_MAX;
    schedule_start(&sampler.schedule, options->rate_hz, now_ns, now_ns);
    clock_set_slack(sampler.schedule.period_ns / SLACK_SHARE);
    enum status status = sample(&sampler, target);
    enum status closed = target_close(target);
    if (status == STATUS_NO_PROCESS)
        status = STATUS_OK;
    status = status == STATUS_OK ? closed : status;
    if (status != STATUS_OK && error->status == STATUS_OK)
        return error_set(error, status, "sampling ended: %s", status_name(status));
    return status;
}
