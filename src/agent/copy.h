/* memcpy and its kin, in place of those that the program would find: what they copy is counted byte by byte, told by
 * samples (agent/stride.h, struct wire_copy), and handed on to those that come next. A copy that is not sampled costs a
 * subtraction in memory of the thread's own.
 *
 * Libraries that are relocated or initialised before the agent copy, too: until it is, these functions copy by
 * themselves. */
#ifndef STROBE_AGENT_COPY_H
#define STROBE_AGENT_COPY_H

/* From the constructor, before anything else: finds what comes next. */
void copy_find_next(void);
/* From the environment: whether copies are looked at in this process, and how often. */
void copy_read_environment(void);

#endif
