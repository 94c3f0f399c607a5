/* Code objects as the agent tells of them (struct wire_code). */
#ifndef STROBE_SAMPLER_AGENT_CODE_H
#define STROBE_SAMPLER_AGENT_CODE_H

#include "base/digest.h"
#include "base/map.h"
#include "cpython/code.h"
#include "wire/records.h"

/* Lives until the last reference is given back. The texts and the line table lie behind it. */
struct agent_code {
    struct code code;
    struct digest digest; /* of all that was told */
    size_t size_bytes;
    uint32_t references;
};

/* Those of one process. Several rings tell of the same code object; it is kept once. */
struct agent_codes {
    enum linetable_format format;
    uint32_t *last_serial; /* borrowed: the session's, so that no two of a process share one, also after an exec */
    struct map latest;     /* address -> struct agent_code, the last one told of; holds a reference */
    size_t size_bytes;     /* of all that live */
};

/* Serials of the agent's code begin above this; those that are read from outside stay below. */
enum { AGENT_CODE_FIRST_SERIAL = 0x7fffffff };

void agent_codes_release(struct agent_codes *codes);

/* Decodes a record, of which `record` is a private copy of `size_bytes` bytes. `memory` is the process's, NULL when it
 * is gone: a line table too long for a record is read from there. The caller owns the reference. STATUS_DAMAGED when
 * the record contradicts itself; STATUS_LIMIT when the process has more code than strobe keeps. */
enum status agent_codes_take(struct agent_codes *codes, const struct wire_code *record, size_t size_bytes,
                             struct memory *memory, struct agent_code **code) MUST_USE;

void agent_code_hold(struct agent_code *code);
/* NULL is fine. */
void agent_code_drop(struct agent_codes *codes, struct agent_code *code);

#endif
