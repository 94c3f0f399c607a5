/* What the agent in a target and strobe share: one file for each process, mapped by both.
 *
 *     +--------------+---------+---------+-- - - --+---------------+--------+--------+-- - -
 *     | wire_region  | slot 0  | slot 1  |         | slot 1023     | ring 0 | ring 1 |
 *     +--------------+---------+---------+-- - - --+---------------+--------+--------+-- - -
 *     0              WIRE_SLOTS_OFFSET                             WIRE_RINGS_OFFSET + i * WIRE_RING_BYTES
 *
 * strobe makes a folder that only its user can enter and names it to the target in WIRE_ENVIRONMENT_FOLDER. A process
 * that turns out to be Python makes a file in it, PID-N.region (N: how often this PID has exec'ed or was reused), with
 * O_EXCL, and sets `magic` last. The file's size is that of all rings from the start, but it is sparse: a ring's space
 * is allocated (fallocate, so that a full disk is an error and not a SIGBUS) and mapped in the target when a thread
 * takes its slot.
 *
 * Each slot is a thread and each ring has one writer, that thread, and one reader, strobe. Nobody waits for anybody:
 * what does not fit into a ring is counted as lost. Both sides treat what the other wrote as input. All times are
 * CLOCK_MONOTONIC unless they are called otherwise.
 *
 * No allocation, no lock, no system call here. */
#ifndef STROBE_WIRE_REGION_H
#define STROBE_WIRE_REGION_H

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

#define WIRE_MAGIC UINT64_C(0x31474165626f7274) /* "trobeAg1" */
#define WIRE_ENVIRONMENT_FOLDER "STROBE_AGENT_FOLDER"
/* The agent's file. */
#define WIRE_AGENT_LIBRARY "libstrobe-agent.so"
/* The period of the CPU clocks in nanoseconds, decimal. */
#define WIRE_ENVIRONMENT_PERIOD "STROBE_AGENT_PERIOD_NS"
/* "perf": each thread has a perf event beside its CPU clock (--clock perf). */
#define WIRE_ENVIRONMENT_CLOCK "STROBE_AGENT_CLOCK"
/* "1": begin with sampling paused (--on-demand). */
#define WIRE_ENVIRONMENT_PAUSED "STROBE_AGENT_PAUSED"
/* The mean number of bytes between two sampled allocations, decimal; not set or "0": memory is not looked at; "1":
 * every allocation is counted. */
#define WIRE_ENVIRONMENT_MEMORY "STROBE_AGENT_MEMORY_STRIDE_BYTES"
/* The mean number of bytes between two sampled copies, decimal; not set or "0", or memory is not looked at: copies are
 * not. */
#define WIRE_ENVIRONMENT_COPIES "STROBE_AGENT_COPY_STRIDE_BYTES"
/* For tests: where the random choice of what is sampled begins, decimal. */
#define WIRE_ENVIRONMENT_MEMORY_SEED "STROBE_AGENT_MEMORY_SEED"

enum {
    WIRE_VERSION = 1, /* both sides are built together; this catches that they are not */
    WIRE_SLOTS = 1024,
    WIRE_RING_BYTES = 128 << 10,
    WIRE_SLOT_BYTES = 192,
    WIRE_SLOTS_OFFSET = 4096,
    WIRE_RINGS_OFFSET = WIRE_SLOTS_OFFSET + ((WIRE_SLOTS * WIRE_SLOT_BYTES + 4095) & ~4095),
    WIRE_REASON_BYTES = 256,
    WIRE_FOLDER_BYTES = 2048,
};
#define WIRE_REGION_BYTES ((uint64_t)WIRE_RINGS_OFFSET + (uint64_t)WIRE_SLOTS * WIRE_RING_BYTES)
/* Where every allocation is counted there is more to tell while a program starts than strobe may find the time to read.
 */
enum { WIRE_LARGE_RING_BYTES = 2 << 20 };

enum wire_state {
    WIRE_STARTING, /* the file is there, but not what is in it */
    WIRE_SAMPLING, /* or paused: `control` */
    WIRE_OFF,      /* the agent cannot work here and has switched itself off: `reason` says why */
    WIRE_ENDED,    /* the process exits in an orderly way */
};

enum wire_control { WIRE_CONTROL_SAMPLE, WIRE_CONTROL_PAUSE };

