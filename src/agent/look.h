/* One look of a thread at its own stack: what walk.c is made of. Private to walk.c and the look_*.c files. */
#ifndef STROBE_AGENT_LOOK_H
#define STROBE_AGENT_LOOK_H

#include "agent/walk.h"

enum {
    LOOK_WORD_BYTES = 8,
    /* Followed no further: half a millisecond. */
    LOOK_MAX_HOPS = 1 << 16,
    /* Of a stack that is deeper than a record holds: the innermost frames, WIRE_FRAME_CUT, the outermost frames. */
    LOOK_HEAD_FRAMES = WIRE_SAMPLE_MAX_FRAMES / 2,
    LOOK_TAIL_FRAMES = WIRE_SAMPLE_MAX_FRAMES - LOOK_HEAD_FRAMES - 1,
    /* _PyInterpreterFrame.owner (Include/internal/pycore_frame.h 3.11) */
    LOOK_OWNED_BY_GENERATOR = 1,
    LOOK_OWNED_BY_FRAME_OBJECT = 2,
};

struct span {
    uint64_t start, end;
};

static inline bool span_holds(struct span span, uint64_t address, uint64_t size_bytes) {
    return address >= span.start && address < span.end && span.end - address >= size_bytes;
}

struct look {
    struct walk *walk;
    const struct agent_python *python;
    const struct layout *layout;
    const struct walk_registers *registers;
    struct span c_stack; /* from the stack pointer up; empty when it is not known */
    struct span state;   /* the PyThreadState */
    bool attached;       /* what the thread's state leads to is alive, and nobody else gives it back */
    bool suspect;        /* but what is looked at now may be no frame at all */
    struct span window;  /* what walk->window is a copy of */
    /* 3.11+: the data stack's newest chunk, what of it is not in use, and the chunk that the look has come to. */
    struct span newest, unused, chunk;
    uint64_t newest_older, older_chunk;
    /* Where the last frame begins that was taken from a chunk, and that chunk: its callers there end before it. */
    uint64_t callee, callee_chunk;
    /* What was found. */
    struct wire_frame *frames;
    uint32_t total; /* more than stand in `frames` when the stack is too deep */
    bool native_pending;
    bool new_codes;
    bool cut; /* longer than is followed */
    struct span
        first_code; /* of the innermost frame: from its instruction to its bytecode's end; empty: there is none */
    uint64_t loop_address; /* as in struct walk_stack */
    int64_t offset;        /* of the frame taken last: its instruction in its bytecode */
};

/* look_memory.c */

/* The next look is likely to read there. */
void look_note_touched(struct look *look, uint64_t address, uint64_t size_bytes);

/* The bytes at an address, valid until the next call; NULL when they cannot be read. At most a page. */
const uint8_t *look_bytes_at(struct look *look, uint64_t address, uint64_t size_bytes);
/* Sets look->c_stack. */
void look_find_c_stack(struct look *look);
/* 3.11+: sets newest, unused, chunk. `state` is the thread's state, or a copy. */
void look_find_chunks(struct look *look, const uint8_t *state);

/* look_frames.c */

/* Where a stack begins, and what that can be held against. */
struct look_start {
    uint64_t frame;
    /* 3.11, 3.12: the C frame that names it, and the innermost frame of the next one outside; 0: there is none. */
    uint64_t cframe, outer_frame;
};

/* How far it led. */
struct look_way {
    uint32_t hops;
    /* The innermost frame is one that executes Python code, and has done so. One that has not may have been published
     * before it was complete. */
    bool begun;
};

/* Follows the links of 3.8 to 3.10, from the innermost frame out. False when they lead astray. */
bool look_follow_objects(struct look *look, uint64_t frame);
/* Those of 3.11 and later. False also when they do not end where they must. */
bool look_follow(struct look *look, const struct look_start *start, struct look_way *way);
/* The innermost frame's instruction, as in struct walk_stack; after one of the two above was true. */
uint32_t look_read_code_unit(struct look *look);
/* The owner of a frame; false when nothing can be read there. */
bool look_read_owner(struct look *look, uint64_t frame, uint8_t *owner);

/* look_recover.c */

/* 3.11, 3.12: what a _PyCFrame says. False when it makes no sense. */
bool look_read_cframe(struct look *look, uint64_t cframe, struct look_start *start);
/* Whether the evaluation loop may be about to fill in its _PyCFrame. */
bool look_may_be_entering(const struct look *look);
/* Finds the stack where the links from its published start do not lead on (`held` is false), or where the innermost
 * frame may not be what it seems. cframe: the published one, 0 in versions that have none. */
bool look_recover(struct look *look, const struct look_start *start, uint64_t cframe, const struct look_way *way,
                  bool held);

#endif
