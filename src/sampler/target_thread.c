#include "sampler/target_thread.h"

#include "base/array.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* How often a stack is read anew until it agrees with itself. */
    MAX_LINKED_ATTEMPTS = 4,
    /* Each frame outside the chunks is to be seen a few times where nothing is known of it, as in code that runs for
     * the first time. */
    MAX_CHUNK_ATTEMPTS = 24,
};

/* States change rarely compared with stacks, and cost as much to read. */
static const uint64_t STATE_PERIOD_NS = NS_PER_MS;
/* What tells of the GIL tells of the state too, and is cheaper to read than the state alone. So at 100 Hz it is due at
 * nearly every look, jittered as they are. */
static const uint64_t GIL_PERIOD_NS = 4 * NS_PER_MS;
/* Who waits for the GIL wakes up every few milliseconds to ask for it (Python/ceval_gil.c), which tells nothing. So its
 * clocks are left out for so long, once it was seen to do that some times in a row. */
static const uint64_t LAZY_PERIOD_NS = 40 * NS_PER_MS;
enum { CONTENDING_TIMES = 4 };
/* Of a thread that meets new code, the code that is known already is looked at again this often. */
static const uint64_t CODES_PERIOD_NS = 2 * NS_PER_MS;
/* What one long wait came to is told this often before it is over. */
static const uint64_t SLEEP_PERIOD_NS = NS_PER_S;
/* Of a thread that runs, the stack is read when others have kept it from running for so long. */
static const uint64_t LEAST_DELAY_NS = NS_PER_MS;
/* CPU clocks of running threads are brought up to date at the kernel's ticks: smaller differences mean nothing. */
static const uint64_t CPU_SLACK_NS = 10 * NS_PER_MS;

void target_thread_release(struct target_thread *thread) {
    thread_watch_free(thread->watch);
    stack_tracker_release(&thread->tracker);
    linked_tracker_release(&thread->linked);
    free(thread->frames);
    thread->frames = NULL;
    thread->watch = NULL;
}

void target_thread_take_state(struct target_thread *thread, const struct thread_state *state) {
    thread->state = *state;
    thread->interp = state->interp;
    thread->thread_id = state->thread_id;
    thread->native_thread_id = state->native_thread_id;
}

bool target_thread_has_ids_of(const struct target_thread *thread, const struct thread_state *state) {
    return thread->interp == state->interp && thread->thread_id == state->thread_id &&
           thread->native_thread_id == state->native_thread_id;
}

bool target_thread_is_looked_at(const struct target_thread *thread) {
    return !thread->gone && !thread->stands_by && !thread->missing;
}

bool target_thread_has_ended(const struct target_thread *thread) {
    struct thread_activity activity;
    return thread->gone ||
           (thread->watch != NULL && thread_watch_activity(thread->watch, &activity) == STATUS_NO_PROCESS);
}

static bool has_current_codes(const struct tracked_stack *stack, size_t count, struct code_cache *codes) {
    for (size_t i = 0; i < count; i++) {
        const struct code *old = stack->frames[i].code, *now = NULL;
        if (old != NULL && (code_cache_get(codes, old->address, &now) != STATUS_OK || now != old))
            return false;
    }
    return true;
}

/* With all that is remembered. */
static bool is_current(struct tracked_stack *stack, struct code_cache *codes) {
    size_t count = stack->known > stack->count ? stack->known : stack->count;
    tracked_stack_restore(stack);
    return has_current_codes(stack, count, codes);
}

void target_thread_forget_stack(struct target_thread *thread) {
    stack_tracker_forget(&thread->tracker);
    linked_tracker_forget(&thread->linked);
    thread->count = 0;
    thread->known = 0;
    thread->unchanged = 0;
    thread->aside_count = 0;
    thread->has_stack = false;
}

enum status target_thread_watch(struct target_thread *thread, struct process *process) {
    TRY(thread_watch_open(process, thread->tid, &thread->watch));
    thread->wait.from_ns = clock_monotonic_ns();
    if (thread_watch_activity(thread->watch, &thread->activity) == STATUS_OK)
        /* What it was charged with while nothing told of it, it has used. */
        thread->cpu_start_ns =
            thread->activity.cpu_ns > thread->cpu_charged_ns ? thread->activity.cpu_ns - thread->cpu_charged_ns : 0;
    thread->wait.from = thread->activity;
    thread->wait.charged_delay_ns = thread->activity.delay_ns;
    thread->run_checked_ns = 0;
    return STATUS_OK;
}

