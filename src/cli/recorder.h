/* From a sampler to a capture: names what was sampled and writes it. */
#ifndef STROBE_CLI_RECORDER_H
#define STROBE_CLI_RECORDER_H

#include "capture/writer.h"
#include "sampler/sampler.h"

struct recorder;

/* What the capture says of how it was made. */
struct recorder_options {
    double rate_hz;
    enum capture_mode mode;
    enum capture_origin origin;
    bool progress;            /* say on a terminal what is going on */
    const char *announcement; /* said to the user when sampling has begun; NULL: nothing */
};

/* Records into `writer`, which stays the caller's. NULL when there is no memory. */
struct recorder *recorder_new(struct capture_writer *writer, const struct recorder_options *options);
void recorder_free(struct recorder *recorder);

/* What to give the sampler. */
struct sample_sink *recorder_sink(struct recorder *recorder);

#endif
