/* Children whose threads do nothing but count, where the test can see it. */
#ifndef STROBE_TESTS_SPINNERS_H
#define STROBE_TESTS_SPINNERS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct process;

enum { SPINNERS = 4 };

/* Shared with the children that are started between set-up and tear-down. */
struct shared {
    volatile uint64_t counters[SPINNERS];
    volatile uint64_t threads_started;
    volatile uint64_t signals[3]; /* for what handlers count; spinners_take_signals says what */
};

extern struct shared *shared;

/* For cmocka. */
int spinners_set_up(void **state);
int spinners_tear_down(void **state);

/* Functions for child_start: a thread for each counter counts it up for ever; threads are started for ever, and end at
 * once. */
void spinners_spin_in_threads(void *unused);
void spinners_start_threads_for_ever(void *unused);

/* The same: takes SIGALRM, from a timer, and SIGRTMIN, queued with SPINNERS_VALUE, and counts the first counter up.
 * shared->signals: how many of the first, of the second, and of those that were neither. */
enum { SPINNERS_VALUE = 4711 };
struct spinners_timer {
    int period_us;
};
void spinners_take_signals(void *timer);

/* Pauses it, or fails the test. */
void spinners_pause(struct process *process);
/* Fails the test unless every thread of it is stopped; how many there are. */
size_t spinners_expect_stopped(struct process *process, pid_t pid);

/* A thread's function: counts the counter up for ever. */
void *spinners_spin(void *counter);

#endif