static bool is_same_activity(const struct thread_activity *one, const struct thread_activity *other) {
    return one->switches == other->switches && one->cpu_ns == other->cpu_ns;
}

static enum status read_state(struct target_thread *thread, bool with_futex) {
    thread->assumed_idle = false;
    if (!with_futex)
        return thread_watch_state(thread->watch, &thread->run);
    thread->futex_known = true;
    return thread_watch_wait(thread->watch, &thread->run, &thread->futex);
}

/* What it waits on is the same as long as it is asleep. */
static void read_futex(struct target_thread *thread) {
    if (thread->run != THREAD_IDLE || thread->watch == NULL)
        thread->futex = 0;
    else if (!thread->futex_known)
        thread->futex = thread_watch_futex(thread->watch);
    thread->futex_known = true;
}

static bool contends(const struct target_thread *thread, uint64_t now_ns) {
    return thread->activity_known && thread->run == THREAD_IDLE && thread->gil == SAMPLE_GIL_WAITING &&
           thread->moves >= CONTENDING_TIMES && now_ns - thread->activity_read_ns < LAZY_PERIOD_NS;
}

/* The state of one that contends, without its clocks unless it runs. */
static enum status read_state_lazily(struct target_thread *thread, uint64_t now_ns) {
    struct thread_activity activity;
    thread->run_checked_ns = now_ns;
    TRY(read_state(thread, true));
    if (thread->run != THREAD_RUNNING)
        return STATUS_OK;
    enum status status = thread_watch_activity(thread->watch, &activity);
    if (status == STATUS_OK)
        thread->activity = thread->activity_at_check = activity;
    return status == STATUS_NO_PROCESS ? status : STATUS_OK;
}

static enum status read_clocks(const struct target_thread *thread, uint64_t now_ns, struct thread_activity *activity) {
    if (thread->fresh_ns != now_ns)
        return thread_watch_activity(thread->watch, activity);
    *activity = thread->fresh;
    return STATUS_OK;
}

/* Brings thread->run up to date, with_futex thread->futex as well if that costs nothing. *asleep: it has not run since
 * the last look, so that its stack is the same still. */
static enum status read_activity(struct target_thread *thread, uint64_t now_ns, bool with_futex, bool *asleep) {
    struct thread_activity activity = {0};
    bool futex_known = thread->futex_known && thread->run == THREAD_IDLE;
    *asleep = false;
    thread->futex_known = false;
    if (thread->watch == NULL)
        return STATUS_OK;
    if (thread->sleeps_on) {
        thread->activity_read_ns = now_ns;
        thread->futex_known = futex_known;
        *asleep = true;
        return STATUS_OK;
    }
    /* Of a thread that runs, the stack is read in any case. */
    if (thread->run == THREAD_RUNNING && now_ns - thread->activity_read_ns < STATE_PERIOD_NS)
        return STATUS_OK;
    thread->activity_read_ns = now_ns;
    enum status status = read_clocks(thread, now_ns, &activity);
    if (status == STATUS_OK) {
        bool moved = !thread->activity_known || !is_same_activity(&activity, &thread->activity);
        thread->activity = activity;
        thread->activity_known = true;
        thread->moves = moved && thread->run == THREAD_IDLE ? thread->moves + (thread->moves < CONTENDING_TIMES) : 0;
        *asleep = !moved && thread->run == THREAD_IDLE && !thread->assumed_idle;
        thread->futex_known = *asleep && futex_known;
        /* One that ran and has gone to sleep since was charged for what it used till then. */
        bool runs_on = thread->run == THREAD_RUNNING && thread->run_checked_ns != 0 &&
                       is_same_activity(&activity, &thread->activity_at_check);
        if (*asleep || runs_on)
            return STATUS_OK;
    } else if (status == STATUS_NO_PROCESS) {
        return status;
    }
    /* What was idle and has moved may be running now, and would pass for asleep at the next look. */
    if (thread->run == THREAD_RUNNING && now_ns - thread->run_checked_ns < STATE_PERIOD_NS)
        return STATUS_OK;
    thread->run_checked_ns = now_ns;
    thread->activity_at_check = activity;
    return read_state(thread, with_futex);
}

