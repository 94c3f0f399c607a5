#include "sampler/agent_process.h"

#include "base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* The agent gives the lowest free slot to a new thread: it is most likely not far behind those in use. */
enum { SLOTS_AHEAD = 16 };
static const uint64_t ALL_SLOTS_PERIOD_NS = 50 * NS_PER_MS;
/* Slots are thought to run out when so many are in use. Each of them is then asked about, which takes 0.3 µs. */
enum { MANY_SLOTS = WIRE_SLOTS * 3 / 4 };

/* The process behind the region, which calls itself by what may be another's id here. *hidden: it may live though it is
 * not found. */
static struct process *find_process(const struct agent_region *region, bool *hidden) {
    struct error ignored = {0};
    struct process *process = NULL;
    enum status status = process_open(region->facts.pid, &process, &ignored);
    if (status == STATUS_OK && process_own_pid(process) == region->facts.pid &&
        process_maps_file(process, region->device, region->inode))
        return process;
    process_free(process);
    *hidden = status == STATUS_PERMISSION || status == STATUS_NO_FILES;
    if (process_find_by_mapping(region->facts.pid, region->device, region->inode, &process) == STATUS_OK)
        return process;
    return NULL;
}

/* What can be had only while the process lives. What cannot costs precision, not the process. */
static void look_at_process(struct agent_process *made, struct code_files *files) {
    struct error ignored = {0};
    const struct wire_region *facts = &made->region->facts;
    struct process *process = find_process(made->region, &made->hidden);
    made->sampled.process = process;
    if (process == NULL)
        return;
    struct runtime_symbols symbols = {.runtime = facts->runtime,
                                      .minor_hint = (int)(facts->python_version >> 16 & 0xff)};
    made->sampled.pid = process_pid(process);
    made->exec_count = process_exec_count(process);
    made->sampled.command = process_command(process);
    /* Its parent's id is one of its own namespace, too. */
    if (process_pid(process) != facts->pid)
        made->sampled.parent_pid = 0;
    memory_pages_init(&made->pages, process_memory(process));
    if (runtime_open(&made->runtime, process_memory(process), &made->pages.memory, &symbols, &ignored) != STATUS_OK ||
        cpu_split_new(process, &made->runtime.layout, facts->eval_address, files, &made->split) != STATUS_OK)
        made->split = NULL;
}

/* The kernel looks at CPU timers when it ticks; its coarse clocks tell how often that is. */
static uint64_t stride_of(uint64_t period_ns) {
    struct timespec tick = {.tv_nsec = 0};
    (void)clock_getres(CLOCK_MONOTONIC_COARSE, &tick);
    uint64_t tick_ns = (uint64_t)tick.tv_nsec;
    uint64_t most_ns = NS_PER_S;
    period_ns = period_ns < most_ns ? period_ns : most_ns;
    return period_ns > tick_ns ? period_ns : tick_ns;
}

enum status agent_process_new(const char *name, struct agent_region *region, const struct agent_origin *origin,
                              struct agent_process **result) {
    const struct wire_region *facts = &region->facts;
    uint64_t now_ns = clock_monotonic_ns();
    uint64_t start_ns = facts->start_ns < now_ns ? facts->start_ns : now_ns;
    start_ns = start_ns > origin->from_ns ? start_ns : origin->from_ns;
    pid_t pid = 0;
    struct agent_process *made = calloc(1, sizeof *made);
    if (made == NULL) {
        agent_region_close(region);
        return STATUS_FAILED;
    }
    (void)agent_folder_parse_name(name, &pid, &made->incarnation);
    (void)snprintf(made->name, sizeof made->name, "%s", name);
    made->region = region;
    made->settled = facts->forked == 0;
    made->stride_ns = stride_of(facts->period_ns);
    made->codes = (struct agent_codes){.format = linetable_format_of((int)(facts->python_version >> 16 & 0xff)),
                                       .last_serial = origin->last_serial};
    made->sampled = (struct sampled_process){
        .pid = facts->pid,
        /* strobe itself is no parent to speak of. */
        .parent_pid = facts->parent_pid != getpid() ? facts->parent_pid : 0,
        .version = facts->python_version,
        .free_threaded = facts->free_threaded != 0,
        .began_in = region->facts.began_in[0] == '/' ? region->facts.began_in : NULL,
        .start_ns = start_ns,
        .start_unix_ns = clock_unix_ns() - (now_ns - start_ns),
        .counters = &made->counters,
    };
    look_at_process(made, origin->code_files);
    *result = made;
    return agent_memory_init(&made->allocated, agent_region_header(region), &made->codes);
}

static bool has_written(const struct agent_process *process) {
    for (uint32_t i = 0; i < WIRE_SLOTS; i++)
        if (atomic_load_explicit(&agent_region_slot(process->region, i)->written, memory_order_relaxed) > 0)
            return true;
    return agent_region_state(process->region) == WIRE_ENDED;
}

