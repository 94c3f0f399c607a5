/* The agent's own state: what it is working on in this process, if at all. */
#ifndef STROBE_AGENT_AGENT_H
#define STROBE_AGENT_AGENT_H

#include "agent/python.h"
#include "wire/region.h"

#include <stdbool.h>

/* Functions of this library that the program finds in place of libc's, and those that are called from outside. */
#define AGENT_EXPORT __attribute__((visibility("default")))

/* Whether there is a region that is this process's own: not in a process that is no Python or in which the agent is
 * off, and not in a child that libc's fork did not make. */
bool agent_owns_region(void);
/* Only when agent_owns_region(). */
struct wire_region *agent_region(void);
const struct agent_python *agent_python(void);
uint64_t agent_period_ns(void);
/* Whether threads are to have perf events, too; known from the start, in every process. */
bool agent_wants_perf(void);

/* The process ends in an orderly way, in the calling thread, or without one of its own: strobe is told. The second time
 * nothing happens. Async-signal-safe. */
void agent_end(void);

/* A function that every CPython calls when it starts was called, from there. If this process was none so far, and the
 * caller is a CPython that was loaded since, then it is one from here on. Not signal-safe. */
void agent_note_caller(const void *caller);

/* signals_install; when it fails, strobe is told. */
void agent_install_signal(void);

#endif