enum status target_thread_read_before_pause(struct target_thread *thread, uint64_t now_ns) {
    bool asleep = false, due = now_ns - thread->gil_checked_ns >= GIL_PERIOD_NS;
    TRY(read_activity(thread, now_ns, due, &asleep));
    if (due)
        read_futex(thread);
    return STATUS_OK;
}

/* Whether it is to be found out if the thread waits for the GIL. */
static bool is_gil_due(const struct target_thread *thread, const struct thread_look *look) {
    const struct interp *interp = look->interp;
    if (interp->gil_holder == thread->state.address || interp->gil == 0 || thread->watch == NULL)
        return false;
    return look->options->mode == SAMPLING_WAIT || look->now_ns - thread->gil_checked_ns >= GIL_PERIOD_NS;
}

static void read_gil(struct target_thread *thread, const struct thread_look *look) {
    const struct interp *interp = look->interp;
    if (interp->gil_holder == thread->state.address) {
        thread->gil = SAMPLE_GIL_HELD;
        return;
    }
    if (thread->gil == SAMPLE_GIL_HELD)
        thread->gil = SAMPLE_GIL_NONE;
    if (!is_gil_due(thread, look))
        return;
    thread->gil_checked_ns = look->now_ns;
    /* A stopped thread was asked before. */
    if (!look->options->blocking)
        read_futex(thread);
    bool waits = thread->futex >= interp->gil && thread->futex < interp->gil + look->gil_bytes;
    thread->gil = waits ? SAMPLE_GIL_WAITING : SAMPLE_GIL_NONE;
}

/* The CPU time that a sample stands for: the wall time, if the thread runs, put right by what its own clock says. */
static uint64_t cpu_weight(struct target_thread *thread, uint64_t wall_ns) {
    uint64_t weight_ns = thread->run == THREAD_RUNNING ? wall_ns : 0;
    if (!thread->activity_known)
        return weight_ns;
    uint64_t used_ns = thread->activity.cpu_ns - thread->cpu_start_ns;
    uint64_t charged_ns = thread->cpu_charged_ns + weight_ns;
    if (used_ns > charged_ns + CPU_SLACK_NS)
        weight_ns += used_ns - charged_ns;
    else if (charged_ns > used_ns + CPU_SLACK_NS)
        weight_ns = charged_ns - weight_ns > used_ns ? 0 : used_ns + weight_ns - charged_ns;
    thread->cpu_charged_ns += weight_ns;
    return weight_ns;
}

/* Whether a sample of wall time counts as CPU time. The system calls a thread running that only wants to, so its own
 * clock decides: over more than CPU_SLACK_NS, what counts as CPU time is what the thread used. */
static bool charge_wall(struct target_thread *thread, uint64_t wall_ns) {
    if (!thread->activity_known)
        return thread->run == THREAD_RUNNING;
    uint64_t used_ns = thread->activity.cpu_ns - thread->cpu_start_ns;
    uint64_t charged_ns = thread->cpu_charged_ns + wall_ns;
    bool ran =
        thread->run == THREAD_RUNNING ? charged_ns <= used_ns + CPU_SLACK_NS : charged_ns + CPU_SLACK_NS < used_ns;
    if (ran)
        thread->cpu_charged_ns = charged_ns;
    return ran;
}

/* What is remembered is in its place again. */
static void restore(struct target_thread *thread) {
    if (thread->aside_count == 0)
        return;
    memcpy(thread->frames + thread->aside_start, thread->aside, thread->aside_count * sizeof thread->aside[0]);
    if (thread->wait.unchanged > thread->aside_start)
        thread->wait.unchanged = thread->aside_start;
    thread->aside_count = 0;
}

/* Before up to `count` frames from `start` on, all that are not remembered, are put: keeps what is. */
static void put_aside(struct target_thread *thread, size_t start, size_t count) {
    size_t known = thread->known > start ? thread->known - start : 0;
    count = count < known ? count : known;
    if (count > THREAD_MAX_ASIDE) {
        thread->known = start;
        return;
    }
    memcpy(thread->aside, thread->frames + start, count * sizeof thread->aside[0]);
    thread->aside_start = start;
    thread->aside_count = count;
}

/* Puts one more frame at `index`, outermost first; thread->unchanged counts those that were there before. */
static void put_frame(struct target_thread *thread, size_t index, const struct sample_frame *frame) {
    struct sample_frame *there = &thread->frames[index];
    if (thread->unchanged == index && index < thread->known && there->code == frame->code &&
        there->instruction_bytes == frame->instruction_bytes && there->kind == frame->kind) {
        thread->unchanged = index + 1;
        return;
    }
    *there = *frame;
}

