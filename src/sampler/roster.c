#include "sampler/roster.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/map.h"
#include "process/process.h"

#include <stdlib.h>
#include <string.h>

/* How much slower one side may be than the other. */
static const uint64_t LINGER_NS = 500 * NS_PER_MS;

/* So soon a process is known to the agent, if there is one. */
static const uint64_t GRACE_NS = 100 * NS_PER_MS;

/* Of whose ends nobody wants to know, most of them. */
enum { MAX_EXITS = 1 << 12, STATUS_BITS = 16, STATUS_MASK = (1 << STATUS_BITS) - 1 };

enum { SIDES = 2 };

struct roster_thread {
    struct sampled_thread merged; /* what the sink sees */
    struct sampled_thread *sides[SIDES];
    bool seen[SIDES];
    char *name;
    uint64_t inside_cpu_ns;  /* what its clock said when it was last seen from inside, */
    uint64_t outside_cpu_ns; /* and what was known outside then */
    uint64_t ended_ns;       /* when no side had it any more */
    bool shares;             /* the system's thread with another, which its CPU time is told of by the agent */
};

struct roster_process {
    struct sampled_process merged; /* what the sink sees */
    struct sampled_process *sides[SIDES];
    bool seen[SIDES];
    bool missed;                            /* told of */
    struct sample_counters counters[SIDES]; /* of those that have ended; a process that execs is one after the other */
    struct sample_counters sum;             /* with those that go on */
    struct roster_thread **threads;
    size_t thread_count, thread_capacity;
    struct map by_native_id; /* -> struct roster_thread, the last with that id */
    char *began_in;
    bool inherited;        /* that */
    uint64_t undecided_ns; /* since when it has not been known whether there is an agent */
    uint64_t ended_ns;
};

struct side {
    struct sample_sink sink; /* must be first */
    struct roster *roster;
    int index;
};

struct roster {
    struct sample_sink *sink;
    struct side sides[SIDES];
    struct roster_process **processes;
    size_t count, capacity;
    uint32_t next_number;
    struct map exits; /* process id -> wait status and, in ms, when it was told, of those that ended lately */
    void (*missed)(void *context, const struct sampled_process *process, bool certain);
    void *context;
};

static struct side *side_of(struct sample_sink *sink) {
    return (struct side *)sink;
}

/* Threads. */

static enum status close_thread(struct roster *roster, struct roster_process *process, size_t index) {
    struct roster_thread *thread = process->threads[index];
    process->threads[index] = process->threads[--process->thread_count];
    uint64_t known = 0;
    if (map_get(&process->by_native_id, thread->merged.native_id, &known) && known == (uint64_t)(uintptr_t)thread)
        (void)map_remove(&process->by_native_id, thread->merged.native_id);
    enum status status = roster->sink->thread_ended(roster->sink, &thread->merged);
    free(thread->name);
    free(thread);
    return status;
}

static bool is_gone(const struct roster_thread *thread) {
    return thread->sides[ROSTER_INSIDE] == NULL && thread->sides[ROSTER_OUTSIDE] == NULL;
}

static bool was_seen_by_both(const bool seen[SIDES]) {
    return seen[ROSTER_INSIDE] && seen[ROSTER_OUTSIDE];
}

/* Ends threads that no side has any more. Those that only one has ever seen stay until `before_ns`. */
static enum status sweep_threads(struct roster *roster, struct roster_process *process, uint64_t before_ns) {
    for (size_t i = process->thread_count; i-- > 0;) {
        const struct roster_thread *thread = process->threads[i];
        if (is_gone(thread) && (was_seen_by_both(thread->seen) || thread->ended_ns <= before_ns))
            TRY(close_thread(roster, process, i));
    }
    return STATUS_OK;
}

/* What this side knows and the other has not said. Returns whether that is anything. */
static bool merge_thread(struct roster_thread *thread, const struct sampled_thread *told) {
    bool news = false;
    if (thread->merged.thread_id == 0 && told->thread_id != 0) {
        thread->merged.thread_id = told->thread_id;
        news = true;
    }
    if (thread->merged.interpreter < 0 && told->interpreter >= 0) {
        thread->merged.interpreter = told->interpreter;
        news = true;
    }
    if (told->name != NULL && (thread->name == NULL || strcmp(thread->name, told->name) != 0)) {
        free(thread->name);
        thread->merged.name = thread->name = strdup(told->name);
        news = true;
    }
    return news;
}

