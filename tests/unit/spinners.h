/* Children whose threads do nothing but count, where the test can see it. */
#ifndef STROBE_TESTS_SPINNERS_H
#define STROBE_TESTS_SPINNERS_H

#include <stdint.h>

enum { SPINNERS = 4 };

/* Shared with the children that are started between set-up and tear-down. */
struct shared {
    volatile uint64_t counters[SPINNERS];
    volatile uint64_t threads_started;
    volatile uint64_t signals[3]; /* for what a test's own handlers count */
};

extern struct shared *shared;

/* For cmocka. */
int spinners_set_up(void **state);
int spinners_tear_down(void **state);

/* Functions for child_start: a thread for each counter counts it up for ever; threads are started for ever, and end at
 * once. */
void spinners_spin_in_threads(void *unused);
void spinners_start_threads_for_ever(void *unused);

/* A thread's function: counts the counter up for ever. */
void *spinners_spin(void *counter);

#endif