static const struct sample_frame native_frame = {.instruction_bytes = -1, .kind = SAMPLE_FRAME_NATIVE};
static const struct sample_frame gc_frame = {.instruction_bytes = -1, .kind = SAMPLE_FRAME_GC};

static size_t put_native(struct target_thread *thread, size_t index, const struct thread_look *look) {
    if (!look->options->native_boundaries || index == 0)
        return index;
    put_frame(thread, index, &native_frame);
    return index + 1;
}

/* How many of a tracked stack's frames are there as sample frames already. A frame's mark is how many end with it. */
static size_t count_there(const struct target_thread *thread, const struct tracked_stack *stack) {
    size_t from = stack->unchanged;
    while (from > 0 && stack->frames[from - 1].mark > thread->known)
        from--;
    return from;
}

/* Takes over what has changed of a tracked stack; behind it there is room for the collector's frame. */
static enum status take_tracked(struct target_thread *thread, const struct thread_look *look,
                                struct tracked_stack *stack) {
    restore(thread);
    size_t from = count_there(thread, stack), count = from > 0 ? stack->frames[from - 1].mark : 0;
    /* At worst a native frame before each. */
    size_t most = (stack->count - from) * 2 + 1;
    TRY(array_reserve((void **)&thread->frames, &thread->capacity, count + most, sizeof thread->frames[0]));
    thread->passing = stack->passing;
    if (stack->passing)
        put_aside(thread, count, most);
    thread->unchanged = count;
    for (size_t i = from; i < stack->count; i++) {
        struct tracked_frame *tracked = &stack->frames[i];
        struct sample_frame frame = {tracked->code, tracked->instruction_bytes, SAMPLE_FRAME_PYTHON};
        if (tracked->code == NULL && i + 1 < stack->count)
            count = put_native(thread, count, look);
        else if (tracked->shown)
            put_frame(thread, count++, &frame);
        tracked->mark = (uint32_t)count;
    }
    thread->count = count;
    if (!stack->passing)
        thread->known = count;
    return STATUS_OK;
}

/* The collector works on top of the frame that it was called from. */
static void put_collector(struct target_thread *thread) {
    thread->frames[thread->count++] = gc_frame;
}

static struct tracked_stack *stack_of(struct target_thread *thread, const struct thread_look *look) {
    return linked_tracker_supports(look->runtime) ? &thread->linked.stack : &thread->tracker.stack;
}

static enum status track(struct target_thread *thread, const struct thread_look *look) {
    thread->linked.paused = look->options->blocking;
    thread->tracker.paused = look->options->blocking;
    return linked_tracker_supports(look->runtime)
               ? linked_tracker_look(&thread->linked, &thread->state, MAX_LINKED_ATTEMPTS)
               : stack_tracker_look(&thread->tracker, &thread->state, MAX_CHUNK_ATTEMPTS);
}

/* Where code is met that was not before, some was made, and it may have been in the place of what has died: whether
 * that is so with the stack at hand. */
static bool has_dead_code(struct target_thread *thread, const struct thread_look *look) {
    struct code_cache *codes = thread->tracker.codes;
    if (codes->last_serial == thread->codes_serial || look->now_ns - thread->codes_checked_ns < CODES_PERIOD_NS)
        return false;
    const struct tracked_stack *stack = stack_of(thread, look);
    thread->codes_checked_ns = look->now_ns;
    thread->codes_serial = codes->last_serial;
    code_cache_start_epoch(codes);
    return !has_current_codes(stack, stack->count, codes);
}

static enum status read_frames(struct target_thread *thread, const struct thread_look *look, bool *consistent) {
    enum status status = track(thread, look);
    if (status == STATUS_OK && has_dead_code(thread, look)) {
        target_thread_forget_stack(thread);
        status = track(thread, look);
    }
    *consistent = false;
    if (status == STATUS_TORN)
        return STATUS_OK;
    TRY(status);
    *consistent = true;
    return take_tracked(thread, look, stack_of(thread, look));
}