static struct roster_thread *find_thread(const struct roster_process *process, uint64_t native_id, int side) {
    uint64_t known = 0;
    if (native_id == 0 || !map_get(&process->by_native_id, native_id, &known))
        return NULL;
    struct roster_thread *thread = (struct roster_thread *)(uintptr_t)known;
    /* Lost outside and found again: as another thread its CPU time would be counted twice. */
    bool is_back =
        side == ROSTER_OUTSIDE && thread->sides[ROSTER_OUTSIDE] == NULL && thread->sides[ROSTER_INSIDE] != NULL;
    return !thread->seen[side] || is_back ? thread : NULL;
}

static enum status add_thread(struct roster_process *process, const struct sampled_thread *told,
                              struct roster_thread **result) {
    TRY(array_reserve((void **)&process->threads, &process->thread_capacity, process->thread_count + 1,
                      sizeof(void *)));
    struct roster_thread *thread = calloc(1, sizeof *thread);
    if (thread == NULL)
        return STATUS_FAILED;
    thread->merged = (struct sampled_thread){
        .process = &process->merged, .native_id = told->native_id, .interpreter = -1, .cpu_ns = told->cpu_ns};
    (void)merge_thread(thread, told);
    process->threads[process->thread_count++] = thread;
    *result = thread;
    /* A thread that is in several interpreters is several here, and one inside: the first. */
    uint64_t known = 0;
    if (map_get(&process->by_native_id, told->native_id, &known))
        thread->shares = ((struct roster_thread *)(uintptr_t)known)->sides[ROSTER_OUTSIDE] != NULL;
    return told->native_id != 0 && !thread->shares
               ? map_set(&process->by_native_id, told->native_id, (uint64_t)(uintptr_t)thread)
               : STATUS_OK;
}

static enum status thread_started(struct sample_sink *sink, struct sampled_thread *told) {
    struct side *side = side_of(sink);
    struct sample_sink *behind = side->roster->sink;
    struct roster_process *process = told->process->receiver;
    struct roster_thread *thread = find_thread(process, told->native_id, side->index);
    bool is_new = thread == NULL;
    if (is_new)
        TRY(add_thread(process, told, &thread));
    thread->sides[side->index] = told;
    thread->seen[side->index] = true;
    told->receiver = thread;
    if (is_new)
        return behind->thread_started(behind, &thread->merged);
    return merge_thread(thread, told) ? behind->thread_renamed(behind, &thread->merged) : STATUS_OK;
}

static enum status thread_renamed(struct sample_sink *sink, struct sampled_thread *told) {
    struct roster_thread *thread = told->receiver;
    struct sample_sink *behind = side_of(sink)->roster->sink;
    return merge_thread(thread, told) ? behind->thread_renamed(behind, &thread->merged) : STATUS_OK;
}

/* Those that end are the last ones, most often. */
static size_t index_of(const struct roster_process *process, const struct roster_thread *thread) {
    size_t index = process->thread_count - 1;
    while (process->threads[index] != thread)
        index--;
    return index;
}

/* By the agent, as of the first that is the same thread of the system: as long as it is there, and when it was there to
 * the end. */
static bool is_told_elsewhere(const struct roster_thread *thread, const struct sampled_thread *told) {
    const struct roster_process *process = told->process->receiver;
    enum sample_company company = told->process->company;
    return thread->shares &&
           (company == SAMPLE_COMPANY_AGENT || (company == SAMPLE_COMPANY_UNKNOWN && process->seen[ROSTER_INSIDE]));
}

/* The agent's clock is exact. What comes when there is no agent any more is added. */
static void take_cpu(struct roster_thread *thread, const struct sampled_thread *told, int side) {
    bool is_elsewhere = side == ROSTER_OUTSIDE && is_told_elsewhere(thread, told);
    if (side == ROSTER_INSIDE || (!thread->seen[ROSTER_INSIDE] && !thread->shares))
        thread->merged.cpu_ns = told->cpu_ns;
    else if (is_elsewhere && told->process->company == SAMPLE_COMPANY_AGENT)
        thread->outside_cpu_ns = told->cpu_ns;
    else if (!is_elsewhere && (thread->shares || told->process->company == SAMPLE_COMPANY_NONE) &&
             told->cpu_ns >= thread->outside_cpu_ns)
        thread->merged.cpu_ns = thread->inside_cpu_ns + (told->cpu_ns - thread->outside_cpu_ns);
}

