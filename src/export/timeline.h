/* The samples of each thread in their order, or, where the profile kept none, what it has of each thread laid end to
 * end. Equal stacks in a row are one span. */
#ifndef STROBE_EXPORT_TIMELINE_H
#define STROBE_EXPORT_TIMELINE_H

#include "export/selection.h"

struct span {
    uint64_t start_ns;  /* since the profile's start */
    uint64_t length_ns; /* on the wall clock: from the start to the end */
    uint64_t weight;    /* of `measure`: what it stands for */
    uint64_t samples;
    uint32_t stack; /* shown; 0: no frames */
    enum capture_run run;
};

struct timeline {
    const struct selection *selection;
    enum measure measure; /* of the weights */
    bool in_order;        /* from samples; else made up from sums */
    bool of_cpu;          /* the samples' weights are CPU time; else wall time */
    bool separate;        /* set it to have each sample as a span of its own */
    size_t *starts;       /* by thread, and one more: where its numbers begin in `order` */
    uint32_t *order;      /* numbers of samples (in_order) or of entries */
};

/* From the samples if they are wanted in order, the profile kept them all, and their weights are of this measure; from
 * sums otherwise. The selection is borrowed. */
enum status timeline_init(struct timeline *timeline, const struct selection *selection, enum measure measure,
                          bool in_order) MUST_USE;
void timeline_release(struct timeline *timeline);

/* Walks one thread's spans: start with a zeroed cursor; false at the end. */
struct timeline_cursor {
    size_t next;
    uint64_t end_ns; /* of the last span */
};

/* Whether a span goes on where the one before ended; if not, nobody saw the time between them, or the thread did
 * something that is not shown, such as waiting. */
bool timeline_touches(const struct timeline *timeline, uint64_t end_ns, const struct span *next);
bool timeline_next(const struct timeline *timeline, uint32_t thread, struct timeline_cursor *cursor, struct span *span);

#endif
