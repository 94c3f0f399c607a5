/* Which calls were seen of late: a function, by the path of calls that leads to it, calling another from one of its
 * instructions, maybe through frames that lie elsewhere than the two (generators, calls through C). Bounded; what was
 * seen long ago is forgotten. Pure. */
#ifndef STROBE_UNWIND_SEEN_CALLS_H
#define STROBE_UNWIND_SEEN_CALLS_H

#include "cpython/code.h"

/* A frame between caller and callee. */
struct call_link {
    const struct code *code; /* NULL for a boundary frame */
    int32_t instruction_bytes;
    bool named; /* what runs it mentions it (code_cache_mentions): what is not named is hardly ever seen beside it */
};

struct seen_call {
    uint32_t key;
    int32_t instruction_bytes; /* of the caller */
    uint32_t times;
    uint32_t link_count;
    bool guessed;            /* the links are not all named, and nothing that they have called was seen with them */
    struct call_link *links; /* outermost first */
};

/* Zero-initialised knows nothing. Fields are private. */
struct seen_calls {
    struct seen_call *calls;
    uint64_t used[4]; /* a bit for each set of `calls` in which something was noted */
    uint32_t noted;
};

enum {
    SEEN_CALLS_MAX_LINKS = 64,
    /* So many are a wait of one for the other: hardly ever put together of two calls. */
    SEEN_CALLS_LONG_LINKS = 7,
};

/* Stands for the serial of a callee where there is none: the innermost of the links runs. How far it has got is then of
 * no matter. */
#define SEEN_CALLS_NO_CALLEE UINT32_MAX
/* The same for all callees that many frames lead to which wait for one another. (Below the one is the same where the
 * caller runs.) */
#define SEEN_CALLS_ANY_WAIT (SEEN_CALLS_NO_CALLEE - 2)
/* The same for all callees together. */
#define SEEN_CALLS_ANY_CALLEE (SEEN_CALLS_NO_CALLEE - 3)

void seen_calls_release(struct seen_calls *seen);
/* Knows nothing again. Costs grow with what was noted. */
void seen_calls_forget(struct seen_calls *seen);

/* What stands for a call: the path of the caller (0 when there is none) and the serial of the callee's code. */
uint32_t seen_calls_key(uint32_t caller_path, uint32_t callee_serial);
/* The callee's path, when it was called from this instruction. */
uint32_t seen_calls_path(uint32_t key, int32_t instruction_bytes);

/* Of `call`, everything but `times` is to be set. */
void seen_calls_note(struct seen_calls *seen, const struct seen_call *call, bool has_callee);
/* Whether that call was seen more than once, and not just now and then among others with its key. */
bool seen_calls_knows(const struct seen_calls *seen, const struct seen_call *call, bool has_callee);

/* Whether another with its key was seen in which what runs is named where in this one it is not. */
bool seen_calls_is_outdone(const struct seen_calls *seen, const struct seen_call *call);
/* The same, but what is not named is as good as what is once it was seen there more than once itself. */
bool seen_calls_is_unheard_of(const struct seen_calls *seen, const struct seen_call *call);

/* Whether other calls with its key were seen often, and that one only now and then. */
bool seen_calls_is_rare(const struct seen_calls *seen, const struct seen_call *call);
/* Whether that call was seen, more than once, without links, and from that instruction no other with its key. */
bool seen_calls_is_plain(const struct seen_calls *seen, const struct seen_call *call);

/* How a caller that was at an instruction a moment ago made the call with this key: from the next place in its code
 * from which it was seen to, else from one behind it. Where it was seen to make it in several ways, one of them, the
 * likelier the more often it was seen; `random` decides. NULL when it was not seen. */
const struct seen_call *seen_calls_recall(const struct seen_calls *seen, uint32_t key, int32_t instruction_bytes,
                                          bool with_links, uint32_t random);
/* The same where only that very instruction will do; with links, or with or without. */
const struct seen_call *seen_calls_recall_at(const struct seen_calls *seen, uint32_t key, int32_t instruction_bytes,
                                             bool with_links, uint32_t random);
/* One of those that begin with the links of that call and have more. */
const struct seen_call *seen_calls_recall_longer(const struct seen_calls *seen, const struct seen_call *call,
                                                 uint32_t random);

#endif