/* Reads the stack. *taken is false when there is nothing to report: it was dropped and counted. */
static enum status read_stack(struct target_thread *thread, const struct thread_look *look, bool collecting,
                              bool *taken) {
    bool consistent = false;
    enum status status = read_frames(thread, look, &consistent);
    *taken = status == STATUS_OK && consistent && thread->state.interp == look->interp->address;
    if (status == STATUS_FAILED)
        return status;
    if (*taken && collecting)
        put_collector(thread);
    /* What is not handed on is not known to who receives the samples. */
    if (!*taken && thread->known > thread->unchanged)
        thread->known = thread->unchanged;
    if (!*taken && status == STATUS_OK && !consistent)
        look->counters->inconsistent++;
    else if (!*taken)
        look->counters->errors++;
    return STATUS_OK;
}

static bool is_wanted(const struct target_thread *thread, enum sampling_mode mode, uint64_t weight_ns) {
    if (mode == SAMPLING_GIL)
        return thread->gil == SAMPLE_GIL_HELD;
    return weight_ns > 0;
}

static enum status hand_on(struct target_thread *thread, struct sample_sink *sink, struct sample_counters *counters,
                           enum sample_clock clock, uint64_t time_ns, uint64_t weight_ns) {
    struct sample sample = {
        .thread = &thread->sampled,
        .time_ns = time_ns,
        .weight_ns = weight_ns,
        .clock = clock,
        .state = thread->run,
        .gil = thread->gil,
        .frames = thread->frames,
        .count = thread->count,
        .unchanged = thread->wait.unchanged,
    };
    if (weight_ns == 0 || thread->sampled.process->paused)
        return STATUS_OK;
    thread->wait.unchanged = thread->count;
    counters->taken++;
    return sink->sample(sink, &sample);
}

/* Charges the stack at hand with all time up to until_ns in which the thread neither ran nor wanted to, and that no
 * stack was charged with yet: also with waits between the looks that none saw. So the sums are exact, and each place
 * that a thread waits at gets its share by the chance of being seen there. The clocks are not read at one instant, so
 * that the sum can seem to shrink: then nothing is charged until it has grown again. */
static enum status charge_wait(struct target_thread *thread, struct sample_sink *sink, struct sample_counters *counters,
                               uint64_t until_ns) {
    const struct thread_activity *from = &thread->wait.from, *now = &thread->activity;
    uint64_t wall_ns = until_ns > thread->wait.from_ns ? until_ns - thread->wait.from_ns : 0;
    uint64_t other_ns = now->cpu_ns - from->cpu_ns + now->delay_ns - from->delay_ns + thread->wait.charged_ns;
    uint64_t weight_ns = wall_ns > other_ns ? wall_ns - other_ns : 0;
    thread->sampled_ns = until_ns;
    thread->wait.charged_ns += weight_ns;
    return hand_on(thread, sink, counters, SAMPLE_CLOCK_WAIT, until_ns, weight_ns);
}

/* The same for the time in which it was ready and others had the processors: the place that it runs at waited. */
static enum status charge_delay(struct target_thread *thread, const struct thread_look *look) {
    uint64_t delay_ns = thread->activity.delay_ns - thread->wait.charged_delay_ns;
    thread->wait.charged_delay_ns = thread->activity.delay_ns;
    return hand_on(thread, look->sink, look->counters, SAMPLE_CLOCK_WAIT, look->now_ns, delay_ns);
}

/* CPU time that the agent does not tell: none is there. While it is not known whether there is one, nothing is told. */
static uint64_t untold_cpu(struct target_thread *thread) {
    if (thread->sampled.process->company == SAMPLE_COMPANY_AGENT)
        thread->told_cpu_ns = thread->sampled.cpu_ns;
    return thread->sampled.process->company == SAMPLE_COMPANY_NONE && thread->sampled.cpu_ns > thread->told_cpu_ns
               ? thread->sampled.cpu_ns - thread->told_cpu_ns
               : 0;
}

/* Charges the stack at hand, which is one that ran, with all CPU time that no stack was charged with yet: so the sums
 * are exact, and each place that a thread works at gets its share by the chance of being seen there. */
static enum status charge_work(struct target_thread *thread, struct sample_sink *sink, struct sample_counters *counters,
                               uint64_t now_ns) {
    uint64_t weight_ns = untold_cpu(thread);
    thread->told_cpu_ns += weight_ns;
    return hand_on(thread, sink, counters, SAMPLE_CLOCK_CPU_SUM, now_ns, weight_ns);
}

