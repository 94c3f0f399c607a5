/* A thread of a target. Private to target*.c. */
#ifndef STROBE_SAMPLER_TARGET_THREAD_H
#define STROBE_SAMPLER_TARGET_THREAD_H

#include "process/thread_watch.h"
#include "sampler/sample.h"
#include "sampler/target.h"
#include "unwind/linked_tracker.h"
#include "unwind/stack_tracker.h"

enum { THREAD_MAX_ASIDE = 2 * TRACKED_MAX_ASIDE + 1 };

struct target_thread {
    struct sampled_thread sampled; /* what the sink sees */
    struct thread_state state;
    remote_addr interp;
    /* Of its state as it was listed: what is read there since may be another's by now. */
    uint64_t thread_id;
    uint64_t native_thread_id;
    struct target_thread *namesake; /* of the threads whose states have this address, the next, while they are listed */
    struct target_thread *sharer; /* of those that are of the same system thread, the next, in a ring; NULL: none are */
    struct thread_watch *watch;   /* NULL where the system's thread is not known, or no descriptors were left for it */
    pid_t tid;                    /* as strobe sees it; 0: not known */
    struct thread_activity activity;
    struct thread_activity fresh; /* its clocks as they were read for the look at fresh_ns */
    uint64_t fresh_ns;
    enum thread_run_state run;
    enum sample_gil gil;
    uint64_t run_checked_ns;
    uint64_t gil_checked_ns;
    uint64_t codes_checked_ns; /* against what stands at their addresses, */
    uint32_t codes_serial;     /* and the last that was known then */
    uint64_t sampled_ns;       /* when the last sample was taken, or watching began */
    uint64_t cpu_start_ns;     /* of its CPU clock, when watching began */
    uint64_t cpu_charged_ns;   /* of the CPU time since, what samples have been charged with */
    uint64_t activity_read_ns;
    unsigned moves;                           /* so often in a row it had moved and was idle still */
    struct thread_activity activity_at_check; /* what it was when `run` was last read */
    remote_addr futex;                        /* that it waits on, or waited on before the pause */
    /* Of a thread whose waiting is sampled. */
    struct {
        struct thread_activity from; /* its clocks when watching it began, */
        uint64_t from_ns;            /* and when that was */
        uint64_t charged_ns;         /* what stacks have been charged with since */
        uint64_t charged_delay_ns;   /* up to where its delay_ns is charged */
        uint64_t asleep_ns;          /* when it was last seen asleep where its stack is still the same; 0: not */
        size_t unchanged; /* so many frames are as they were when last handed on: not all stacks that are read are */
    } wait;
    /* Of a sample that is being taken. */
    struct {
        uint64_t weight_ns;
        uint64_t charged_before_ns;
        bool ran;
        bool collecting;
    } pending;
    uint64_t told_cpu_ns; /* of the CPU time since watching began, what needs no telling any more */
    bool activity_known;
    bool futex_known;             /* futex is of this look, or of one since when it has been asleep */
    uint32_t gil_request;         /* 3.15+: 1: its state says that it waits for the GIL, as read for this look */
    bool assumed_idle;            /* because it said so: the system was not asked when `run` was set */
    bool sleeps;                  /* it is one of those of which sleepers.h speaks, */
    bool sleeps_on;               /* and has not run since the last look */
    bool has_stack;               /* frames are those of the last look, and nothing has run since */
    bool unwatched;               /* it was counted as such */
    bool gone;                    /* what had its tid has ended */
    bool stands_by;               /* the system's thread runs for another one of them */
    bool listed;                  /* mark of the list's last reading */
    bool missing;                 /* it was not in the list at the reading before */
    struct stack_tracker tracker; /* 3.11+ */
    struct linked_tracker linked; /* before */
    struct sample_frame *frames;  /* outermost first */
    size_t count;
    size_t capacity;
    size_t known;     /* so many are remembered; those behind `count` are in their places */
    size_t unchanged; /* so many are remembered of the stack at hand */
    bool passing;     /* it is not to be remembered itself */
    /* What is remembered where it has others. */
    struct sample_frame aside[THREAD_MAX_ASIDE];
    size_t aside_start;
    size_t aside_count;
};

