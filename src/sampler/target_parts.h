/* A process that is sampled, and what target.c, target_list.c, thread_finder.c, target_resting.c and target_sharing.c
 * share of it. Private to them. */
#ifndef STROBE_SAMPLER_TARGET_PARTS_H
#define STROBE_SAMPLER_TARGET_PARTS_H

#include "base/clock.h"
#include "base/memory_meter.h"
#include "base/memory_pages.h"
#include "sampler/sleepers.h"
#include "sampler/target.h"
#include "sampler/target_thread.h"
#include "sampler/thread_group.h"

/* When the list of threads is read again first, where not all is known of one; then ever less often. */
enum { TARGET_SETTLE_FIRST_NS = NS_PER_MS };

struct target {
    struct process *process;
    struct sampled_process sampled;
    struct target_options options;
    struct sample_sink *sink;
    struct memory_pages pages;
    struct budget budget; /* of this look */
    struct memory_meter live;
    struct memory_meter objects;
    struct runtime runtime;
    struct code_cache codes;
    struct seen_calls calls;    /* of all threads */
    struct memory_pages nearby; /* of the thread that is being looked at */
    struct sample_counters counters;
    struct interp *interps;
    size_t interp_count;
    size_t interp_capacity;
    struct target_thread **threads;
    size_t thread_count;
    size_t thread_capacity;
    struct target_thread **resting; /* that have no state at present; not among `threads` */
    size_t resting_count;
    size_t resting_capacity;
    struct thread_group group; /* empty but during a look */
    struct sleepers sleepers;
    size_t system_thread_count; /* at the list's last reading */
    struct arena names;         /* of the list's last reading */
    uint64_t names_read_ns;     /* when those of all threads were */
    struct map by_address;      /* of thread states -> struct target_thread, while they are listed */
    uint64_t interps_read_ns;
    uint64_t listed_ns;
    uint64_t rested_ns;      /* when one was last found without a state; 0: never */
    uint64_t surveyed_ns;    /* when all threads that there were were known last; 0: never */
    uint64_t list_period_ns; /* until it is read again though nothing tells of a change */
    uint64_t settle_ns;      /* the same while there are threads of which not all is known */
    uint64_t reopened_ns, reopen_pause_ns;
    unsigned exec_count; /* when the runtime was opened */
    uint64_t opened_ns;
    char *library; /* sampled.library */
    uint64_t epoch_ns;
    uint64_t lost_ns;        /* since when it is `lost` */
    uint64_t strange_cpu_ns; /* of its first thread's CPU time, what may be another program's at most */
    bool started;
    bool lost;       /* no Python was found when last looked for: it has exec'd something else */
    uint64_t unborn; /* as it was at the last listing */
    bool listed_once;
    bool list_stale; /* threads came or went */
    bool shared;     /* there are threads that have several states */
    bool restarted;  /* the interpreter was finalised and initialised again */
};

/* Whether it is the main thread that has this id, in the process's own namespace. */
static inline bool target_is_main_thread(const struct target *target, uint64_t native_id) {
    return native_id == (uint64_t)process_own_pid(target->process);
}

/* Reads the interpreters again; notices those that are new, and new threads by the heads of the lists. STATUS_TORN:
 * they changed meanwhile, or are gone. */
enum status target_read_interps(struct target *target) MUST_USE;
/* Reads the list of threads again: begins those that are new, ends those that are gone, gives them their names. */
enum status target_list_threads(struct target *target, uint64_t now_ns) MUST_USE;
/* Ends the thread at `index`; another one takes its place. */
enum status target_end_thread(struct target *target, size_t index) MUST_USE;
/* Of one that is in no list any more: tells of its end, and frees it. */
enum status target_finish_thread(struct target *target, struct target_thread *thread) MUST_USE;

/* Whether a thread whose state is gone lives on. */
bool target_may_rest(const struct target_thread *thread);
/* Lays the thread at `index`, which rests, aside until it has a state again; another one takes its place. */
enum status target_rest_thread(struct target *target, size_t index) MUST_USE;
/* *thread: the one that this state is of, and that was not listed with another; among `threads`, also if it lay aside.
 * NULL: none is. */
enum status target_wake_thread(struct target *target, const struct thread_state *state, const struct interp *interp,
                               struct target_thread **thread) MUST_USE;
/* Ends those that live no more, or all. */
enum status target_end_resting(struct target *target, bool all) MUST_USE;

/* After the list was read: which states are of one system thread. Only one of them is looked at, the others stand by.
 */
enum status target_find_sharers(struct target *target) MUST_USE;
/* Before a look: which of them it is. */
enum status target_settle_sharers(struct target *target) MUST_USE;
/* Before it ends. */
void target_leave_sharers(struct target_thread *thread);

#endif