enum status target_thread_end_work(struct target_thread *thread, struct sample_sink *sink,
                                   struct sample_counters *counters) {
    return charge_work(thread, sink, counters, clock_monotonic_ns());
}

/* A long sleep is one sample, handed on when it is over, or now and then. */
enum status target_thread_end_sleep(struct target_thread *thread, struct sample_sink *sink,
                                    struct sample_counters *counters) {
    uint64_t asleep_ns = thread->wait.asleep_ns;
    thread->wait.asleep_ns = 0;
    if (asleep_ns <= thread->sampled_ns)
        return STATUS_OK;
    return charge_wait(thread, sink, counters, asleep_ns);
}

enum status target_thread_rest(struct target_thread *thread, struct sample_sink *sink,
                               struct sample_counters *counters) {
    TRY(target_thread_end_sleep(thread, sink, counters));
    TRY(target_thread_end_work(thread, sink, counters));
    target_thread_forget_stack(thread);
    thread->wait.unchanged = 0;
    return STATUS_OK;
}

/* What a thread used without a state is none of Python's; but it may have had one between two looks, and looks at
 * others stand for that. So its clock may be ahead of what samples were charged with, but not so far that it would make
 * up for it. Where it is told as it is, it is left out. */
static void leave_out_rest(struct target_thread *thread, const struct thread_activity *now, enum sampling_mode mode) {
    uint64_t used_ns = now->cpu_ns - thread->cpu_start_ns, most_ns = thread->cpu_charged_ns + CPU_SLACK_NS;
    if (mode == SAMPLING_WAIT)
        thread->cpu_start_ns += now->cpu_ns - thread->activity.cpu_ns;
    else if (used_ns > most_ns)
        thread->cpu_start_ns += used_ns - most_ns;
}

void target_thread_resume(struct target_thread *thread, const struct thread_state *state, enum sampling_mode mode,
                          uint64_t since_ns) {
    struct thread_activity now = thread->activity;
    target_thread_take_state(thread, state);
    thread->sampled_ns = since_ns;
    if (thread->watch != NULL && thread_watch_activity(thread->watch, &now) == STATUS_OK)
        leave_out_rest(thread, &now, mode);
    thread->activity = now;
    /* So that it does not pass for asleep: it has not moved since just now. */
    thread->activity_known = false;
    thread->activity_read_ns = 0;
    thread->run_checked_ns = 0;
    thread->gil_checked_ns = 0;
    thread->gil = SAMPLE_GIL_NONE;
    thread->gil_request = 0;
    thread->moves = 0;
    thread->assumed_idle = false;
    thread->futex_known = false;
    thread->missing = false;
    thread->wait.from = now;
    thread->wait.from_ns = clock_monotonic_ns();
    thread->wait.charged_ns = 0;
    thread->wait.charged_delay_ns = now.delay_ns;
    thread->wait.asleep_ns = 0;
}

static uint64_t less(uint64_t amount, uint64_t other) {
    return amount > other ? amount - other : 0;
}

void target_thread_hand_over(struct target_thread *from, struct target_thread *to) {
    uint64_t used_ns = from->activity.cpu_ns - from->cpu_start_ns;
    to->has_stack = false;
    to->sampled_ns = from->sampled_ns;
    /* What nothing tells of one is not to be taken for the other's. */
    if (from->watch == NULL || to->watch == NULL)
        return;
    to->activity = from->activity;
    to->activity_known = from->activity_known;
    to->activity_at_check = from->activity_at_check;
    to->activity_read_ns = from->activity_read_ns;
    to->run = from->run;
    to->assumed_idle = from->assumed_idle;
    to->run_checked_ns = from->run_checked_ns;
    to->moves = 0;
    to->futex_known = false;
    to->cpu_start_ns = from->activity.cpu_ns - to->sampled.cpu_ns;
    to->cpu_charged_ns = less(to->sampled.cpu_ns + from->cpu_charged_ns, used_ns);
    to->told_cpu_ns = less(to->sampled.cpu_ns + from->told_cpu_ns, from->sampled.cpu_ns);
    from->told_cpu_ns = from->sampled.cpu_ns;
    to->wait.from = from->wait.from;
    to->wait.from_ns = from->wait.from_ns;
    to->wait.charged_ns = from->wait.charged_ns;
    to->wait.charged_delay_ns = from->wait.charged_delay_ns;
    to->wait.asleep_ns = 0;
}

