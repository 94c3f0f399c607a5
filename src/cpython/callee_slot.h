/* Where in its value stack a frame of 3.8 to 3.10 has what it calls: found from the bytecode alone, since a frame that
 * runs does not keep how deep its value stack is. */
#ifndef STROBE_CPYTHON_CALLEE_SLOT_H
#define STROBE_CPYTHON_CALLEE_SLOT_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum callee_slot_kind {
    CALLEE_SLOT_NONE = 0, /* the instruction calls nothing, or it is not known where that is */
    CALLEE_SLOT_CALLABLE, /* what is called is there, its arguments behind it */
    CALLEE_SLOT_METHOD,   /* the same, but when that is NULL it is in the next one (LOAD_METHOD) */
    CALLEE_SLOT_ITERATOR, /* an iterator, awaitable or generator that is asked for its next value */
};

struct callee_slot {
    uint8_t kind;           /* enum callee_slot_kind */
    uint8_t argument_count; /* slots behind it that hold arguments, cut at UINT8_MAX */
    uint16_t index;         /* counted from f_valuestack */
    /* 3.8: it may be so much lower: the body of a `finally` is come to with one value on the stack, or with six. */
    uint8_t lower;
};

/* For each of the `units` code units of a function of 3.8 to 3.10 where its callee is while the frame's last
 * instruction is that one. STATUS_FAILED when there is no memory. Bytecode that is none gives nonsense, no harm. */
enum status callee_slots_find(uint32_t minor, const uint8_t *bytecode, size_t units,
                              struct callee_slot *slots) MUST_USE;

#endif
