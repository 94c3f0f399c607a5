/* One process that is being sampled from outside: its runtime, its threads, and what is remembered from look to look.
 */
#ifndef STROBE_SAMPLER_TARGET_H
#define STROBE_SAMPLER_TARGET_H

#include "sampler/sample.h"

enum sampling_mode {
    SAMPLING_WALL,
    SAMPLING_CPU,
    SAMPLING_GIL,
    SAMPLING_WAIT, /* only threads that do not run; weights are wall time without CPU time */
};

struct target_options {
    enum sampling_mode mode;
    bool blocking;          /* stop the threads for each look */
    bool native_boundaries; /* a <native> frame where C stands between Python frames */
    bool paused;            /* until the agent in it says otherwise */
};

struct target;

/* Takes over the process. STATUS_NOT_PYTHON when it is no Python; STATUS_TORN when it is none yet: try again. On
 * failure the process stays the caller's. The sink hears of it from target_start on. */
enum status target_open(struct process *process, pid_t parent_pid, const struct target_options *options,
                        struct sample_sink *sink, struct target **target, struct error *error) MUST_USE;
/* Begins to sample it; to be called once, before the first look. `number` is sampled_process.number. Seizes the threads
 * when blocking. */
enum status target_start(struct target *target, uint32_t number, struct error *error) MUST_USE;
/* Tells the sink that its threads and the process have ended, if it was started, and frees it. */
enum status target_close(struct target *target) MUST_USE;

/* To be called before it is started, of a process whose birth was seen: its first thread's CPU time counts from there,
 * however late it is looked at, but for what it can have used in the `before_ns` in which it was another program. */
void target_note_birth(struct target *target, uint64_t before_ns);
/* That it ended, and how, before it is closed. */
enum status target_note_gone(struct target *target, uint64_t now_ns) MUST_USE;
void target_note_end(struct target *target, int wait_status);
bool target_has_end(const struct target *target);

/* Looks at every thread once; samples go to the sink. STATUS_NO_PROCESS when the process has ended. Any other failure
 * is the sink's or strobe's own; what goes wrong with the target is counted. */
enum status target_look(struct target *target, uint64_t now_ns) MUST_USE;

/* It has become another program: what was known of it is void. */
enum status target_follow_exec(struct target *target) MUST_USE;
/* How long there has been no Python in it any more; 0: there is. */
uint64_t target_lost_ns(const struct target *target, uint64_t now_ns);
/* When blocking: lets signals and ends through that wait for strobe (process_serve). */
void target_serve(struct target *target);

/* PY_VERSION_HEX; 0 when it has not got far enough to tell. */
uint32_t target_version(const struct target *target);
struct process *target_process(struct target *target);
struct sample_counters *target_counters(struct target *target);

#endif
