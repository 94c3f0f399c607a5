/* A thread looks at its own Python stack, from a signal handler that has interrupted it anywhere: while it pushes a
 * frame, grows the data stack, enters or leaves the evaluation loop, collects, starts up or finalises.
 *
 * Async-signal-safe: no lock, no allocation, no call into Python but the getters of agent/python.h. What is read is
 * known to be mapped, or the kernel is asked to read it. */
#ifndef STROBE_AGENT_WALK_H
#define STROBE_AGENT_WALK_H

#include "agent/codes.h"
#include "agent/probe.h"
#include "agent/python.h"
#include "wire/ring.h"

enum {
    WALK_PAGE_SETS = 64,
    WALK_TOUCHED_LINES = 96, /* what 40 frames take */
};

/* One thread's: 140 KiB, of which little is touched. See walk_start. */
struct walk {
    const struct agent_python *python; /* borrowed */
    uint64_t c_stack_end;    /* the highest address of the thread's C stack, set after walk_start; 0: not known */
    uint64_t c_stack_mapped; /* up from here, as was proved; 0: nothing was yet */
    /* Where the last look has read, so that the next one can ask for it beforehand: nothing but a guess. */
    uint64_t touched[WALK_TOUCHED_LINES];
    uint32_t touched_count;
    /* That were proved readable and that an attached thread's state led to; in each set, the latest comes first. */
    uint64_t pages[WALK_PAGE_SETS][2];
    struct codes codes;
    uint32_t last; /* index of the stack that was written last; the other is the one being walked */
    uint32_t last_count;
    uint8_t window[2 * PROBE_PAGE_BYTES]; /* a copy of what must not be read where it is */
    struct wire_frame frames[2][WIRE_SAMPLE_MAX_FRAMES];
};

/* What a look has found. */
struct walk_stack {
    const struct wire_frame *frames; /* innermost first; in struct walk, valid until the next look */
    uint32_t count;
    uint32_t kept;         /* set by walk_define_codes */
    uint32_t code_unit;    /* as in struct wire_sample */
    uint64_t loop_address; /* in the C frame of the innermost evaluation loop, which ends above; 0: not known */
    uint16_t flags;        /* enum wire_sample_flag */
    bool new_codes;        /* some of the frames' code objects do not stand in the ring yet */
};

/* What the interrupted code had in its registers. */
struct walk_registers {
    uint64_t program_counter, stack_pointer;
    const uint64_t *values; /* all general ones, in any order */
    size_t count;
};

/* Whether all from there to c_stack_end is the thread's C stack, as far as walk_frames has seen. */
static inline bool walk_knows_c_stack(const struct walk *walk, uint64_t address) {
    return walk->c_stack_mapped != 0 && address >= walk->c_stack_mapped && address < walk->c_stack_end;
}

/* The thread is about to be looked at: asks for the memory that this will take, without waiting for it. */
void walk_expect(const struct walk *walk);

/* This thread's stack. */
void walk_frames(struct walk *walk, const struct walk_registers *registers, struct walk_stack *stack);

/* Writes the code objects that the stack needs and the ring lacks, each visible at once, and then sets stack->kept.
 * False when one did not fit: then this stack cannot be written. */
bool walk_define_codes(struct walk *walk, struct walk_stack *stack, struct wire_ring *ring);

/* The stack was written as a WIRE_SAMPLE: the next one is a difference to it. */
void walk_accept(struct walk *walk, const struct walk_stack *stack);

/* Another thread has it from now on, with an empty ring. All zero needs this, too. Its code objects are still known. */
void walk_start(struct walk *walk, const struct agent_python *python);

#endif
