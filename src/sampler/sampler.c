#include "sampler/sampler.h"

#include "base/clock.h"
#include "sampler/family.h"
#include "sampler/roster.h"
#include "sampler/schedule.h"

#include <stdlib.h>

/* The sink is called at least this often, so that what it has gathered reaches the disk. */
static const uint64_t IDLE_PERIOD_NS = 100 * NS_PER_MS;
/* What the descriptors tell of is attended to this often when there is no time to sleep; a held process's signals are
 * when there is. */
static const uint64_t ATTEND_PERIOD_NS = NS_PER_MS;
static const uint64_t SERVE_PERIOD_NS = 2 * NS_PER_MS;

/* A sleep comes back some microseconds late, more than the period of a fast rate. Rates that nobody asks for who minds
 * the processor's time wait awake for a deadline that is near. */
static const uint64_t SLEEPING_PERIOD_NS = 100 * NS_PER_US;
static const uint64_t SPIN_NS = 20 * NS_PER_US;

/* Of a period, the part that a look may be late. */
enum { SLACK_SHARE = 100 };

struct sampler {
    const struct sampler_options *options;
    struct sample_sink *sink;
    struct roster *roster; /* NULL without an agent */
    struct family *family;
    const volatile sig_atomic_t *stop;
    struct schedule schedule;
    bool attentive;  /* there is more to attend to than deadlines */
    bool stopped;    /* the caller wants no more */
    uint64_t end_ns; /* UINT64_MAX: none */
    uint64_t idle_ns;
    uint64_t attended_ns;
};

static void note_missed(void *context, const struct sampled_process *process, bool certain) {
    agent_session_note_missed(context, process->pid, certain);
}

/* What the agent sees and what is seen from outside are to be one process each. */
static enum status join_agents(struct sampler *sampler, struct error *error) {
    sampler->roster = roster_new(sampler->sink, note_missed, sampler->options->agents);
    if (sampler->roster == NULL)
        return error_set(error, STATUS_FAILED, "there is not enough memory");
    sampler->sink = roster_sink(sampler->roster, ROSTER_OUTSIDE);
    agent_session_start(sampler->options->agents, roster_sink(sampler->roster, ROSTER_INSIDE),
                        sampler->options->target.native_boundaries);
    return STATUS_OK;
}

enum status sampler_new(const struct sampler_options *options, struct sample_sink *sink, struct sampler **result,
                        struct error *error) {
    struct sampler *sampler = calloc(1, sizeof *sampler);
    if (sampler == NULL)
        return error_set(error, STATUS_FAILED, "there is not enough memory");
    sampler->options = options;
    sampler->sink = sink;
    enum status status = options->agents != NULL ? join_agents(sampler, error) : STATUS_OK;
    if (status == STATUS_OK)
        status = family_new(&options->target, sampler->sink, &sampler->family, error);
    if (status != STATUS_OK) {
        enum status freed = roster_free(sampler->roster);
        (void)freed;
        free(sampler);
        return status;
    }
    sampler->attentive = options->children || options->target.blocking || options->wake.woken != NULL;
    *result = sampler;
    return STATUS_OK;
}

enum status sampler_free(struct sampler *sampler) {
    if (sampler == NULL)
        return STATUS_OK;
    enum status status = STATUS_OK;
    if (sampler->options->agents != NULL)
        status = agent_session_finish(sampler->options->agents);
    enum status freed = family_free(sampler->family);
    status = status == STATUS_OK ? freed : status;
    freed = roster_free(sampler->roster);
    free(sampler);
    return status == STATUS_OK ? freed : status;
}

enum status sampler_add(struct sampler *sampler, struct process *process, struct error *error) {
    pid_t pid = process_pid(process);
    TRY(family_add(sampler->family, process, error));
    return sampler->options->children ? family_follow(sampler->family, pid, error) : STATUS_OK;
}

enum status sampler_expect(struct sampler *sampler, pid_t pid, struct error *error) {
    sampler->attentive = true;
    TRY(family_expect(sampler->family, pid, error));
    return sampler->options->children ? family_follow(sampler->family, pid, error) : STATUS_OK;
}

enum status sampler_note_end(struct sampler *sampler, pid_t pid, int wait_status) {
    return family_note_end(sampler->family, pid, wait_status);
}

uint32_t sampler_process_count(const struct sampler *sampler) {
    return sampler->roster != NULL ? roster_process_count(sampler->roster) : family_sampled_count(sampler->family);
}

static uint64_t earlier(uint64_t one_ns, uint64_t other_ns) {
    return one_ns < other_ns ? one_ns : other_ns;
}

/* What happened to the processes, and to the caller. */
static enum status attend(struct sampler *sampler, uint64_t now_ns) {
    const struct sampler_wake *wake = &sampler->options->wake;
    sampler->attended_ns = now_ns;
    if (wake->woken != NULL)
        sampler->stopped |= wake->woken(wake->context);
    if (sampler->options->target.blocking)
        family_serve(sampler->family);
    /* Before the family: who has come and gone is to be known by the agent's word first. */
    if (sampler->options->agents != NULL)
        TRY(agent_session_attend(sampler->options->agents, now_ns));
    return family_attend(sampler->family, now_ns);
}

