/* All processes in which the agent works, from their first region to the last record in a ring. */
#ifndef STROBE_SAMPLER_AGENT_SESSION_H
#define STROBE_SAMPLER_AGENT_SESSION_H

#include "sampler/sample.h"

struct agent_session;

/* Makes the folder in which the processes leave their regions; name it to them in WIRE_ENVIRONMENT_FOLDER. */
enum status agent_session_open(struct agent_session **session, struct error *error) MUST_USE;
/* Removes the folder. agent_session_finish comes before it, if the session was started. NULL is fine. */
void agent_session_close(struct agent_session *session);
const char *agent_session_folder(const struct agent_session *session);

/* From here on the sink (borrowed) hears of processes, threads and samples. native_boundaries: as in target_options. */
void agent_session_start(struct agent_session *session, struct sample_sink *sink, bool native_boundaries);

/* Only the process of this id is of interest; others are told not to sample. */
void agent_session_ignore_others(struct agent_session *session, pid_t pid);

/* Notices processes that have come. Cheap when there are none. */
enum status agent_session_attend(struct agent_session *session, uint64_t now_ns) MUST_USE;
/* Takes all that the rings hold, notices who has come and gone. A ring holds what a thread writes in some 100 ms. */
enum status agent_session_drain(struct agent_session *session, uint64_t now_ns) MUST_USE;
/* The same for the last time: processes that live on are told not to sample any more, and all are told to have ended.
 */
enum status agent_session_finish(struct agent_session *session) MUST_USE;

/* A Python process was seen from outside alone; it is complained of unless it had an agent, or `certain` and that was
 * not said already. */
void agent_session_note_missed(struct agent_session *session, pid_t pid, bool certain);

/* What outlives the command: waits a fifth of a second for it, reading rings, as helpers of what has just ended end
 * right after it. What then runs on is complained of, for it is not going to be sampled. Before agent_session_finish.
 */
enum status agent_session_await_last(struct agent_session *session) MUST_USE;

/* How well the CPU time of those that have ended was looked at. */
struct sample_looks agent_session_looks(const struct agent_session *session);
/* How many processes there were. */
uint32_t agent_session_process_count(const struct agent_session *session);
/* What the user should know of (an agent that has switched itself off), one line each; NULL: no more. Valid until the
 * next call. */
const char *agent_session_next_complaint(struct agent_session *session);

#endif