static struct agent_reading reading_of(struct agent_process *process, struct sample_sink *sink, bool native_boundaries,
                                       void *scratch) {
    return (struct agent_reading){
        .sink = sink,
        .counters = &process->counters,
        .codes = &process->codes,
        .split = process->split,
        .memory = process->sampled.process != NULL ? process_memory(process->sampled.process) : NULL,
        .allocated = &process->allocated,
        .native_boundaries = native_boundaries,
        .free_threaded = process->sampled.free_threaded,
        .unseen_ns = &process->unseen_ns,
        .looks = &process->looks,
        .stride_ns = process->stride_ns,
        .from_ns = process->sampled.start_ns,
        .now_ns = clock_monotonic_ns(),
        .scratch = scratch,
    };
}

/* Where a new thread was started stands in the ring of the one that did so, and may not have been read yet. */
static enum status read_starter(struct agent_process *process, const struct agent_reading *reading, uint32_t index) {
    const struct wire_slot *slot = agent_region_slot(process->region, index);
    uint64_t starter_id = slot->starter_id, starter = slot->starter;
    if (starter >= WIRE_SLOTS || process->threads[starter] == NULL || reading->scratch == NULL ||
        agent_memory_knows_start(&process->allocated, starter_id))
        return STATUS_OK;
    return agent_thread_drain(process->threads[starter], reading);
}

static enum status start_thread(struct agent_process *process, const struct agent_reading *reading, uint32_t index) {
    struct sample_sink *sink = reading->sink;
    struct wire_ring ring;
    TRY(read_starter(process, reading, index));
    TRY(agent_region_ring(process->region, index, &ring));
    struct agent_thread *thread = malloc(sizeof *thread);
    if (thread == NULL)
        return STATUS_FAILED;
    agent_thread_init(thread, &process->sampled, &ring);
    process->threads[index] = thread;
    process->thread_count++;
    if (thread->sampled.native_id == (uint64_t)process->region->facts.pid)
        process->allocated.main = thread;
    return sink->thread_started(sink, &thread->sampled);
}

static enum status end_thread(struct agent_process *process, const struct agent_reading *reading, uint32_t index) {
    struct agent_thread *thread = process->threads[index];
    struct sample_sink *sink = reading->sink;
    process->threads[index] = NULL;
    enum status status = --process->thread_count == 0 ? agent_thread_take_unseen(thread, reading) : STATUS_OK;
    enum status ended = agent_memory_charge_lost(&process->allocated, agent_region_header(process->region));
    status = status == STATUS_OK ? ended : status;
    ended = agent_memory_tell_thread(&process->allocated, thread, sink);
    status = status == STATUS_OK ? ended : status;
    ended = sink->thread_ended(sink, &thread->sampled);
    status = status == STATUS_OK ? ended : status;
    if (process->allocated.main == thread)
        process->allocated.main = NULL;
    agent_thread_release(thread, &process->codes);
    free(thread);
    return status;
}

static enum status finish_thread(struct agent_process *process, const struct agent_reading *reading, uint32_t index) {
    const struct wire_slot *slot = agent_region_slot(process->region, index);
    TRY(agent_thread_finish(process->threads[index], reading, slot->end_ns, slot->end_cpu_ns));
    return end_thread(process, reading, index);
}

/* A thread that ends without libc (by a SYS_exit of its own) cannot say so. What it has written is all there is. */
static void note_vanished(const struct agent_process *process, uint32_t index, uint64_t now_ns) {
    struct wire_slot *slot = agent_region_slot(process->region, index);
    uint32_t state = WIRE_SLOT_LIVE;
    if (process->threads[index] == NULL || atomic_load_explicit(&slot->state, memory_order_acquire) != state ||
        process_has_thread(process->sampled.process, (pid_t)slot->tid))
        return;
    /* It may have ended in an orderly way since. */
    if (!atomic_compare_exchange_strong(&slot->state, &state, WIRE_SLOT_CLAIMED))
        return;
    slot->end_ns = now_ns;
    slot->end_cpu_ns = process->threads[index]->last.cpu_ns;
    atomic_store_explicit(&slot->state, WIRE_SLOT_ENDED, memory_order_release);
}

static void find_vanished(const struct agent_process *process, uint64_t now_ns) {
    for (uint32_t i = 0; process->sampled.process != NULL && i < WIRE_SLOTS; i++)
        note_vanished(process, i, now_ns);
}

