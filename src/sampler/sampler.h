/* Sampling processes from outside until there is a reason to stop. */
#ifndef STROBE_SAMPLER_SAMPLER_H
#define STROBE_SAMPLER_SAMPLER_H

#include "sampler/agent_session.h"
#include "sampler/target.h"

#include <signal.h>

/* What the caller wants to be woken for: a signal (SIGCHLD when blocking, see process_hold), the end of a command. */
struct sampler_wake {
    int fd; /* for poll(2); used when `woken` is not NULL */
    /* Called when fd is readable, and every few milliseconds. Returns whether to stop. */
    bool (*woken)(void *context);
    void *context;
};

struct sampler_options {
    double rate_hz;
    uint64_t duration_ns; /* 0: until all processes have ended or there is another reason to stop */
    bool children;        /* sample what descends from the process, too */
    struct target_options target;
    struct sampler_wake wake;
    struct agent_session *agents; /* borrowed; read out along the way. NULL: none. Then `wake` says when to stop */
};

struct sampler;

/* `options` and `sink` are borrowed. */
enum status sampler_new(const struct sampler_options *options, struct sample_sink *sink, struct sampler **sampler,
                        struct error *error) MUST_USE;
/* Tells the sink that all processes have ended, lets them go, and frees the sampler. */
enum status sampler_free(struct sampler *sampler) MUST_USE;

/* Adds a Python process, which it takes over, also when that fails. */
enum status sampler_add(struct sampler *sampler, struct process *process, struct error *error) MUST_USE;
/* Adds a process that may become Python while it lives; its children are followed from here on. */
enum status sampler_expect(struct sampler *sampler, pid_t pid, struct error *error) MUST_USE;

/* A process has ended like this. For `woken` to call, of the caller's own child: of others the kernel may tell. */
enum status sampler_note_end(struct sampler *sampler, pid_t pid, int wait_status) MUST_USE;

/* Samples the processes and hands what it sees to the sink. Returns STATUS_OK when all have ended, the duration is
 * over, *stop was set (by a signal's handler) or `woken` wanted it; a failure of the sink's or of strobe's own
 * otherwise. */
enum status sampler_run(struct sampler *sampler, const volatile sig_atomic_t *stop, struct error *error) MUST_USE;

/* How many processes were Python. */
uint32_t sampler_process_count(const struct sampler *sampler);

#endif
