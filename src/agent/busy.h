/* A thread writes into its ring, or walks its stack, in one place at a time. What interrupts that (its CPU clock, a
 * handler of the program's that allocates) leaves its own for later. What the agent itself copies meanwhile is none of
 * the program's copies (agent/copy.h). */
#ifndef STROBE_AGENT_BUSY_H
#define STROBE_AGENT_BUSY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define COPY_NEVER (INT64_MAX / 4)

struct exact_thread;
/* What is looked at for every allocation that is counted is found together. */
struct busy_thread {
    volatile bool flag;
    struct exact_thread *exact; /* agent/exact_quick.h */
};
extern __thread struct busy_thread busy_thread __attribute__((tls_model("initial-exec")));
/* Bytes until a copy is to be looked at, which it is when this is below 0; and what it is while the thread is busy. */
extern __thread int64_t copy_left __attribute__((tls_model("initial-exec")));
extern __thread int64_t copy_left_before __attribute__((tls_model("initial-exec")));

/* False: this thread is at it already. */
static inline bool busy_enter(void) {
    if (busy_thread.flag)
        return false;
    busy_thread.flag = true;
    atomic_signal_fence(memory_order_seq_cst);
    copy_left_before = copy_left;
    copy_left = COPY_NEVER;
    return true;
}

static inline void busy_leave(void) {
    copy_left = copy_left_before;
    atomic_signal_fence(memory_order_seq_cst);
    busy_thread.flag = false;
}

#endif
