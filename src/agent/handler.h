/* What a thread does when its CPU clock calls: it looks at itself and writes a sample into its ring. */
#ifndef STROBE_AGENT_HANDLER_H
#define STROBE_AGENT_HANDLER_H

#include <stdbool.h>
#include <stdint.h>
#include <ucontext.h>

struct agent_thread;

/* The timer on its CPU clock has called, and would have `overruns` times more. Async-signal-safe: no lock, no
 * allocation, and errno is the caller's to keep. Not to be interrupted by itself. */
void handler_take_tick(struct agent_thread *thread, uint32_t overruns, const ucontext_t *context);
/* Its perf event has, in between. As above. */
void handler_take_strike(struct agent_thread *thread, const ucontext_t *context);

/* The process ends here, in this thread: a thread that its clock has not met says where, and all of its time. `always`:
 * it says so of what it has used since it was met, too. Async-signal-safe, as above. */
void handler_take_last(struct agent_thread *thread, bool always);

#endif
