/* One thread that the agent samples: its ring becomes samples. Private to agent_*.c. */
#ifndef STROBE_SAMPLER_AGENT_THREAD_H
#define STROBE_SAMPLER_AGENT_THREAD_H

#include "sampler/agent_code.h"
#include "sampler/agent_memory.h"
#include "sampler/cpu_split.h"
#include "sampler/sample.h"
#include "wire/ring.h"

/* A frame as the ring has it. */
struct agent_frame {
    struct agent_code *code; /* holds a reference; NULL but for Python frames, and where it was never told of */
    int32_t instruction_bytes;
    uint32_t kind; /* enum wire_frame_kind */
    size_t shown;  /* so many sample frames end with it, from the outermost on */
};

/* What all threads of a process share while their rings are read. */
struct agent_reading {
    struct sample_sink *sink;
    struct sample_counters *counters;
    struct agent_codes *codes;
    struct cpu_split *split; /* NULL: the process was gone before it could be looked at */
    struct memory *memory;   /* NULL: likewise */
    struct agent_memory *allocated;
    bool native_boundaries;
    bool free_threaded;
    uint64_t *unseen_ns; /* CPU time of threads that ended before their clock had struck once */
    struct sample_looks *looks;
    uint64_t stride_ns;       /* the CPU time between two strokes of a thread's clock */
    uint64_t from_ns, now_ns; /* nothing in the rings is older or newer */
    void *scratch;            /* WIRE_RING_BYTES, aligned: where a record is copied to before it is looked at */
};

struct agent_thread {
    struct sampled_thread sampled;
    struct wire_ring ring;
    uint64_t position;
    uint64_t start_cpu_ns;
    uint64_t charged_cpu_ns; /* of its clock, what samples have been charged with */
    uint64_t lost_seen, torn_seen;
    uint64_t starter_id;     /* as the slot has it */
    struct map codes;        /* address -> struct agent_code, as this ring told; holds references */
    struct agent_frame *raw; /* outermost first */
    size_t raw_count, raw_capacity;
    size_t gap;                  /* so many frames, outside of the raw ones, were never told of: something was lost */
    struct sample_frame *frames; /* outermost first, what is shown of them */
    size_t count, capacity;
    size_t settled;  /* of these, so many are those of the sample before */
    uint32_t *paths; /* of the first path_count of these, in the process's agent_sites */
    size_t path_count, path_capacity;
    struct agent_allocations allocations;
    bool has_sample;
    struct wire_sample last;    /* the last that was taken; before the first, what the clocks showed at the start */
    struct sample_cpu last_cpu; /* its parts, without texts */
};

/* `slot` is that of the ring; what it says of the thread is copied. */
void agent_thread_init(struct agent_thread *thread, struct sampled_process *process, const struct wire_ring *ring);
void agent_thread_release(struct agent_thread *thread, struct agent_codes *codes);

/* Takes all that stands in the ring. Only what is strobe's own failure or the sink's is returned. */
enum status agent_thread_drain(struct agent_thread *thread, const struct agent_reading *reading) MUST_USE;
/* A record's frames: the thread's are brought up to date. For the reader of its other records. */
enum status agent_thread_take_stack(struct agent_thread *thread, const struct agent_reading *reading, uint32_t kept,
                                    const struct wire_frame *frames, uint32_t count) MUST_USE;
/* Its CPU clock stood at end_cpu_ns when it ended: what no sample stands for yet goes to the last stack. A thread
 * without one leaves it to others: its like, some of which were seen. */
enum status agent_thread_finish(struct agent_thread *thread, const struct agent_reading *reading, uint64_t end_ns,
                                uint64_t end_cpu_ns) MUST_USE;
/* The same of the process's last thread: what is unseen still has no stack. */
enum status agent_thread_take_unseen(struct agent_thread *thread, const struct agent_reading *reading) MUST_USE;

#endif