static enum status thread_ended(struct sample_sink *sink, struct sampled_thread *told) {
    struct side *side = side_of(sink);
    struct roster_thread *thread = told->receiver;
    struct roster_process *process = told->process->receiver;
    take_cpu(thread, told, side->index);
    if (side->index == ROSTER_INSIDE) {
        const struct sampled_thread *outside = thread->sides[ROSTER_OUTSIDE];
        thread->inside_cpu_ns = thread->merged.cpu_ns;
        thread->outside_cpu_ns = outside != NULL ? outside->cpu_ns : 0;
    }
    thread->sides[side->index] = NULL;
    told->receiver = NULL;
    if (!is_gone(thread))
        return STATUS_OK;
    thread->ended_ns = clock_monotonic_ns();
    return was_seen_by_both(thread->seen) ? close_thread(side->roster, process, index_of(process, thread)) : STATUS_OK;
}

/* Processes. */

/* It may be told of after its end was. But what ended before it began had only the same id. */
static void note_status(struct roster *roster, struct sampled_process *process) {
    uint64_t told = 0;
    if (!map_get(&roster->exits, (uint64_t)process->pid, &told))
        return;
    (void)map_remove(&roster->exits, (uint64_t)process->pid);
    if (told >> STATUS_BITS < process->start_ns / NS_PER_MS)
        return;
    process->wait_status = (int)(told & STATUS_MASK);
    process->has_status = true;
}

static void add_counters(struct sample_counters *sum, const struct sample_counters *counters) {
    sum->taken += counters->taken;
    sum->missed += counters->missed;
    sum->inconsistent += counters->inconsistent;
    sum->errors += counters->errors;
    sum->unwatched += counters->unwatched;
}

static void sum_counters(struct roster_process *process) {
    process->sum = (struct sample_counters){0};
    for (int i = 0; i < SIDES; i++) {
        add_counters(&process->sum, &process->counters[i]);
        if (process->sides[i] != NULL && process->sides[i]->counters != NULL)
            add_counters(&process->sum, process->sides[i]->counters);
    }
}

static enum status close_process(struct roster *roster, size_t index) {
    struct roster_process *process = roster->processes[index];
    roster->processes[index] = roster->processes[--roster->count];
    note_status(roster, &process->merged);
    if (!process->seen[ROSTER_INSIDE] && !process->missed)
        roster->missed(roster->context, &process->merged, false);
    enum status status = STATUS_OK;
    while (process->thread_count > 0) {
        enum status closed = close_thread(roster, process, process->thread_count - 1);
        status = status == STATUS_OK ? closed : status;
    }
    sum_counters(process);
    enum status ended = roster->sink->process_ended(roster->sink, &process->merged, &process->sum);
    map_release(&process->by_native_id);
    free(process->threads);
    free(process->began_in);
    free(process);
    return status == STATUS_OK ? ended : status;
}

static bool has_left(const struct roster_process *process) {
    return process->sides[ROSTER_INSIDE] == NULL && process->sides[ROSTER_OUTSIDE] == NULL;
}

/* Though both sides have seen its end, a process lingers: it may have exec'd, and the program that it became, ended by
 * now, may not have been found. */
static enum status sweep(struct roster *roster, uint64_t before_ns) {
    for (size_t i = roster->count; i-- > 0;) {
        struct roster_process *process = roster->processes[i];
        TRY(sweep_threads(roster, process, before_ns));
        if (has_left(process) && process->ended_ns <= before_ns)
            TRY(close_process(roster, i));
    }
    return STATUS_OK;
}

/* After an exec the agent's process is another one, and the one from outside is the same. Ids are not used again as
 * soon as one is forgotten here. */
static struct roster_process *find_process(const struct roster *roster, const struct sampled_process *told, int side) {
    for (size_t i = 0; i < roster->count; i++) {
        struct roster_process *process = roster->processes[i];
        if (process->merged.pid == told->pid && process->sides[side] == NULL)
            return process;
    }
    return NULL;
}

/* What the engine outside is to tell of it. */
static void note_company(struct roster_process *process, uint64_t now_ns) {
    struct sampled_process *outside = process->sides[ROSTER_OUTSIDE];
    if (outside == NULL)
        return;
    outside->inside = process->sides[ROSTER_INSIDE];
    if (process->sides[ROSTER_INSIDE] != NULL)
        outside->company = SAMPLE_COMPANY_AGENT;
    else if (outside->company == SAMPLE_COMPANY_AGENT || process->undecided_ns == 0) {
        outside->company = SAMPLE_COMPANY_UNKNOWN;
        outside->asked = false;
        process->undecided_ns = now_ns;
    } else if (now_ns > process->undecided_ns && now_ns - process->undecided_ns >= GRACE_NS)
        outside->company = SAMPLE_COMPANY_NONE;
}

