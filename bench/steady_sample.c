/* steady_sample PID SECONDS: what a sample costs strobe when it takes as many as it can and does nothing with them:
 *
 *   samples cpu_ns_per_sample
 *
 * CPU time of this process. What start and end take, and the first half second, in which everything is learned, are not
 * part of it. */
#include "base/clock.h"
#include "sampler/sampler.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const uint64_t LEARNING_NS = NS_PER_S / 2;
/* No sample is waited for. */
static const double AS_FAST_AS_CAN_BE_HZ = 1e9;

struct counting {
    struct sample_sink sink;
    uint64_t first_ns;
    bool begun; /* the part that counts */
    uint64_t seen;
    uint64_t begin_cpu_ns;
    /* When the clock was last read. */
    uint64_t end_cpu_ns;
    uint64_t samples;
};

static uint64_t cpu_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static enum status take_process(struct sample_sink *sink, struct sampled_process *process) {
    (void)sink, (void)process;
    return STATUS_OK;
}

static enum status take_process_end(struct sample_sink *sink, struct sampled_process *process,
                                    const struct sample_counters *counters) {
    (void)sink, (void)process, (void)counters;
    return STATUS_OK;
}

static enum status take_thread(struct sample_sink *sink, struct sampled_thread *thread) {
    (void)sink, (void)thread;
    return STATUS_OK;
}

static enum status take_idle(struct sample_sink *sink, uint64_t now_ns) {
    (void)sink, (void)now_ns;
    return STATUS_OK;
}

/* The clock is read for the first sample that counts and for every thousandth since: it costs a part of a sample. */
static enum status take_sample(struct sample_sink *sink, const struct sample *sample) {
    struct counting *counting = (struct counting *)sink;
    if (counting->first_ns == 0)
        counting->first_ns = sample->time_ns;
    if (!counting->begun && sample->time_ns - counting->first_ns >= LEARNING_NS) {
        counting->begun = true;
        counting->begin_cpu_ns = cpu_ns();
    } else if (counting->begun && ++counting->seen % 1000 == 0) {
        counting->end_cpu_ns = cpu_ns();
        counting->samples = counting->seen;
    }
    return STATUS_OK;
}

int main(int argc, char **argv) {
    struct counting counting = {.sink = {.process_started = take_process,
                                         .process_ended = take_process_end,
                                         .thread_started = take_thread,
                                         .thread_renamed = take_thread,
                                         .thread_ended = take_thread,
                                         .sample = take_sample,
                                         .idle = take_idle,
                                         .code_forgotten = take_process}};
    struct sampler_options options = {.rate_hz = AS_FAST_AS_CAN_BE_HZ};
    volatile sig_atomic_t stop = 0;
    struct process *process = NULL;
    struct sampler *sampler = NULL;
    struct error error = {0};
    if (argc != 3) {
        (void)fprintf(stderr, "usage: steady_sample PID SECONDS\n");
        return 2;
    }
    options.duration_ns = LEARNING_NS + (uint64_t)(strtod(argv[2], NULL) * (double)NS_PER_S);
    if (process_open((pid_t)strtol(argv[1], NULL, 10), &process, &error) != STATUS_OK ||
        sampler_new(&options, &counting.sink, &sampler, &error) != STATUS_OK ||
        sampler_add(sampler, process, &error) != STATUS_OK || sampler_run(sampler, &stop, &error) != STATUS_OK ||
        sampler_free(sampler) != STATUS_OK || counting.samples == 0) {
        (void)fprintf(stderr, "steady_sample: %s\n", error.text[0] != '\0' ? error.text : "too few samples");
        return 1;
    }
    printf("%" PRIu64 " %.1f\n", counting.samples,
           (double)(counting.end_cpu_ns - counting.begin_cpu_ns) / (double)counting.samples);
    return 0;
}
