/* Code objects, decoded once. */
#ifndef STROBE_CPYTHON_CODE_H
#define STROBE_CPYTHON_CODE_H

#include "base/arena.h"
#include "base/map.h"
#include "cpython/callee_slot.h"
#include "cpython/linetable.h"
#include "cpython/opcode.h"
#include "cpython/runtime.h"

/* co_flags (Include/cpython/code.h) */
enum { CODE_OPTIMIZED = 0x1, CODE_NEWLOCALS = 0x2, CODE_VARARGS = 0x4, CODE_VARKEYWORDS = 0x8 };

/* Everything that a stack needs to know of a code object. Text is UTF-8 with lone surrogates escaped. */
struct code {
    remote_addr address;
    const char *name;
    const char *qualname;     /* NULL before 3.11 */
    remote_addr name_address; /* of the str object */
    const char *filename;
    struct linetable lines;
    remote_addr bytecode; /* 3.11+: address of the first instruction; 0 before, where frames count from 0 */
    remote_addr tlbc;     /* 3.14+ free-threaded: the array of per-thread copies of the bytecode, else 0 */
    uint32_t bytecode_bytes;
    uint32_t first_traceable_bytes; /* 3.11+: instructions before this one only set the frame up */
    uint32_t flags;
    uint32_t frame_bytes;    /* 3.11+: what a frame of it takes up on the data stack */
    uint32_t nlocalsplus;    /* 3.11+ */
    uint32_t argument_count; /* positional, keyword-only, *args and **kwargs together */
    /* Private: for each code unit its instruction's family, and whether it enters; NULL until it is asked for. */
    const uint8_t *steps;
    /* Private: 3.8 to 3.10: for each code unit where its callee is; NULL until it is asked for. */
    const struct callee_slot *callee_slots;
    /* Private: what tells this code object from another that has taken its address, and when that was last looked at.
     */
    uint64_t fingerprint;
    uint32_t checked_epoch;
    uint32_t serial; /* from 1: no other struct code of this cache has or will have it */
    /* Private: what code_position was last asked, one higher so that 0 is nothing, and what it said. */
    uint32_t last_asked;
    struct source_position last_position;
    /* Private: whether they were asked for. */
    bool steps_known;
    bool callee_slots_known;
    bool mentions_known;
    /* Private: the addresses of its names and constants, in order; NULL until they are asked for. */
    const uint64_t *mentions;
    uint32_t mention_count;
};

/* The code objects of one runtime. Not thread-safe. */
struct code_cache {
    struct runtime *runtime; /* borrowed */
    struct map by_address;
    struct arena arena;
    size_t size_bytes;     /* of what was decoded, about */
    remote_addr code_type; /* 0 until the first code object was seen */
    uint32_t epoch;
    uint32_t last_serial; /* survives code_cache_release */
    uint32_t dead_count;  /* how many are kept that others have taken the places of */
    /* The owner's: a look cannot be taken again. Up to 3.10 code that was freed since its frame was seen, just now, is
     * then taken as it lies there; its names are hardly ever others' by then. */
    bool is_sampling;
    uint64_t frames_ns; /* up to 3.10, the user's: when it began to read the frames whose code it asks for */
    uint32_t reused;    /* set when a code object was found dead; the owner counts it down */
};

void code_cache_init(struct code_cache *cache, struct runtime *runtime);
void code_cache_release(struct code_cache *cache);

/* Code objects die and others take their addresses. After this each of them is compared with what stands at its address
 * when it is next asked for; one that is another by then is decoded anew, as another struct code. (What was handed out
 * stays valid until code_cache_release.) */
void code_cache_start_epoch(struct code_cache *cache);

/* The code object at `address`, decoded at its first use; owned by the cache until code_cache_release. STATUS_TORN when
 * no code object stands there, STATUS_UNREADABLE when nothing does. */
enum status code_cache_get(struct code_cache *cache, remote_addr address, const struct code **code) MUST_USE;

/* Whether `code`, found at its address before, was compared with what stands there since the last epoch began. */
static inline bool code_cache_vouches(const struct code_cache *cache, const struct code *code) {
    return code->checked_epoch == cache->epoch;
}

/* Private, of code_cache_step. */
enum {
    CODE_STEP_BYTES = 2,
    CODE_STEP_FAMILY = 0x07,
    CODE_STEP_ARGUMENT_SHIFT = 3,
    CODE_STEP_ARGUMENT = 0x0f,
    CODE_STEP_ENTERS = 0x80,
};
void code_cache_study(struct code_cache *cache, const struct code *code);

/* What the instruction at an offset (or the one whose cache lies there) can do to the stack of frames. Read from the
 * bytecode at the first call. OPCODE_HIDDEN when it cannot be told: anything is possible. */
struct code_step {
    enum opcode_family family;
    bool enters;
    uint8_t argument; /* 3.11+: the instruction's own byte, without prefixes, cut at CODE_STEP_ARGUMENT */
};
static inline struct code_step code_cache_step(struct code_cache *cache, const struct code *code,
                                               int32_t instruction_bytes) {
    if (!code->steps_known)
        code_cache_study(cache, code);
    if (code->steps == NULL || instruction_bytes < 0 || (uint32_t)instruction_bytes >= code->bytecode_bytes)
        return (struct code_step){OPCODE_HIDDEN, true, CODE_STEP_ARGUMENT};
    uint8_t step = code->steps[(uint32_t)instruction_bytes / CODE_STEP_BYTES];
    return (struct code_step){(enum opcode_family)(step & CODE_STEP_FAMILY), (step & CODE_STEP_ENTERS) != 0,
                              step >> CODE_STEP_ARGUMENT_SHIFT & CODE_STEP_ARGUMENT};
}

/* Where a frame of 3.8 to 3.10 has what it calls while its last instruction is at this offset. Read from the bytecode
 * at the first call. */
struct callee_slot code_cache_callee_slot(struct code_cache *cache, const struct code *code, int32_t instruction_bytes);

/* Whether the code has the name of the other (of a global, an attribute or a variable), or has it among its constants,
 * as functions inside it are: then it is likely to call it. Names are interned, so the same name is the same object.
 * Read at the first call. 3.11 and later. */
bool code_cache_mentions(struct code_cache *cache, const struct code *code, const struct code *other);

/* linetable_lookup in the code's table, with the last answer remembered: the threads of a pool stand at the same
 * places. `code` comes from a cache. */
void code_position(const struct code *code, uint32_t instruction_bytes, struct source_position *position);

/* Where the bytecode starts that a frame with this tlbc_index runs (free-threaded 3.14+; others pass 0). */
enum status code_bytecode_start(struct runtime *runtime, const struct code *code, int32_t tlbc_index,
                                remote_addr *start) MUST_USE;

#endif