static enum status add_process(struct roster *roster, const struct sampled_process *told,
                               struct roster_process **result) {
    TRY(array_reserve((void **)&roster->processes, &roster->capacity, roster->count + 1, sizeof(void *)));
    struct roster_process *process = calloc(1, sizeof *process);
    if (process == NULL)
        return STATUS_FAILED;
    process->merged = *told;
    process->merged.number = roster->next_number++;
    process->merged.receiver = NULL;
    process->merged.counters = &process->sum;
    roster->processes[roster->count++] = process;
    *result = process;
    return STATUS_OK;
}

/* What may have changed by an exec; and who knows it better. */
static void merge_process(struct roster_process *process, const struct sampled_process *told) {
    if (told->version != 0) {
        process->merged.version = told->version;
        process->merged.free_threaded = told->free_threaded;
    }
    if (told->process != NULL) {
        process->merged.process = told->process;
        process->merged.command = told->command;
    }
    if (told->start_ns < process->merged.start_ns) {
        process->merged.start_ns = told->start_ns;
        process->merged.start_unix_ns = told->start_unix_ns;
    }
    if (told->parent_pid != 0)
        process->merged.parent_pid = told->parent_pid;
    if (told->began_in != NULL) {
        free(process->began_in);
        process->began_in = strdup(told->began_in);
        process->inherited = false;
    }
    process->merged.began_in = process->began_in;
}

static bool is_same_command(char *const *one, char *const *other) {
    if (one == NULL || other == NULL)
        return false;
    while (*one != NULL && *other != NULL && strcmp(*one, *other) == 0)
        one++, other++;
    return *one == NULL && *other == NULL;
}

/* A fork, which is what has its parent's command, began where that did. Its agent says so, too, but it may be seen from
 * outside before that is heard. Asked anew after an exec. */
static void inherit_beginning(const struct roster *roster, struct roster_process *process) {
    if (process->began_in != NULL && !process->inherited)
        return;
    free(process->began_in);
    process->began_in = NULL;
    for (size_t i = 0; i < roster->count && process->began_in == NULL; i++) {
        const struct roster_process *parent = roster->processes[i];
        if (parent != process && parent->merged.pid == process->merged.parent_pid && parent->began_in != NULL &&
            is_same_command(parent->merged.command, process->merged.command))
            process->began_in = strdup(parent->began_in);
    }
    process->inherited = process->began_in != NULL;
    process->merged.began_in = process->began_in;
}

/* It is borrowed from who knows it, and may be found late. */
static void merge_library(struct roster_process *process) {
    process->merged.library = NULL;
    for (int i = 0; i < SIDES; i++)
        if (process->sides[i] != NULL && process->sides[i]->library != NULL)
            process->merged.library = process->sides[i]->library;
}

static enum status process_started(struct sample_sink *sink, struct sampled_process *told) {
    struct side *side = side_of(sink);
    struct roster *roster = side->roster;
    struct roster_process *process = told->receiver;
    if (process == NULL)
        process = find_process(roster, told, side->index);
    if (process == NULL)
        TRY(add_process(roster, told, &process));
    process->sides[side->index] = told;
    process->seen[side->index] = true;
    told->receiver = process;
    merge_process(process, told);
    inherit_beginning(roster, process);
    /* It may be another program. */
    if (side->index == ROSTER_OUTSIDE) {
        told->company = SAMPLE_COMPANY_UNKNOWN;
        process->undecided_ns = 0;
    }
    note_company(process, clock_monotonic_ns());
    merge_library(process);
    return roster->sink->process_started(roster->sink, &process->merged);
}

static enum status process_described(struct sample_sink *sink, struct sampled_process *told) {
    struct roster_process *process = told->receiver;
    struct sample_sink *behind = side_of(sink)->roster->sink;
    merge_library(process);
    return behind->process_described != NULL ? behind->process_described(behind, &process->merged) : STATUS_OK;
}

