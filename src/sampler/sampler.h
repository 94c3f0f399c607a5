/* Sampling processes from outside until there is a reason to stop. */
#ifndef STROBE_SAMPLER_SAMPLER_H
#define STROBE_SAMPLER_SAMPLER_H

#include "sampler/target.h"

#include <signal.h>

struct sampler_options {
    double rate_hz;
    uint64_t duration_ns; /* 0: until the process ends or *stop */
    struct target_options target;
};

/* Samples the process (which it takes over when it returns STATUS_OK) and hands what it sees to the sink. Returns
 * STATUS_OK when the process has ended, the duration is over or *stop was set (by a signal's handler); a failure of the
 * sink's or of strobe's own otherwise. */
enum status sampler_run(struct process *process, const struct sampler_options *options, struct sample_sink *sink,
                        const volatile sig_atomic_t *stop, struct error *error) MUST_USE;

#endif
