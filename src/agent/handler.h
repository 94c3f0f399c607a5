/* What a thread does when its CPU clock calls: it looks at itself and writes a sample into its ring. */
#ifndef STROBE_AGENT_HANDLER_H
#define STROBE_AGENT_HANDLER_H

#include <signal.h>
#include <ucontext.h>

struct agent_thread;

/* Async-signal-safe: no lock, no allocation, and errno is the caller's to keep. Not to be interrupted by itself. */
void handler_take_sample(struct agent_thread *thread, const siginfo_t *info, const ucontext_t *context);

/* The process ends here, in this thread: a thread that its clock has not met says where, and all of its time. Async-
 * signal-safe, as above. */
void handler_take_last(struct agent_thread *thread);

#endif