/* Whether it has run since its activity was read last. */
static bool has_moved(const struct target_thread *thread) {
    struct thread_activity activity;
    return thread->watch == NULL || thread_watch_activity(thread->watch, &activity) != STATUS_OK ||
           !is_same_activity(&activity, &thread->activity);
}

enum status target_thread_check_codes(struct target_thread *thread, struct code_cache *codes, struct sample_sink *sink,
                                      struct sample_counters *counters) {
    if (is_current(&thread->tracker.stack, codes) && is_current(&thread->linked.stack, codes))
        return STATUS_OK;
    /* As long as it slept, it held its code: what has died since then did so because it went on. If it still sleeps,
     * its stack is looked at anew, and is charged with the whole sleep. */
    if (has_moved(thread))
        TRY(target_thread_end_sleep(thread, sink, counters));
    target_thread_forget_stack(thread);
    thread->wait.asleep_ns = 0;
    return STATUS_OK;
}

enum status target_thread_look_waiting(struct target_thread *thread, const struct thread_look *look) {
    bool asleep = false, taken = false;
    struct thread_activity before = thread->activity;
    if (thread->watch == NULL)
        return STATUS_OK;
    enum status status = read_activity(thread, look->now_ns, is_gil_due(thread, look), &asleep);
    if (status == STATUS_OK && asleep && thread->has_stack) {
        thread->wait.asleep_ns = look->now_ns;
        bool due = look->now_ns - thread->sampled_ns >= SLEEP_PERIOD_NS;
        return due ? target_thread_end_sleep(thread, look->sink, look->counters) : STATUS_OK;
    }
    struct thread_activity now = thread->activity;
    thread->activity = before;
    TRY(target_thread_end_sleep(thread, look->sink, look->counters));
    TRY(status);
    thread->activity = now;
    thread->sampled.cpu_ns = now.cpu_ns - thread->cpu_start_ns;
    thread->has_stack = false;
    bool runs = thread->run == THREAD_RUNNING;
    /* Where its clocks are not to be had, what is found running has been since the last look. */
    if (runs && !thread->activity_known && look->now_ns > thread->wait.from_ns)
        thread->wait.charged_ns = look->now_ns - thread->wait.from_ns;
    bool delayed = now.delay_ns - thread->wait.charged_delay_ns >= LEAST_DELAY_NS;
    bool worked = untold_cpu(thread) > 0;
    if (runs && !delayed && !worked)
        return STATUS_OK;
    read_gil(thread, look);
    TRY(read_stack(thread, look, false, &taken));
    if (!taken)
        return STATUS_OK;
    if (thread->unchanged < thread->wait.unchanged)
        thread->wait.unchanged = thread->unchanged;
    if (runs && worked)
        TRY(charge_work(thread, look->sink, look->counters, look->now_ns));
    if (runs)
        return delayed ? charge_delay(thread, look) : STATUS_OK;
    thread->has_stack = true;
    return charge_wait(thread, look->sink, look->counters, look->now_ns);
}

bool target_thread_may_contend(const struct target_thread *thread, const struct thread_look *look) {
    return !look->options->blocking && look->options->mode == SAMPLING_WALL && thread->activity_known &&
           thread->gil != SAMPLE_GIL_HELD && (thread->gil == SAMPLE_GIL_WAITING || thread->run == THREAD_RUNNING);
}

/* Who says that it waits for the GIL does, whether the system has just woken it to ask for it again or not. Its clocks
 * can wait; where they stand still for that long it does not ask again, and is not believed without the system. */
static enum status take_request(struct target_thread *thread, uint64_t now_ns, bool *taken) {
    struct thread_activity activity;
    thread->gil_request = 0;
    if (now_ns - thread->activity_read_ns >= LAZY_PERIOD_NS) {
        enum status status = thread_watch_activity(thread->watch, &activity);
        if (status != STATUS_OK || is_same_activity(&activity, &thread->activity))
            return status == STATUS_NO_PROCESS ? status : STATUS_OK;
        thread->activity = activity;
        thread->activity_read_ns = now_ns;
    }
    *taken = true;
    thread->run = THREAD_IDLE;
    thread->assumed_idle = true;
    thread->futex_known = false;
    thread->gil = SAMPLE_GIL_WAITING;
    thread->gil_checked_ns = now_ns;
    return STATUS_OK;
}

