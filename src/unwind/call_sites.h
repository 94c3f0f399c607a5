/* From which of its instructions code calls other code: what was learned by looking at frames of 3.8 to 3.10. Pure. */
#ifndef STROBE_UNWIND_CALL_SITES_H
#define STROBE_UNWIND_CALL_SITES_H

#include "base/map.h"
#include "cpython/code.h"

enum call_evidence {
    CALL_LIKELY,  /* the caller stood there about when the callee ran: wrong when everything changed between */
    CALL_COPIED,  /* the caller's own value stack said so in a copy: wrong when it went on while that was made */
    CALL_CERTAIN, /* it did, and stood there still after the copy: wrong once in a great while */
};

/* Zero-initialised knows nothing. Fields are private. */
struct call_sites {
    struct site_set *sets;
    size_t set_count;
    size_t set_capacity;
    struct map sets_by_pair;
    struct map callees; /* what is certainly called from an instruction */
    struct map called;  /* how often it was certain that code was called at all */
};

void call_sites_release(struct call_sites *sites);
void call_sites_forget(struct call_sites *sites);

/* Learns that `caller` calls `callee` from an instruction. STATUS_FAILED when there is no memory. */
enum status call_sites_note(struct call_sites *sites, const struct code *caller, int32_t instruction_bytes,
                            const struct code *callee, enum call_evidence evidence) MUST_USE;

/* Whether there is no doubt that `caller` calls `callee` from this instruction. */
bool call_sites_knows(const struct call_sites *sites, const struct code *caller, int32_t instruction_bytes,
                      const struct code *callee);
/* Whether it is certain that something else, and only that, is called from there. */
bool call_sites_excludes(const struct call_sites *sites, const struct code *caller, int32_t instruction_bytes,
                         const struct code *callee);
/* Whether there is no doubt that `caller` calls `callee` from somewhere. */
bool call_sites_calls(const struct call_sites *sites, const struct code *caller, const struct code *callee);
/* Whether it is certain from where `caller` calls `callee`, or that others call it and, after many questions, this one
 * was never found to. */
bool call_sites_calls_elsewhere(const struct call_sites *sites, const struct code *caller, const struct code *callee);
/* Whether it is worth a read to learn more of where `caller` calls `callee`: at first, then now and then. */
bool call_sites_asks(struct call_sites *sites, const struct code *caller, const struct code *callee);
/* Whether there is no doubt of an instruction from which it does, or no hope to learn of one soon. */
bool call_sites_is_settled(const struct call_sites *sites, const struct code *caller, const struct code *callee);

/* Where `caller` stood when it called `callee`, given that it stood at an instruction a moment later: there, or it has
 * gone on since. */
int32_t call_sites_guess(const struct call_sites *sites, struct code_cache *codes, const struct code *caller,
                         const struct code *callee, int32_t instruction_bytes);

#endif
