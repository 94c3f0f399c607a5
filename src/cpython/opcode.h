/* What an instruction of CPython can do to the stack of frames: whether a frame that stands on it can have a callee,
 * and which. Generated tables (tools/generate-opcodes says from which headers and sources), one of each minor version;
 * the numbers of free-threaded and debug builds are the same. */
#ifndef STROBE_CPYTHON_OPCODE_H
#define STROBE_CPYTHON_OPCODE_H

#include <stdbool.h>
#include <stdint.h>

enum { OPCODE_FIRST_MINOR = 8, OPCODE_LAST_MINOR = 15, OPCODES = 256 };

/* Always that of the base instruction, never that of the specialised form that stands in the bytecode: a form that does
 * not fit falls through to what its base does, and the bytecode under a waiting caller can be given another form.
 *
 * To 3.11 a trace function can be the callee, through C, whatever the instruction; later that stands on a HIDDEN one.
 */
enum opcode_family {
    OPCODE_INVALID = 0, /* no instruction of this version */
    /* No callee. */
    OPCODE_OTHER,
    /* Calls an object of the value stack, from 3.11 maybe by pushing its frame. Then (no entry frame between) that
     * object is still where it was, dead, just above the stack pointer that the caller saved: stackpointer[0]; in 3.11
     * and 3.12 that is NULL where no method was bound, and the object is at [1]. It is the callee's function, but a
     * class where an __init__ is entered (CALL_ALLOC_AND_ENTER_INIT, 3.13+). */
    OPCODE_CALL,
    /* Operators, attributes, imports, …: may run Python code, mostly through C. */
    OPCODE_CALLS_PYTHON,
    /* As CALLS_PYTHON; the callee can be a generator's frame, which lies in the generator and outlives the call. */
    OPCODE_RESUMES_GENERATOR,
    /* A callee only as a finalizer, weak reference's callback, signal handler or such, always through C. */
    OPCODE_BY_THE_WAY,
    /* No instruction but room for one's caches. Live bytecode has any value there. */
    OPCODE_CACHE,
    /* Stands for another instruction that cannot be told from the bytecode (INSTRUMENTED_LINE, ENTER_EXECUTOR), or, to
     * 3.10, the prefix of one (EXTENDED_ARG: f_lasti stays there). Also everything of a version that is not known.
     * Anything is possible, and `caches` is not known. */
    OPCODE_HIDDEN,
};

/* NB_SUBSCR, Include/opcode.h 3.14 and 3.15 */
enum { OPCODE_SUBSCRIPTION = 26 };

struct opcode {
    uint8_t family;  /* enum opcode_family */
    bool enters;     /* a form of it pushes the callee's frame itself: no entry frame lies between caller and callee */
    uint8_t base;    /* without specialisation and instrumentation */
    uint8_t caches;  /* code units behind the instruction that belong to it */
    bool subscribes; /* it enters as a subscription only: with the argument OPCODE_SUBSCRIPTION */
};

/* The OPCODES entries of Python 3.`minor`. Of a version outside the tables all are OPCODE_HIDDEN. */
const struct opcode *opcode_table(uint32_t minor);

enum opcode_family opcode_family(uint32_t minor, uint8_t opcode);

/* The tables; opcode_table is the way in. */
extern const struct opcode opcode_tables[OPCODE_LAST_MINOR - OPCODE_FIRST_MINOR + 1][OPCODES];

#endif