static enum status process_ended(struct sample_sink *sink, struct sampled_process *told,
                                 const struct sample_counters *counters) {
    struct side *side = side_of(sink);
    struct roster_process *process = told->receiver;
    const struct sampled_process *other = process->sides[SIDES - 1 - side->index];
    add_counters(&process->counters[side->index], counters);
    process->sides[side->index] = NULL;
    told->receiver = NULL;
    process->merged.process = other != NULL ? other->process : NULL;
    process->merged.command = other != NULL ? other->command : NULL;
    merge_library(process);
    uint64_t now_ns = clock_monotonic_ns();
    uint64_t end_ns = told->end_ns != 0 ? told->end_ns : now_ns;
    process->merged.end_ns = end_ns > process->merged.end_ns ? end_ns : process->merged.end_ns;
    process->ended_ns = now_ns;
    note_company(process, now_ns);
    return sweep(side->roster, now_ns > LINGER_NS ? now_ns - LINGER_NS : 0);
}

/* The rest. */

static enum status take_sample(struct sample_sink *sink, const struct sample *told) {
    struct side *side = side_of(sink);
    struct roster_thread *thread = told->thread->receiver;
    struct sample sample = *told;
    struct roster_process *process = told->thread->process->receiver;
    take_cpu(thread, told->thread, side->index);
    if (told->clock == SAMPLE_CLOCK_CPU_SUM && !process->missed) {
        process->missed = true;
        side->roster->missed(side->roster->context, &process->merged, true);
    }
    sample.thread = &thread->merged;
    return side->roster->sink->sample(side->roster->sink, &sample);
}

static enum status idle(struct sample_sink *sink, uint64_t now_ns) {
    struct roster *roster = side_of(sink)->roster;
    for (size_t i = 0; i < roster->count; i++)
        note_company(roster->processes[i], now_ns);
    TRY(sweep(roster, now_ns > LINGER_NS ? now_ns - LINGER_NS : 0));
    for (size_t i = 0; i < roster->count; i++)
        sum_counters(roster->processes[i]);
    return roster->sink->idle(roster->sink, now_ns);
}

static enum status code_forgotten(struct sample_sink *sink, struct sampled_process *told) {
    struct roster_process *process = told->receiver;
    struct sample_sink *behind = side_of(sink)->roster->sink;
    return process != NULL ? behind->code_forgotten(behind, &process->merged) : STATUS_OK;
}

static enum status take_allocations(struct sample_sink *sink, struct sampled_thread *told,
                                    const struct sample_sites *sites, const struct sample_allocation *allocations,
                                    size_t count) {
    struct roster_thread *thread = told->receiver;
    struct sample_sink *behind = side_of(sink)->roster->sink;
    if (behind->allocations == NULL)
        return STATUS_OK;
    return behind->allocations(behind, &thread->merged, sites, allocations, count);
}

static enum status take_memory(struct sample_sink *sink, const struct sample_memory *told) {
    struct roster_process *process = told->process->receiver;
    struct sample_sink *behind = side_of(sink)->roster->sink;
    struct sample_memory memory = *told;
    memory.process = &process->merged;
    return behind->memory != NULL ? behind->memory(behind, &memory) : STATUS_OK;
}

static enum status process_exited(struct sample_sink *sink, pid_t pid, int wait_status) {
    struct roster *roster = side_of(sink)->roster;
    if (roster->exits.count >= MAX_EXITS)
        map_clear(&roster->exits);
    uint64_t told = clock_monotonic_ns() / NS_PER_MS << STATUS_BITS | ((unsigned)wait_status & STATUS_MASK);
    return map_set(&roster->exits, (uint64_t)pid, told);
}

struct roster *roster_new(struct sample_sink *sink,
                          void (*missed)(void *context, const struct sampled_process *process, bool certain),
                          void *context) {
    struct roster *roster = calloc(1, sizeof *roster);
    if (roster == NULL)
        return NULL;
    roster->sink = sink;
    roster->missed = missed;
    roster->context = context;
    for (int i = 0; i < SIDES; i++)
        roster->sides[i] = (struct side){
            .sink = {process_started, process_ended, thread_started, thread_renamed, thread_ended, take_sample, idle,
                     code_forgotten, take_allocations, take_memory, process_described, process_exited},
            .roster = roster,
            .index = i,
        };
    return roster;
}

enum status roster_free(struct roster *roster) {
    if (roster == NULL)
        return STATUS_OK;
    enum status status = STATUS_OK;
    while (roster->count > 0) {
        enum status closed = close_process(roster, roster->count - 1);
        status = status == STATUS_OK ? closed : status;
    }
    map_release(&roster->exits);
    free(roster->processes);
    free(roster);
    return status;
}

struct sample_sink *roster_sink(struct roster *roster, enum roster_side side) {
    return &roster->sides[side].sink;
}

uint32_t roster_process_count(const struct roster *roster) {
    return roster->next_number;
}