/* What the system says of it, or it itself. */
static enum status find_state(struct target_thread *thread, const struct thread_look *look, bool *asleep) {
    bool taken = false;
    if (thread->gil_request == 1 && look->interp->gil != 0 && look->interp->gil_holder != thread->state.address)
        TRY(take_request(thread, look->now_ns, &taken));
    if (taken)
        return STATUS_OK;
    /* Between what was read before a pause and the pause it may have run. */
    bool with_futex = is_gil_due(thread, look);
    if (!look->options->blocking && look->options->mode == SAMPLING_WALL && with_futex &&
        contends(thread, look->now_ns))
        TRY(read_state_lazily(thread, look->now_ns));
    else if (!look->options->blocking)
        TRY(read_activity(thread, look->now_ns, with_futex, asleep));
    read_gil(thread, look);
    return STATUS_OK;
}

enum status target_thread_begin_look(struct target_thread *thread, const struct thread_look *look, bool *wanted) {
    bool asleep = false;
    *wanted = false;
    TRY(find_state(thread, look, &asleep));
    /* Nothing tells whether it runs, but that it has the GIL. */
    if (thread->watch == NULL)
        thread->run = thread->gil == SAMPLE_GIL_HELD ? THREAD_RUNNING : THREAD_IDLE;
    bool ran = thread->run == THREAD_RUNNING;
    uint64_t weight_ns = look->now_ns - thread->sampled_ns;
    thread->pending.charged_before_ns = thread->cpu_charged_ns;
    if (look->options->mode == SAMPLING_CPU)
        weight_ns = cpu_weight(thread, weight_ns);
    else if (look->options->mode == SAMPLING_WALL)
        ran = charge_wall(thread, weight_ns);
    if (thread->activity_known)
        thread->sampled.cpu_ns = thread->activity.cpu_ns - thread->cpu_start_ns;
    thread->has_stack = thread->has_stack && asleep;
    thread->pending.weight_ns = weight_ns;
    thread->pending.ran = ran;
    thread->pending.collecting = look->interp->collecting && thread->gil == SAMPLE_GIL_HELD;
    *wanted = is_wanted(thread, look->options->mode, weight_ns);
    if (!*wanted)
        thread->sampled_ns = look->now_ns;
    return STATUS_OK;
}

enum status target_thread_finish_look(struct target_thread *thread, const struct thread_look *look) {
    bool taken = true;
    if (!thread->has_stack)
        TRY(read_stack(thread, look, thread->pending.collecting, &taken));
    if (!taken) {
        /* The next sample of this thread stands for this time too: what is dropped is a look, not time. */
        thread->cpu_charged_ns = thread->pending.charged_before_ns;
        return STATUS_OK;
    }
    thread->has_stack = true;
    thread->sampled_ns = look->now_ns;
    look->counters->taken++;
    struct sample sample = {
        .thread = &thread->sampled,
        .time_ns = look->now_ns,
        .weight_ns = thread->pending.weight_ns,
        .state = thread->pending.ran ? THREAD_RUNNING : THREAD_IDLE,
        .gil = thread->gil,
        .collecting = thread->pending.collecting,
        .frames = thread->frames,
        .count = thread->count,
        .unchanged = thread->unchanged,
        .passing = thread->passing,
    };
    /* Of a stack that stands, the next sample has all of it in common with this one. */
    if (!thread->passing)
        thread->unchanged = thread->count;
    return look->sink->sample(look->sink, &sample);
}

enum status target_thread_look(struct target_thread *thread, const struct thread_look *look) {
    bool wanted = false;
    TRY(target_thread_begin_look(thread, look, &wanted));
    return wanted ? target_thread_finish_look(thread, look) : STATUS_OK;
}

bool target_thread_stands_still(const struct target_thread *thread, const struct thread_look *look) {
    return thread->run == THREAD_IDLE && !thread->has_stack && thread->gil != SAMPLE_GIL_HELD &&
           !look->options->blocking && !linked_tracker_supports(look->runtime);
}

enum status target_thread_look_again(struct target_thread *thread, const struct thread_look *look) {
    thread->cpu_charged_ns = thread->pending.charged_before_ns;
    thread->gil_checked_ns = 0;
    thread->gil_request = 0;
    thread->sleeps_on = false;
    thread->fresh_ns = 0;
    return target_thread_look(thread, look);
}
