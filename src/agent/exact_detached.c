#include "agent/exact_detached.h"

#include "agent/codes.h"
#include "agent/load.h"
#include "agent/probe.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

enum {
    FIRST_OWN_STATE_MINOR = 12,
    /* Words that are as near to each other are fetched with what is between them. */
    NEARBY_BYTES = 256,
    MAX_PATIENCE = 64,
};

static bool is_own(const struct agent_python *python, uint64_t state) {
    uint64_t thread_id = 0;
    return probe_copy(state + python->layout.thread.thread_id, &thread_id, sizeof thread_id) &&
           thread_id == (uint64_t)pthread_self();
}

/* The state that this thread has let go of; 0: it has not, or has none. Before 3.12 the current one is that of whoever
 * has the GIL, this thread perhaps, in another interpreter. */
static uint64_t state_let_go(const struct agent_python *python) {
    uint64_t current = (uint64_t)(uintptr_t)python->current_state();
    uint64_t first = (uint64_t)(uintptr_t)python->first_state();
    if (current == 0 || first == 0)
        return first;
    if (current == first || layout_minor(&python->layout) >= FIRST_OWN_STATE_MINOR || is_own(python, current))
        return 0;
    return first;
}

/* --- What makes a stack this one. --- */

static bool add_word(struct detached_memo *memo, uint64_t address, uint64_t *value) {
    if (memo->word_count == DETACHED_WORDS || !probe_copy(address, value, sizeof *value))
        return false;
    memo->words[memo->word_count++] = (struct detached_word){.address = address, .value = *value};
    return true;
}

static bool add_frames(struct detached_memo *memo, const struct sites_fields *fields, uint64_t frame) {
    uint64_t caller = 0, place = 0;
    for (; frame != 0; frame = caller)
        if (!add_word(memo, frame + fields->instruction, &place) ||
            (layout_has(fields->last) && !add_word(memo, frame + fields->last, &place)) ||
            !add_word(memo, frame + fields->previous, &caller))
            return false;
    return true;
}

static bool add_stack(struct detached_memo *memo, const struct agent_python *python, const struct sites_fields *fields,
                      uint64_t state) {
    uint64_t thread_id = 0, frame = 0;
    if (!add_word(memo, state + python->layout.thread.thread_id, &thread_id) || thread_id != (uint64_t)pthread_self() ||
        !add_word(memo, state + fields->current_frame, &frame))
        return false;
    if (frame != 0 && layout_has(fields->cframe_current) && !add_word(memo, frame + fields->cframe_current, &frame))
        return false;
    return add_frames(memo, fields, frame);
}

static void sort_words(struct detached_memo *memo) {
    for (uint32_t i = 1; i < memo->word_count; i++) {
        struct detached_word word = memo->words[i];
        uint32_t place = i;
        for (; place > 0 && memo->words[place - 1].address > word.address; place--)
            memo->words[place] = memo->words[place - 1];
        memo->words[place] = word;
    }
}

/* False: they are too many, or too far apart. */
static bool make_pieces(struct detached_memo *memo) {
    uint64_t start = 0, end = 0;
    memo->piece_count = 0;
    memo->bytes = 0;
    for (uint32_t i = 0; i < memo->word_count; i++) {
        struct detached_word *word = &memo->words[i];
        if (memo->piece_count == 0 || word->address > end + NEARBY_BYTES) {
            if (memo->piece_count == DETACHED_PIECES)
                return false;
            start = end = word->address;
            memo->pieces[memo->piece_count++].iov_base = (void *)(uintptr_t)start;
        }
        if (word->address + sizeof word->value > end) {
            memo->bytes += word->address + sizeof word->value - end;
            end = word->address + sizeof word->value;
        }
        memo->pieces[memo->piece_count - 1].iov_len = end - start;
        word->at = memo->bytes - (end - word->address);
    }
    return memo->bytes <= sizeof memo->now;
}

static bool is_same(struct detached_memo *memo) {
    int error = errno;
    struct iovec local = {memo->now, memo->bytes};
    ssize_t bytes = process_vm_readv(memo->pid, &local, 1, memo->pieces, memo->piece_count, 0);
    errno = error;
    if (bytes != (ssize_t)memo->bytes)
        return false;
    for (uint32_t i = 0; i < memo->word_count; i++)
        if (load_u64(memo->now + memo->words[i].at) != memo->words[i].value)
            return false;
    return true;
}

void *detached_find(struct detached_memo *memo, const struct agent_python *python) {
    uint64_t state = memo->what != NULL ? state_let_go(python) : 0;
    if (state == 0 || state != memo->state || memo->deaths != codes_all_deaths() || !is_same(memo))
        return NULL;
    memo->hits++;
    return memo->what;
}

/* Keeping takes some calls for each frame: not for what is asked for once. */
static bool is_worth_it(struct detached_memo *memo, void *what) {
    bool is_again = memo->last == what;
    memo->last = what;
    if (memo->what != NULL)
        memo->patience = memo->hits > 0 ? 0 : memo->patience < MAX_PATIENCE ? 2 * memo->patience + 1 : MAX_PATIENCE;
    memo->misses = memo->what != NULL ? 0 : memo->misses + 1;
    memo->what = NULL;
    return is_again && memo->misses >= memo->patience;
}

void detached_note(struct detached_memo *memo, const struct agent_python *python, const struct sites_fields *fields,
                   void *what) {
    uint64_t state = is_worth_it(memo, what) ? state_let_go(python) : 0;
    if (state == 0)
        return;
    memo->state = state;
    memo->deaths = codes_all_deaths();
    memo->pid = getpid();
    memo->hits = memo->word_count = 0;
    if (!add_stack(memo, python, fields, state))
        return;
    sort_words(memo);
    if (make_pieces(memo))
        memo->what = what;
}
