/* Which sampled allocations of a process are live, and what each call path holds of them: now, and when the process
 * held most. Private to agent_*.c. */
#ifndef STROBE_SAMPLER_AGENT_HEAP_H
#define STROBE_SAMPLER_AGENT_HEAP_H

#include "base/map.h"
#include "sampler/sample.h"

enum agent_heap_event_kind {
    AGENT_HEAP_ALLOC,
    AGENT_HEAP_RESIZE,
    AGENT_HEAP_FREE,
    AGENT_HEAP_FOOTPRINT, /* the process was so large at that moment */
    AGENT_HEAP_LOOK,      /* the same, but of a moment that is not known so well: no maximum */
};

/* Something that happened to the heap. */
struct agent_heap_event {
    uint64_t time_ns;
    uint64_t order; /* of events at one time */
    uint64_t id;
    uint64_t footprint_bytes; /* of the process: after an allocation, before a free; 0: not known */
    uint64_t size_bytes;      /* of the block */
    uint64_t bytes;           /* of an allocation: what it stands for */
    uint64_t count;           /* in 1/1024 */
    uint64_t variance;        /* of `bytes`, in KiB² */
    uint64_t thread;          /* who did it */
    uint64_t allocated_bytes; /* all that this thread has allocated so far */
    uint32_t path;
    uint16_t kind;
    bool is_final;    /* the interpreter was tearing itself down */
    bool has_program; /* of an allocation: Python code asked for it */
};

/* What one call path has of a block that is live. A block that has grown may be of several. */
struct agent_part {
    uint64_t id;
    uint64_t bytes, count, variance;
    uint64_t size_bytes;              /* of the block; of its last part, as the two below */
    uint64_t thread, allocated_bytes; /* as in the event */
    uint32_t site;                    /* index */
    uint32_t next;                    /* + 1: the block's part before it; of a part not in use: the next such one */
};

/* What is live of a call path. Its values at the process's high-water mark are `saved` if peak_id is the heap's, else
 * they have not changed since, and are the live ones. */
struct agent_heap_site {
    uint32_t path;
    uint64_t peak_id;
    uint64_t live_count; /* in 1/1024 */
    uint64_t live_bytes, live_variance;
    uint64_t saved_bytes, saved_variance;
    uint64_t temporary_bytes;
    uint64_t final_bytes, final_variance, final_count; /* what was live at the program's end, when there was one */
    struct sample_held told;                           /* as the sink was told last */
};

enum { AGENT_STRAYS = 4096 };

/* Zero-initialised is an empty heap. */
struct agent_heap {
    struct map live; /* id -> last part */
    struct agent_part *parts;
    size_t part_count, part_capacity;
    uint32_t unused_part; /* + 1 */
    struct agent_heap_site *sites;
    size_t site_count, site_capacity;
    uint32_t *site_of_path; /* + 1 */
    size_t path_capacity;
    uint64_t peak_id, peak_bytes, peak_ns;
    bool is_final;    /* since the interpreter tears itself down, live is what was live before */
    uint64_t refused; /* allocations that there was no room for */
    /* Blocks that were given back lately, by id. What else comes of them comes late, out of another thread's ring. */
    uint64_t strays[AGENT_STRAYS];
};

void agent_heap_release(struct agent_heap *heap);
/* Events come by time, as nearly as can be told. */
enum status agent_heap_take(struct agent_heap *heap, const struct agent_heap_event *event) MUST_USE;
/* What a site holds. */
struct sample_held agent_heap_held(const struct agent_heap *heap, const struct agent_heap_site *site);

#endif
