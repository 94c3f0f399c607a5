/* Code objects as one thread knows them: which are verified, and which stand in the thread's ring already.
 *
 * Code objects die and others take their addresses. So each death is counted, by a wrapper around PyCode_Type's
 * tp_dealloc, in a bucket of its address; what is remembered of an address holds as long as its bucket's count is the
 * same. A count rises before the memory is given back, and nobody can get at a new code object there without being
 * synchronised with that. */
#ifndef STROBE_AGENT_CODES_H
#define STROBE_AGENT_CODES_H

#include "agent/python.h"
#include "wire/ring.h"

#include <stdatomic.h>

enum { CODES_SETS = 256, CODES_WAYS = 4 };

/* 32 bytes, two of which are a cache line. */
struct code_entry {
    uint64_t address;  /* 0: free */
    uint64_t bytecode; /* address of the first instruction */
    uint32_t bytecode_bytes;
    uint16_t
        first_traceable_units; /* instructions before it only set the frame up, at most UINT16_MAX; 0 before 3.11 */
    uint16_t frame_words;      /* of its frames on the data stack, at most UINT16_MAX; 0 before 3.11 */
    uint32_t deaths;           /* of its bucket, when it was verified */
    uint32_t defined : 1;      /* a WIRE_CODE for it stands in the ring */
    uint32_t all_deaths : 31;  /* of all buckets, when `deaths` was last compared */
};

/* One thread's. All zero is empty. */
struct codes {
    struct code_entry entries[CODES_SETS][CODES_WAYS];
    uint8_t replaced_last[CODES_SETS];
    uint8_t stale[CODES_SETS]; /* 1: what is `defined` in the set is of an earlier ring */
};

/* Begins to count deaths; once for each process, before any thread uses codes, not signal-safe. False when the type
 * cannot be written to. After it, every function here is async-signal-safe. */
bool codes_watch(const struct agent_python *python);
/* How many code objects have died so far: as long as it is the same, so is each of them. */
extern _Atomic uint32_t codes_deaths;
static inline uint32_t codes_all_deaths(void) {
    return atomic_load_explicit(&codes_deaths, memory_order_relaxed);
}
/* The same as a number in which every bit changes with each of them, to begin a stack's key with (agent/sites.h). */
#define CODES_GENERATION_STEP UINT64_C(0x9e3779b97f4a7c15)
extern _Atomic uint64_t codes_generation __attribute__((visibility("hidden")));
/* Where the count of all deaths is to be shown, too (wire_region.deaths); NULL: nowhere. */
void codes_publish_deaths(_Atomic uint64_t *deaths);

/* The thread writes to another ring from now on, in which nothing is defined. */
void codes_forget_ring(struct codes *codes);

/* What codes_get will look at first is asked for. */
void codes_expect(const struct codes *codes, uint64_t address);

/* The code object at `address`, verified; NULL when there is none. Valid until the next call. */
struct code_entry *codes_get(struct codes *codes, const struct agent_python *python, uint64_t address);

/* Writes a WIRE_CODE for the code object and makes it visible, unless it stands in the ring already; *defined_now says
 * which. False when it does not fit or when there is no such code object. */
bool codes_define(struct codes *codes, const struct agent_python *python, uint64_t address, struct wire_ring *ring,
                  bool *defined_now);

#endif