struct wire_region {
    _Atomic uint64_t magic; /* written last: all below is valid */
    uint32_t version;
    int32_t pid; /* as the process itself sees it, as all ids here */
    int32_t parent_pid;
    uint32_t python_version; /* PY_VERSION_HEX */
    uint32_t free_threaded;
    uint32_t forked; /* made in a child of fork, so that the parent's other threads are not in it */
    uint64_t start_ns;
    uint64_t period_ns;
    uint64_t runtime; /* address of _PyRuntime */
    /* Where the interpreter's evaluation loop and its surroundings are, for telling Python from native code. */
    uint64_t eval_address; /* _PyEval_EvalFrameDefault; 0: not known */
    /* The two are looked at together, as one number, for every allocation that is counted. */
    alignas(8) _Atomic uint32_t control; /* enum wire_control; strobe writes it, as do strobe.start and strobe.stop */
    _Atomic uint32_t peak_id;            /* how often peak_bytes has risen, and one more; only where all is counted */
    _Atomic uint64_t no_slot;            /* threads that are not sampled: all slots taken, or no memory */
    _Atomic uint64_t deaths;             /* code objects freed so far, for tests */
    uint64_t memory_stride_bytes;        /* 0: memory is not looked at */
    _Atomic int64_t footprint_bytes;     /* what malloc has given out and anonymous mappings hold, to 64 KiB a thread */
    _Atomic uint64_t peak_bytes;         /* the most that it was */
    _Atomic uint64_t peak_ns;
    _Atomic uint32_t state; /* enum wire_state */
    uint32_t ring_bytes;    /* of each ring: WIRE_LARGE_RING_BYTES, or 0 for WIRE_RING_BYTES */
    _Atomic uint64_t lost_memory_records;
    _Atomic uint64_t lost_memory_bytes; /* what the allocations stand for of which no record could be written */
    int64_t inherited_bytes;            /* of the footprint, what a child of fork began with */
    _Atomic uint64_t no_event;          /* threads that were to have a perf event and got none */
    char reason[WIRE_REASON_BYTES];     /* NUL-terminated, for the user, when state is WIRE_OFF */
    char began_in[WIRE_FOLDER_BYTES]; /* the working directory when the program began, NUL-terminated; "": not known */
};

enum wire_slot_state {
    WIRE_SLOT_FREE,    /* the agent may claim it */
    WIRE_SLOT_CLAIMED, /* a thread is being born */
    WIRE_SLOT_LIVE,
    WIRE_SLOT_ENDED, /* the thread is gone; strobe empties the ring and frees the slot. Where the thread could not say
                        so, strobe does, by way of WIRE_SLOT_CLAIMED */
};

/* Positions count bytes since the slot was last claimed; position % WIRE_RING_BYTES is the place in the ring. What one
 * side writes shares no cache line with what the other does. */
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
struct wire_slot {
    _Atomic uint32_t state; /* enum wire_slot_state */
    uint32_t tid;
    uint64_t thread_id; /* pthread_self(), threading.get_ident() */
    uint64_t start_ns;
    uint64_t start_cpu_ns; /* of its CPU clock, when sampling it began; the others as wire_sample has them */
    uint64_t start_user_us;
    uint64_t start_system_us;
    uint64_t end_ns; /* valid when ended */
    uint64_t end_cpu_ns;
    /* Written by the thread. */
    alignas(64) _Atomic uint64_t written;
    _Atomic uint64_t lost_records; /* that did not fit */
    _Atomic uint64_t torn;         /* looks whose stack was in no state that could be told */
    uint64_t starter_id;           /* of the WIRE_START that says who started it; 0: none does */
    uint64_t starter;              /* in which slot's ring that is; both set before the slot is live */
    /* Written by strobe. */
    alignas(64) _Atomic uint64_t read;
};
static_assert(sizeof(struct wire_slot) == WIRE_SLOT_BYTES, "the slots' places depend on it");
static_assert(sizeof(struct wire_region) <= WIRE_SLOTS_OFFSET, "the slots follow the header");

static inline struct wire_slot *wire_region_slot(void *region, uint32_t index) {
    return (struct wire_slot *)((char *)region + WIRE_SLOTS_OFFSET) + index;
}

static inline uint64_t wire_ring_offset(uint32_t index) {
    return WIRE_RINGS_OFFSET + (uint64_t)index * WIRE_RING_BYTES;
}

/* What depends on wire_region.ring_bytes. */
static inline uint32_t wire_ring_bytes(uint32_t ring_bytes) {
    return ring_bytes != 0 ? ring_bytes : WIRE_RING_BYTES;
}

static inline uint64_t wire_large_ring_offset(uint32_t index, uint32_t ring_bytes) {
    return WIRE_RINGS_OFFSET + (uint64_t)index * wire_ring_bytes(ring_bytes);
}

#endif
