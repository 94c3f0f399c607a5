/* The signal by which a thread's CPU clock calls.
 *
 * It is the one that libc keeps for itself: glibc (sysdeps/unix/sysv/linux/internal-signals.h: SIGCANCEL, SIGTIMER) and
 * musl (src/internal/pthread_impl.h: SIGTIMER) let no program handle, block, wait for or even name it: sigaction
 * refuses it, sigfillset leaves it out, pthread_sigmask takes it out of every mask. So there is nothing to hide from
 * the program, whose signals are all its own, and no function to interpose for that.
 *
 * glibc uses it in two ways. The helper thread of timer_create(SIGEV_THREAD) blocks it and takes it with sigwaitinfo:
 * it has no timer of ours, as it does not come through pthread_create. And pthread_cancel sends it, with tgkill; the
 * handler for that is set by the first pthread_cancel (2.34 and later) or when the program starts. What did not come
 * from a timer of ours goes there. */
#ifndef STROBE_AGENT_SIGNALS_H
#define STROBE_AGENT_SIGNALS_H

#include "base/status.h"

#include <stdbool.h>

enum { AGENT_SIGNAL = 32 };

/* Sets the handler, behind which stands the one that was there. To be repeated when that one may have changed. */
enum status signals_install(void) MUST_USE;

/* AGENT_SIGNAL alone is blocked in the calling thread between the two. */
void signals_block(void);
void signals_unblock(void);
bool signals_are_blocked(void);

#endif