/* Sleeps towards the deadline. *woken: something else is to be attended to. */
static void sleep_towards(const struct sampler *sampler, uint64_t deadline_ns, uint64_t now_ns, bool *woken) {
    if (sampler->schedule.period_ns < SLEEPING_PERIOD_NS && deadline_ns - now_ns < SPIN_NS)
        return;
    uint64_t until_ns = earlier(deadline_ns, sampler->idle_ns + IDLE_PERIOD_NS);
    if (!sampler->attentive) {
        clock_sleep_until(until_ns);
        return;
    }
    uint64_t due_ns = family_due_ns(sampler->family);
    if (sampler->options->target.blocking)
        due_ns = earlier(due_ns, now_ns + SERVE_PERIOD_NS);
    const struct sampler_options *options = sampler->options;
    const int fds[] = {
        family_fd(sampler->family),
        options->wake.woken != NULL ? options->wake.fd : -1,
    };
    *woken = clock_wait_until(earlier(until_ns, due_ns), fds, sizeof fds / sizeof fds[0]) || due_ns < until_ns;
}

/* Sleeps until the deadline, in pieces so that the sink is not kept waiting. False when it is time to stop. *now_ns is
 * brought up to date if there was anything to wait for. */
static bool wait_until(struct sampler *sampler, uint64_t deadline_ns, uint64_t *now_ns, enum status *status) {
    bool woken = false;
    *status = STATUS_OK;
    if (deadline_ns > sampler->end_ns)
        deadline_ns = sampler->end_ns;
    for (;;) {
        if (*now_ns - sampler->idle_ns >= IDLE_PERIOD_NS) {
            sampler->idle_ns = *now_ns;
            *status = sampler->sink->idle(sampler->sink, *now_ns);
        }
        if (*status == STATUS_OK && sampler->attentive &&
            (woken || *now_ns - sampler->attended_ns >= ATTEND_PERIOD_NS)) {
            *status = attend(sampler, *now_ns);
            *now_ns = clock_monotonic_ns();
        }
        if (*status != STATUS_OK || *sampler->stop != 0 || sampler->stopped || *now_ns >= sampler->end_ns)
            return false;
        if (*now_ns >= deadline_ns)
            return true;
        woken = false;
        sleep_towards(sampler, deadline_ns, *now_ns, &woken);
        *now_ns = clock_monotonic_ns();
    }
}

/* With an agent, who is not seen from outside may still be seen from inside. */
static enum status look(struct sampler *sampler, uint64_t now_ns) {
    struct agent_session *agents = sampler->options->agents;
    if (agents != NULL)
        TRY(agent_session_drain(agents, now_ns));
    /* Of a process that is found to have ended this is the last look: how late it is is known only now. */
    enum status status = family_look(sampler->family, now_ns, schedule_missed(&sampler->schedule, now_ns));
    return agents != NULL && status == STATUS_NO_PROCESS ? STATUS_OK : status;
}

static enum status sample(struct sampler *sampler) {
    enum status status = STATUS_OK;
    for (;;) {
        uint64_t now_ns = clock_monotonic_ns();
        if (!wait_until(sampler, schedule_next(&sampler->schedule, now_ns), &now_ns, &status))
            break;
        TRY(look(sampler, now_ns));
    }
    /* The last samples stand for what is left of the time. */
    return status == STATUS_OK ? look(sampler, clock_monotonic_ns()) : status;
}

enum status sampler_run(struct sampler *sampler, const volatile sig_atomic_t *stop, struct error *error) {
    uint64_t now_ns = clock_monotonic_ns();
    sampler->stop = stop;
    sampler->idle_ns = now_ns;
    sampler->end_ns = sampler->options->duration_ns > 0 ? now_ns + sampler->options->duration_ns : UINT64_MAX;
    schedule_start(&sampler->schedule, sampler->options->rate_hz, now_ns, now_ns);
    clock_set_slack(sampler->schedule.period_ns / SLACK_SHARE);
    clock_ask_short_turns();
    enum status status = sample(sampler);
    if (status == STATUS_NO_PROCESS)
        status = STATUS_OK;
    if (status == STATUS_OK && sampler->stopped && sampler->options->agents != NULL)
        status = agent_session_await_last(sampler->options->agents);
    enum status obstacle = family_obstacle(sampler->family);
    if (status == STATUS_OK && sampler_process_count(sampler) == 0 && obstacle != STATUS_OK)
        return error_set(error, obstacle, "nothing was sampled: %s", status_name(obstacle));
    if (status != STATUS_OK && error->status == STATUS_OK)
        return error_set(error, status, "sampling ended: %s", status_name(status));
    return status;
}
