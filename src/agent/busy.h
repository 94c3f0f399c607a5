/* A thread writes into its ring, or walks its stack, in one place at a time. What interrupts that (its CPU clock, a
 * handler of the program's that allocates) leaves its own for later. */
#ifndef STROBE_AGENT_BUSY_H
#define STROBE_AGENT_BUSY_H

#include <stdatomic.h>
#include <stdbool.h>

extern __thread volatile bool busy_flag __attribute__((tls_model("initial-exec")));

/* False: this thread is at it already. */
static inline bool busy_enter(void) {
    if (busy_flag)
        return false;
    busy_flag = true;
    atomic_signal_fence(memory_order_seq_cst);
    return true;
}

static inline void busy_leave(void) {
    atomic_signal_fence(memory_order_seq_cst);
    busy_flag = false;
}

#endif