static enum status attend_slot(struct agent_process *process, const struct agent_reading *reading, uint32_t index) {
    struct wire_slot *slot = agent_region_slot(process->region, index);
    /* Before the ring is read: what ended has written all by then. */
    uint32_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
    bool in_use = state == WIRE_SLOT_LIVE || state == WIRE_SLOT_ENDED;
    if (process->threads[index] == NULL && in_use)
        TRY(start_thread(process, reading, index));
    if (process->threads[index] == NULL)
        return STATUS_OK;
    TRY(agent_thread_drain(process->threads[index], reading));
    if (state != WIRE_SLOT_ENDED)
        return STATUS_OK;
    TRY(finish_thread(process, reading, index));
    atomic_store_explicit(&slot->state, WIRE_SLOT_FREE, memory_order_release);
    return STATUS_OK;
}

static enum status tell_memory(struct agent_process *process, struct sample_sink *sink) {
    for (uint32_t i = 0; i < process->slot_limit; i++)
        if (process->threads[i] != NULL)
            TRY(agent_memory_tell_thread(&process->allocated, process->threads[i], sink));
    return agent_memory_tell(&process->allocated, &process->sampled, sink);
}

enum status agent_process_drain(struct agent_process *process, struct sample_sink *sink, bool native_boundaries,
                                void *scratch, bool is_last, uint64_t now_ns) {
    struct agent_reading reading = reading_of(process, sink, native_boundaries, scratch);
    process->sampled.paused = agent_region_is_paused(process->region);
    if (!process->told && !process->settled && !has_written(process))
        return STATUS_OK;
    if (!process->told)
        TRY(sink->process_started(sink, &process->sampled));
    process->told = true;
    uint32_t limit = process->slot_limit + SLOTS_AHEAD < WIRE_SLOTS ? process->slot_limit + SLOTS_AHEAD : WIRE_SLOTS;
    if (is_last || now_ns - process->slots_seen_ns >= ALL_SLOTS_PERIOD_NS) {
        process->slots_seen_ns = now_ns;
        process->slot_limit = 0;
        limit = WIRE_SLOTS;
    }
    agent_memory_begin(&process->allocated, now_ns);
    uint32_t in_use = 0;
    for (uint32_t i = 0; i < limit; i++) {
        TRY(attend_slot(process, &reading, i));
        if (process->threads[i] == NULL)
            continue;
        in_use++;
        if (process->slot_limit <= i)
            process->slot_limit = i + 1;
    }
    uint64_t no_slot = atomic_load_explicit(&agent_region_header(process->region)->no_slot, memory_order_relaxed);
    if (limit == WIRE_SLOTS && in_use >= MANY_SLOTS)
        find_vanished(process, now_ns);
    process->counters.errors += no_slot > process->no_slot_seen ? no_slot - process->no_slot_seen : 0;
    process->no_slot_seen = no_slot;
    process->no_event_seen =
        atomic_load_explicit(&agent_region_header(process->region)->no_event, memory_order_relaxed);
    agent_memory_look(&process->allocated, process->sampled.process);
    TRY(agent_memory_settle(&process->allocated, agent_region_header(process->region), is_last));
    bool is_due = process->allocated.is_on && (is_last || agent_memory_is_due(&process->allocated));
    return is_due ? tell_memory(process, sink) : STATUS_OK;
}

/* It is asked for something, as reading is what tells. */
bool agent_process_has_execed(const struct agent_process *process) {
    uint8_t byte = 0;
    if (process->sampled.process == NULL)
        return false;
    (void)!memory_read(process_memory(process->sampled.process), process->region->facts.runtime, &byte, sizeof byte);
    return process_exec_count(process->sampled.process) != process->exec_count;
}

bool agent_process_alive(const struct agent_process *process) {
    if (process->sampled.process != NULL)
        return process_alive(process->sampled.process) && !agent_process_has_execed(process);
    /* Who may not be looked at may live; who could not be found does not. */
    return process->hidden && (kill(process->sampled.pid, 0) == 0 || errno != ESRCH);
}

bool agent_process_is_same(const struct agent_process *process) {
    return process->sampled.process == NULL ||
           process_maps_file(process->sampled.process, process->region->device, process->region->inode);
}

enum status agent_process_free(struct agent_process *process, struct sample_sink *sink) {
    const struct agent_reading reading = reading_of(process, sink, false, NULL);
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < WIRE_SLOTS; i++) {
        enum status ended = process->threads[i] != NULL ? end_thread(process, &reading, i) : STATUS_OK;
        status = status == STATUS_OK ? ended : status;
    }
    enum status ended = STATUS_OK;
    if (process->told)
        ended = sink->process_ended(sink, &process->sampled, &process->counters);
    cpu_split_free(process->split);
    memory_pages_release(&process->pages);
    agent_memory_release(&process->allocated);
    agent_codes_release(&process->codes);
    agent_region_close(process->region);
    process_free(process->sampled.process);
    free(process);
    return status == STATUS_OK ? ended : status;
}
