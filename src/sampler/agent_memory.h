/* The memory of one process, out of the rings of all its threads. Private to agent_*.c.
 *
 * What a thread allocates and copies is summed up as it is read. Which of it lives is another matter: an allocation may
 * stand in one ring and its free in another. So these wait in a queue until all rings have been read up to a moment
 * that lies behind them, and are then taken by time. */
#ifndef STROBE_SAMPLER_AGENT_MEMORY_H
#define STROBE_SAMPLER_AGENT_MEMORY_H

#include "sampler/agent_exact.h"
#include "sampler/agent_heap.h"
#include "sampler/agent_sites.h"
#include "wire/region.h"

struct agent_thread;
struct agent_reading;

/* What a thread did since the sink was told. Zero-initialised is nothing. */
struct agent_allocations {
    struct map index; /* path -> item */
    struct sample_allocation *items;
    size_t count, capacity;
};
void agent_allocations_release(struct agent_allocations *allocations);

struct agent_memory {
    bool is_on; /* else nothing below is used */
    struct agent_sites sites;
    struct agent_heap heap;
    struct agent_exact exact; /* in its place where every allocation is counted */
    uint64_t peak_id;         /* the region's */
    struct agent_heap_event *queue;
    size_t queue_count, queue_capacity;
    uint64_t order;
    uint64_t pass_ns; /* when the rings began to be read this time */
    uint64_t start_ns, due_ns;
    uint64_t told_peak_id;
    uint64_t count_carry; /* in 1/1024 allocations: what rounding has not told yet */
    struct series footprint;
    uint64_t noted_bytes;                          /* the last of its values */
    uint64_t footprint_bytes, peak_bytes, peak_ns; /* as the region's header had them last */
    uint64_t inherited_bytes, stride_bytes, lost_records;
    uint64_t resident_bytes, resident_ns; /* the most that was seen, and when it was looked at last */
    struct sample_change *changes;
    size_t change_capacity;
    uint64_t lost_bytes, lost_told_bytes; /* what the lost records stand for, and how much of it is charged */
    struct map starts;                    /* WIRE_START's id -> path */
    struct agent_thread *main;            /* the main thread; NULL: not known, or gone */
    bool main_had_frames;
};

/* `facts`: of the region's header; `last_serial` as agent_codes has it. */
enum status agent_memory_init(struct agent_memory *memory, const struct wire_region *facts,
                              struct agent_codes *codes) MUST_USE;
void agent_memory_release(struct agent_memory *memory);

/* Whether nothing is left to learn of where a thread was started; 0: it is not said. */
bool agent_memory_knows_start(const struct agent_memory *memory, uint64_t starter_id);

/* The rings are read from here on. */
void agent_memory_begin(struct agent_memory *memory, uint64_t now_ns);
/* Charges the main thread, while it is known, with what records that were lost would have told: no line has it, but the
 * sum does. Before that thread's sums are told for the last time, and at agent_memory_settle. */
enum status agent_memory_charge_lost(struct agent_memory *memory, const struct wire_region *header) MUST_USE;
/* Takes a record of memory, of which `record` is a private copy of size_bytes bytes. STATUS_DAMAGED when it is none. */
enum status agent_memory_take(struct agent_memory *memory, struct agent_thread *thread,
                              const struct agent_reading *reading, const struct wire_record *record,
                              size_t size_bytes) MUST_USE;
/* Looks at how much is in RAM, if it is time to; `process` may be NULL. */
void agent_memory_look(struct agent_memory *memory, const struct process *process);
/* The rings have been read: what happened before they were, or, with `everything`, all, is settled. `header` is the
 * region's. */
enum status agent_memory_settle(struct agent_memory *memory, const struct wire_region *header,
                                bool everything) MUST_USE;

/* Whether it is time to tell the sink. */
bool agent_memory_is_due(const struct agent_memory *memory);
/* Tells what the thread did; before the sink is told that it has ended, and before agent_memory_tell. */
enum status agent_memory_tell_thread(struct agent_memory *memory, struct agent_thread *thread,
                                     struct sample_sink *sink) MUST_USE;
enum status agent_memory_tell(struct agent_memory *memory, struct sampled_process *process,
                              struct sample_sink *sink) MUST_USE;

#endif
