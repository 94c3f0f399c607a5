/* Threads that sleep, told all at once: that none of them has run since the last look, so that nothing need be asked of
 * each. A server has a thousand of them, and asking one costs as much as asking the process. Private to target.c.
 *
 * The process's CPU clock is the sum of its threads' clocks. What it shows beyond those of the threads that do run
 * stands still as long as the others sleep. A clock is brought up to date when its thread goes to sleep, and at the
 * kernel's ticks; so one that has just woken up has run unseen for some milliseconds at most, and to run Python it
 * takes the GIL, which counts its turns. (Without a GIL nothing tells of that, and each is asked.) */
#ifndef STROBE_SAMPLER_SLEEPERS_H
#define STROBE_SAMPLER_SLEEPERS_H

#include "sampler/target_thread.h"

/* Zero-initialised knows nothing. Fields are private. */
struct sleepers {
    uint64_t outside_ns; /* of the process's CPU time, what is not of threads that may run, before the look */
    uint64_t others_ns;  /* the part of that which is no sleeper's: of threads that have ended or are not known */
    uint64_t turns;      /* stands for who took a GIL last, and how often another did */
    unsigned failures;   /* in a row */
    unsigned pause;      /* so many looks without trying, */
    bool resumed;        /* which have just ended */
    bool known;          /* others_ns is */
    bool asked;          /* each of them was in this look, */
    bool marked;         /* or need not be */
};

/* Who is looked at. */
struct sleepers_scene {
    struct runtime *runtime;
    struct process *process;
    const struct interp *interps;
    size_t interp_count;
    struct target_thread *const *threads;
    size_t thread_count;
    uint64_t now_ns;
};

/* Before the threads are looked at: marks those that need not be asked (target_thread.sleeps_on). */
void sleepers_begin(struct sleepers *sleepers, const struct sleepers_scene *scene);
/* After that. */
void sleepers_end(struct sleepers *sleepers, const struct sleepers_scene *scene);

#endif