/* What all threads of a target share during a look. */
struct thread_look {
    const struct target_options *options;
    const struct runtime *runtime;
    struct sample_counters *counters;
    struct sample_sink *sink;
    const struct interp *interp;
    size_t gil_bytes; /* size of the GIL's struct */
    uint64_t now_ns;
};

/* It has this state from here on. */
void target_thread_take_state(struct target_thread *thread, const struct thread_state *state);
/* Whether the state has its ids. */
bool target_thread_has_ids_of(const struct target_thread *thread, const struct thread_state *state);
/* Whether its state is there and is the one that its system thread runs for, as far as is known. */
bool target_thread_is_looked_at(const struct target_thread *thread);
/* Whether the system's thread is known to have ended. */
bool target_thread_has_ended(const struct target_thread *thread);
/* Opens its watch, from where on its clocks count. */
enum status target_thread_watch(struct target_thread *thread, struct process *process) MUST_USE;
/* Its state is gone, while it lives on: hands on what is left, and forgets the stack. */
enum status target_thread_rest(struct target_thread *thread, struct sample_sink *sink,
                               struct sample_counters *counters) MUST_USE;
/* It has a state again, which it had not yet at since_ns. What it did in between is none of Python's. */
void target_thread_resume(struct target_thread *thread, const struct thread_state *state, enum sampling_mode mode,
                          uint64_t since_ns);
/* For looks that stop the threads: reads what the system says of it, which a stopped thread cannot be asked. */
enum status target_thread_read_before_pause(struct target_thread *thread, uint64_t now_ns) MUST_USE;
/* Takes a sample of one thread, if there is one to take. STATUS_NO_PROCESS: the thread has ended. */
enum status target_thread_look(struct target_thread *thread, const struct thread_look *look) MUST_USE;
/* 3.15+: whether it is likely to say itself that it waits for the GIL, so that the system need not be asked. */
bool target_thread_may_contend(const struct target_thread *thread, const struct thread_look *look);
/* The same in two halves: what the system says of it, then, if there is one to take, the sample. */
enum status target_thread_begin_look(struct target_thread *thread, const struct thread_look *look,
                                     bool *wanted) MUST_USE;
enum status target_thread_finish_look(struct target_thread *thread, const struct thread_look *look) MUST_USE;
/* Between them: whether it waits, so that its stack, which is to be read, most likely stands still. */
bool target_thread_stands_still(const struct target_thread *thread, const struct thread_look *look);
/* Instead of the second: the first is void, it is to be looked at anew. */
enum status target_thread_look_again(struct target_thread *thread, const struct thread_look *look) MUST_USE;
/* The same in SAMPLING_WAIT. */
enum status target_thread_look_waiting(struct target_thread *thread, const struct thread_look *look) MUST_USE;
/* Forgets the stack at hand. */
void target_thread_forget_stack(struct target_thread *thread);
/* Holds the stack at hand, parts of which may be as they were for long, against the code objects that there are now;
 * what is of one that died and whose address another has taken is to be looked at anew, after a sleep that is over was
 * handed on. */
enum status target_thread_check_codes(struct target_thread *thread, struct code_cache *codes, struct sample_sink *sink,
                                      struct sample_counters *counters) MUST_USE;
/* Hands on what is left of a thread's CPU time: before it ends. */
enum status target_thread_end_work(struct target_thread *thread, struct sample_sink *sink,
                                   struct sample_counters *counters) MUST_USE;
/* Hands on the wait of a thread that was asleep at the last look: before it ends, or its stack is forgotten. */
enum status target_thread_end_sleep(struct target_thread *thread, struct sample_sink *sink,
                                    struct sample_counters *counters) MUST_USE;
/* From one to another that is of the same system thread: what is charged from here on is the other's, and what the one
 * was not charged with yet. */
void target_thread_hand_over(struct target_thread *from, struct target_thread *to);
void target_thread_release(struct target_thread *thread);

#endif
