/* Two engines look at the same processes: the agent from inside, the sampler from outside. The roster hands on what
 * both see as one process and one thread each. */
#ifndef STROBE_SAMPLER_ROSTER_H
#define STROBE_SAMPLER_ROSTER_H

#include "sampler/sample.h"

enum roster_side { ROSTER_INSIDE, ROSTER_OUTSIDE };

struct roster;

/* `sink` (borrowed) gets numbers for processes that the roster gives. `missed` is told of each process that was never
 * seen from inside, at its end, and of each whose CPU time is told from outside, before (`certain`). NULL when there is
 * no memory. */
struct roster *roster_new(struct sample_sink *sink,
                          void (*missed)(void *context, const struct sampled_process *process, bool certain),
                          void *context);
/* Tells the sink of all ends that it waited with, and frees it. */
enum status roster_free(struct roster *roster) MUST_USE;

/* What to give the engine of that side. A process is told by its id, a thread by its native id. A process that no
 * side has any more, and a thread that only one has ever had, is kept a little while: a side may be slower. */
struct sample_sink *roster_sink(struct roster *roster, enum roster_side side);

/* How many processes there were. */
uint32_t roster_process_count(const struct roster *roster);

#endif
